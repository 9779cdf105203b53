#include "pack.h"

#include "qola_kernel.h"
#include "sha256.h"
#include "text.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace qola_runtime {
namespace {

constexpr std::string_view kMagic  = "QOLAPCK1";
constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kRowBytes    = 48;
constexpr std::size_t kDigestBytes = 32;
constexpr std::size_t kAlignment   = 16;

/// Most bytes of a table, as in qola/common/packs.py: 50,000 kernels. A file's size alone says nothing of memory: it may
/// have holes.
constexpr std::uint64_t kMostOfTable = 16 << 20;

constexpr std::uint64_t aligned(std::uint64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

Problem damaged(const std::string& path, const std::string& what)
{
    return Problem(path + " is not a whole pack: " + what + "; make or fetch it again");
}

constexpr std::string_view kTrailerMagic = "QOLAKRN1";
constexpr std::size_t kKeyInTrailer      = 16;
constexpr std::size_t kDigestInTrailer   = 48;

} // namespace

Pack::Pack(const std::string& path, const Trust& trust) : path_(path), fd_(open_file(path, O_RDONLY | O_NONBLOCK))
{
    struct stat status;
    if(!fd_)
        throw SystemError("open " + path, errno);
    if(fstat(fd_.get(), &status) != 0)
        throw SystemError("stat " + path, errno);
    if(!S_ISREG(status.st_mode))
        throw damaged(path, "it is not a file");
    for(const std::string& why : {distrust(path, status, trust), distrust_above(path, trust)})
        if(!why.empty())
            throw Problem(why);

    const auto size          = static_cast<std::uint64_t>(status.st_size);
    const std::string header = read_at(fd_.get(), 0, kHeaderBytes, path);
    if(header.size() < kHeaderBytes || std::string_view(header).substr(0, 8) != kMagic)
        throw damaged(path, "it does not begin with " + std::string(kMagic));
    const std::uint64_t count  = number_at(header, 8, 4);
    const std::uint64_t labels = number_at(header, 12, 4);
    const std::uint64_t before = kHeaderBytes + count * kRowBytes + labels;
    if(before > kMostOfTable)
        throw damaged(path, "its table has " + std::to_string(before) + " bytes");
    if(before + kDigestBytes > size)
        throw damaged(path, "its table goes beyond its " + std::to_string(size) + " bytes");
    const std::string table = read_at(fd_.get(), 0, before + kDigestBytes, path);
    if(table.size() < before + kDigestBytes ||
       sha256(std::string_view(table).substr(0, before)) != hex_of_bytes(std::string_view(table).substr(before)))
        throw damaged(path, "its table does not have the digest behind it");

    const std::string_view all = table;
    const auto texts           = lines(all.substr(before - labels, labels));
    if(texts.size() != count)
        throw damaged(path, "it has not a label for each entry");
    for(std::size_t at = 0; at < count; ++at)
    {
        const std::string_view row = all.substr(kHeaderBytes + at * kRowBytes, kRowBytes);
        const auto label           = fields(texts[at]);
        const Place place{std::string(label[0]),
                          std::string(label.size() > 1 ? label[1] : ""),
                          std::string(label.size() > 2 ? label[2] : ""),
                          number_at(row, 32, 8),
                          number_at(row, 40, 8)};
        if(place.offset > size || place.size > size - place.offset)
            throw damaged(path, "the entry of " + place.name + " goes beyond its " + std::to_string(size) + " bytes");
        if(place.size > kMostOfFile)
            throw damaged(path, "the entry of " + place.name + " has " + std::to_string(place.size) + " bytes");
        places_.emplace(hex_of_bytes(row.substr(0, 32)), place);
    }
}

std::string Pack::find(const std::string& key) const
{
    const auto found = places_.find(key);
    if(found == places_.end())
        return {};
    const Place& place = found->second;
    std::string bytes  = read_at(fd_.get(), place.offset, place.size, path_);
    if(const std::string fault = fault_of_entry(bytes, key); !fault.empty())
        throw Problem(path_ + ": " + place.name + " for " + place.arch + " " + fault);
    return bytes;
}

std::string_view Pack::map_code(const std::string& key) const
{
    const Place& place       = places_.at(key);
    const std::uint64_t page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const std::uint64_t skip = place.offset % page;
    const std::uint64_t code = place.size - std::min<std::uint64_t>(place.size, kTrailerBytes);
    if(code == 0)
        throw Problem(path_ + ": " + place.name + " for " + place.arch + " has no code");
    void* const memory = mmap(
        nullptr, code + skip, PROT_READ, MAP_PRIVATE, fd_.get(), static_cast<off_t>(place.offset - skip));
    if(memory == MAP_FAILED)
        throw SystemError("map " + path_, errno);
    const std::string_view mapped(static_cast<const char*>(memory) + skip, code);
    if(const std::string found = sha256(mapped); found != key)
    {
        munmap(memory, code + skip);
        throw Problem(path_ + ": " + place.name + " for " + place.arch + " is damaged: its code has the digest " +
                      found + ", expected " + key);
    }
    return mapped;
}

CompiledKernel Pack::of_another_compiler(const Kernel& kernel) const
{
    for(const auto& [key, place] : places_)
        if(place.name == kernel.name && place.arch == kernel.arch && !place.identity.empty() &&
           key_of(kernel, place.identity) == key)
            return {kernel.name, kernel.arch, key, place.identity};
    return {};
}

void write_pack_file(const std::string& path, const std::vector<Item>& items)
{
    std::map<std::string, const Item*> sorted;
    for(const Item& item : items)
        sorted.emplace(item.kernel.key, &item);
    std::string labels;
    for(const auto& [key, item] : sorted)
        labels += item->kernel.name + "\t" + item->kernel.arch + "\t" + item->kernel.identity + "\n";
    if(const std::size_t before = kHeaderBytes + sorted.size() * kRowBytes + labels.size(); before > kMostOfTable)
        throw Problem(path + " is not written: the table of " + std::to_string(sorted.size()) + " kernels has " +
                      std::to_string(before) + " bytes, more than " + std::to_string(kMostOfTable) +
                      "; write several packs");

    std::string table(kMagic);
    table += number_bytes(sorted.size(), 4) + number_bytes(labels.size(), 4);
    std::uint64_t offset = aligned(kHeaderBytes + sorted.size() * kRowBytes + labels.size() + kDigestBytes);
    for(const auto& [key, item] : sorted)
    {
        table += bytes_of_hex(key) + number_bytes(offset, 8) + number_bytes(item->size, 8);
        offset = aligned(offset + item->size);
    }
    table += labels;
    table += bytes_of_hex(sha256(table));

    write_file_by(path, 0644, [&](const std::function<void(std::string_view)>& write) {
        const auto write_aligned = [&](std::string_view bytes) {
            write(bytes);
            write(std::string(aligned(bytes.size()) - bytes.size(), '\0'));
        };
        write_aligned(table);
        for(const auto& [key, item] : sorted)
        {
            const std::string bytes = item->read();
            if(bytes.size() != item->size)
                throw Problem(item->kernel.name + " for " + item->kernel.arch + " changed while it was packed");
            write_aligned(bytes);
        }
    });
}

std::string key_of(const Kernel& kernel, std::string_view identity)
{
    std::string text = "qola kernel key\n";
    for(const std::string_view part : {std::string_view(kernel.code), std::string_view(kernel.arch), identity})
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
    entry.append(kTrailerMagic).append(number_bytes(QOLA_KERNEL_ABI, 4)).append(number_bytes(0, 4));
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
    if(trailer.substr(0, kTrailerMagic.size()) != kTrailerMagic)
        return "is truncated or not a kernel of qola: it does not end with a trailer";
    if(const auto abi = number_at(trailer, 8, 4); abi != QOLA_KERNEL_ABI)
        return "has kernel ABI " + std::to_string(abi) + ", expected " + std::to_string(QOLA_KERNEL_ABI);
    if(const std::string found = key_in(bytes); !key.empty() && found != key)
        return "has the key " + found + ", expected " + std::string(key);
    const std::string expected = hex_of_bytes(trailer.substr(kDigestInTrailer));
    if(const std::string found = sha256(bytes.substr(0, start + kDigestInTrailer)); found != expected)
        return "is damaged: its bytes have the digest " + found + ", expected " + expected;
    return {};
}

std::string key_in(std::string_view entry)
{
    return hex_of_bytes(entry.substr(entry.size() - kTrailerBytes + kKeyInTrailer, 32));
}

} // namespace qola_runtime
