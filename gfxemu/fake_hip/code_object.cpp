#include "code_object.h"

#include "sha256.h"

#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace fake_hip {
namespace {

constexpr std::string_view kBundle     = "__CLANG_OFFLOAD_BUNDLE__";
constexpr std::string_view kCompressed = "CCOB";
constexpr std::string_view kElf        = "\177ELF";
constexpr std::string_view kTriple     = "amdgcn-amd-amdhsa--";

constexpr std::uint16_t kMachineAmdgpu = 224;
constexpr std::uint32_t kNoteMetadata  = 32;

// Feature bits of e_flags since code object version 4: 1 any, 2 off, 3 on.
constexpr int kXnackShift   = 8;
constexpr int kSrameccShift = 10;

/// A value in MessagePack. The key tells which member is set.
struct Value
{
    std::uint64_t number = 0;
    std::string text;
    std::vector<Value> list;
    std::map<std::string, Value> map;

    /// Returns the value at a key, or an empty value if the key is absent.
    const Value& at(const std::string& key) const
    {
        static const Value none;
        const auto found = map.find(key);
        return found == map.end() ? none : found->second;
    }
};

/// Reads the part of MessagePack that metadata notes use. Throws std::runtime_error for anything else.
class Reader
{
    public:
    explicit Reader(std::string_view bytes) : bytes_(bytes) {}

    Value value()
    {
        const auto tag = static_cast<unsigned>(integer(1));
        Value result;
        if(tag <= 0x7f)
            result.number = tag;
        else if(tag <= 0x8f)
            map(result, tag & 0x0f);
        else if(tag <= 0x9f)
            list(result, tag & 0x0f);
        else if(tag <= 0xbf)
            result.text = take(tag & 0x1f);
        else if(tag == 0xc3) // true; nil and false are 0
            result.number = 1;
        else if(tag >= 0xcc && tag <= 0xd3) // unsigned, and signed: the sizes of metadata are never negative
            result.number = integer(1u << (tag & 3));
        else if(tag >= 0xd9 && tag <= 0xdb)
            result.text = take(integer(1u << (tag - 0xd9)));
        else if(tag == 0xdc || tag == 0xdd)
            list(result, integer(2u << (tag - 0xdc)));
        else if(tag == 0xde || tag == 0xdf)
            map(result, integer(2u << (tag - 0xde)));
        else if(tag != 0xc0 && tag != 0xc2)
            throw std::runtime_error("MessagePack tag " + std::to_string(tag));
        return result;
    }

    private:
    void list(Value& result, std::uint64_t count)
    {
        for(; count; --count)
            result.list.push_back(value());
    }

    void map(Value& result, std::uint64_t count)
    {
        for(; count; --count)
        {
            std::string key = value().text;
            result.map.insert_or_assign(std::move(key), value());
        }
    }

    std::string take(std::uint64_t count)
    {
        if(count > bytes_.size())
            throw std::runtime_error("MessagePack document that ends early");
        const std::string_view taken = bytes_.substr(0, count);
        bytes_.remove_prefix(count);
        return std::string(taken);
    }

    std::uint64_t integer(std::uint64_t count)
    {
        std::uint64_t result = 0;
        for(const char byte : take(count))
            result = result << 8 | static_cast<unsigned char>(byte);
        return result;
    }

