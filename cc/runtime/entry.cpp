#include "entry.h"

#include "little_endian.h"
#include "qola_kernel.h"
#include "sha256.h"

namespace qola_runtime {
namespace {

constexpr std::string_view kMagic = "QOLAKRN1";
constexpr std::size_t kKey        = 16; // of the trailer
constexpr std::size_t kDigest     = 48;

} // namespace

std::string key_of(const Kernel& kernel, std::string_view identity)
{
    std::string text = "qola kernel key\n";
    for(const std::string_view part :
        {std::string_view(kernel.code), std::string_view(kernel.arch), identity})
        text.append(part).append("\n");
    return sha256(text);
}

CompiledKernel compiled_by(const std::string& identity, const Kernel& kernel)
{
    return {kernel.name, kernel.arch, key_of(kernel, identity), identity};
}

std::string entry_path(const CompiledKernel& kernel)
{
    return kernel.name + "/" + kernel.arch + "-" + kernel.key.substr(0, 32) + ".so";
}

std::string entry_of(std::string_view library, std::string_view key)
{
    std::string entry(library);
    entry.append(kMagic).append(number_bytes(QOLA_KERNEL_ABI, 4)).append(number_bytes(0, 4));
    entry.append(bytes_of_hex(key));
    entry.append(bytes_of_hex(sha256(entry)));
    return entry;
}

std::string fault_of_entry(std::string_view bytes, std::string_view key)
{
    if(bytes.size() < kTrailerBytes)
        return "is not a kernel library: it has " + std::to_string(bytes.size()) + " bytes";
    const std::size_t start        = bytes.size() - kTrailerBytes;
    const std::string_view trailer = bytes.substr(start);
    if(trailer.substr(0, kMagic.size()) != kMagic)
        return "is truncated or not a kernel of qola: it does not end with a trailer";
    if(const auto abi = number_at(trailer, 8, 4); abi != QOLA_KERNEL_ABI)
        return "has kernel ABI " + std::to_string(abi) + ", expected " +
               std::to_string(QOLA_KERNEL_ABI);
    if(const std::string found = key_in(bytes); !key.empty() && found != key)
        return "has the key " + found + ", expected " + std::string(key);
    const std::string expected = hex_of_bytes(trailer.substr(kDigest));
    if(const std::string found = sha256(bytes.substr(0, start + kDigest)); found != expected)
        return "is damaged: its bytes have the digest " + found + ", expected " + expected;
    return {};
}

std::string key_in(std::string_view entry)
{
    return hex_of_bytes(entry.substr(entry.size() - kTrailerBytes + kKey, 32));
}

} // namespace qola_runtime