    std::string_view bytes_;
};

template <class T>
T read(const char* from)
{
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

bool begins_with(const char* image, std::string_view magic)
{
    return std::memcmp(image, magic.data(), magic.size()) == 0;
}

// The image's size is not passed to the runtime; the ELF header tells it.
std::size_t elf_size(const char* image)
{
    const auto header = read<Elf64_Ehdr>(image);
    std::size_t size  = header.e_shoff + std::size_t{header.e_shnum} * header.e_shentsize;
    for(int i = 0; i < header.e_shnum; ++i)
    {
        const auto section = read<Elf64_Shdr>(image + header.e_shoff + i * header.e_shentsize);
        if(section.sh_type != SHT_NOBITS)
            size = std::max<std::size_t>(size, section.sh_offset + section.sh_size);
    }
    return size;
}

std::uint32_t number(const Value& map, const std::string& key)
{
    return static_cast<std::uint32_t>(map.at(key).number);
}

Kernel kernel_of(const Value& metadata)
{
    Kernel kernel;
    // The kernel descriptor's symbol is the kernel's with ".kd" behind it.
    const std::string& descriptor = metadata.at(".symbol").text;
    kernel.symbol                 = descriptor.substr(0, descriptor.rfind(".kd"));
    kernel.kernarg_bytes          = number(metadata, ".kernarg_segment_size");
    kernel.lds_bytes              = number(metadata, ".group_segment_fixed_size");
    kernel.scratch_bytes          = number(metadata, ".private_segment_fixed_size");
    kernel.max_block              = number(metadata, ".max_flat_workgroup_size");
    kernel.vgprs                  = number(metadata, ".vgpr_count");
    kernel.sgprs                  = number(metadata, ".sgpr_count");
    for(const Value& argument : metadata.at(".args").list)
        kernel.arguments.push_back(
            {argument.at(".value_kind").text, number(argument, ".offset"), number(argument, ".size")});
    return kernel;
}

std::size_t aligned(std::size_t size) { return (size + 3) / 4 * 4; }

// The metadata document among the notes of one section.
std::string_view metadata_note(std::string_view notes)
{
    while(notes.size() >= sizeof(Elf64_Nhdr))
    {
        const auto header      = read<Elf64_Nhdr>(notes.data());
        const std::size_t name = sizeof header;
        const std::size_t data = name + aligned(header.n_namesz);
        const std::size_t end  = data + aligned(header.n_descsz);
        if(end > notes.size())
            break;
        if(header.n_type == kNoteMetadata && notes.substr(name).starts_with("AMDGPU"))
            return notes.substr(data, header.n_descsz);
        notes.remove_prefix(end);
    }
    return {};
}

Value document(std::string_view note)
{
    try
    {
        return Reader(note).value();
    }
    catch(const std::runtime_error& error)
    {
        refuse(std::string("the metadata of a code object: ") + error.what());
    }
}

CodeObject read_elf(const char* image)
{
    const auto header = read<Elf64_Ehdr>(image);
    std::string elf(image, elf_size(image));
    std::string digest = qola_runtime::sha256(elf);
    CodeObject result{std::move(elf), std::move(digest), {}};
    for(int i = 0; i < header.e_shnum; ++i)
    {
        const auto section = read<Elf64_Shdr>(image + header.e_shoff + i * header.e_shentsize);
        if(section.sh_type != SHT_NOTE)
            continue;
        const std::string_view note = metadata_note({image + section.sh_offset, section.sh_size});
        if(note.empty())
            continue;
        const Value metadata_of_all = document(note);
        for(const Value& metadata : metadata_of_all.at("amdhsa.kernels").list)
            result.kernels.emplace(metadata.at(".name").text, kernel_of(metadata));
    }
    // A code object of a source whose kernel is for another arch has no kernel, and that is right.
    return result;
}

bool feature_serves(std::uint32_t flags, int shift, bool device_has)
{
    const std::uint32_t setting = flags >> shift & 3;
    return setting <= 1 || (setting == 3) == device_has;
}

bool elf_serves(const char* image, const Arch& arch)
{
    const auto header = read<Elf64_Ehdr>(image);
    const auto has    = [&](std::string_view feature) { return arch.features.find(feature) != std::string_view::npos; };
    return header.e_machine == kMachineAmdgpu && (header.e_flags & 0xff) == arch.elf_mach &&
           feature_serves(header.e_flags, kXnackShift, has(":xnack+")) &&
           feature_serves(header.e_flags, kSrameccShift, has(":sramecc+"));
}

// Whether a bundle entry's target id, such as "gfx942:xnack-", covers the arch.
bool target_serves(std::string_view target, const Arch& arch)
{
    const std::size_t colon = std::min(target.find(':'), target.size());
    if(target.substr(0, colon) != arch.name)
        return false;
    std::string_view wanted = target.substr(colon);
    while(!wanted.empty())
    {
        const std::size_t next = std::min(wanted.find(':', 1), wanted.size());
        if(arch.features.find(wanted.substr(0, next)) == std::string_view::npos)
            return false;
        wanted.remove_prefix(next);
    }
    return true;
}

std::optional<CodeObject> read_bundle(const char* image, const Arch& arch)
{
    const char* at   = image + kBundle.size();
    const auto count = read<std::uint64_t>(at);
    at += 8;
    bool generic = false;
    for(std::uint64_t i = 0; i < count; ++i)
    {
        const auto offset = read<std::uint64_t>(at);
        const auto length = read<std::uint64_t>(at + 16);
        const std::string_view id(at + 24, length);
        at += 24 + length;
        const std::size_t triple = id.find(kTriple);
        if(triple == std::string_view::npos)
        {
            generic |= id.find("spirv") != std::string_view::npos;
            continue;
        }
        const std::string_view target = id.substr(triple + kTriple.size());
        if(target_serves(target, arch))
            return read_elf(image + offset);
        generic |= target.find("generic") != std::string_view::npos;
    }
    // The real runtime would use it; answering "no code for this arch" would be wrong.
    if(generic)
        refuse("the fat binary's only candidate is generic code, which is not supported");
    return std::nullopt;
}

// Layout of the header: magic, u16 version, u16 method, total and uncompressed size (u32 in
// version 2, u64 in version 3), u64 hash.
std::string decompress(const char* image)
{
    const auto version = read<std::uint16_t>(image + 4);
    const auto method  = read<std::uint16_t>(image + 6);
    if((version != 2 && version != 3) || method != 1)
        refuse("a compressed bundle of version " + std::to_string(version) + ", method " + std::to_string(method) +
               "; supported are versions 2 and 3 with zstd");
    const bool wide                = version == 3;
    const std::size_t total        = wide ? read<std::uint64_t>(image + 8) : read<std::uint32_t>(image + 8);
    const std::size_t uncompressed = wide ? read<std::uint64_t>(image + 16) : read<std::uint32_t>(image + 12);
    const std::size_t header       = wide ? 32 : 24;

    // At run time and only here: no header or import library of zstd is needed to build.
    void* zstd       = dlopen("libzstd.so.1", RTLD_NOW);
    using Decompress = std::size_t (*)(void*, std::size_t, const void*, std::size_t);
    const auto run   = zstd ? reinterpret_cast<Decompress>(dlsym(zstd, "ZSTD_decompress")) : nullptr;
    if(!run)
        refuse("a compressed bundle, and no libzstd.so.1 to read it with");
    std::string bytes(uncompressed, '\0');
    if(run(bytes.data(), bytes.size(), image + header, total - header) != uncompressed)
        refuse("a compressed bundle that zstd cannot read");
    return bytes;
}

} // namespace

std::optional<CodeObject> load_image(const void* image, const Arch& arch)
{
    const char* bytes = static_cast<const char*>(image);
    if(begins_with(bytes, kElf))
        return elf_serves(bytes, arch) ? std::optional(read_elf(bytes)) : std::nullopt;
    if(begins_with(bytes, kBundle))
        return read_bundle(bytes, arch);
    if(begins_with(bytes, kCompressed))
        return read_bundle(decompress(bytes).c_str(), arch);
    refuse("an image that is neither an offload bundle nor an ELF file");
}

} // namespace fake_hip
