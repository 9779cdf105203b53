// Compiled kernels: entries, and packs of them.
//
// An entry is a kernel library in a cache or pack, with a trailer that holds its key and digest. A pack file
// holds the entries of many kernels, found by key:
//
//   "QOLAPCK1", u32 number of entries, u32 bytes of the labels
//   for each entry, sorted by key: its key (32 bytes), u64 offset, u64 size
//   labels: a line "<name>\t<arch>\t<identity of its compiler>" for each entry, in the same order
//   digest (32 bytes) of all preceding bytes
//   the entries, each as in a cache, at offsets that are multiples of 16
//
// Numbers are little-endian.
#pragma once

#include "files.h"
#include "ownership.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace qola_runtime {

/// A kernel instance for one arch. The last four members describe its compilation; they come from an
/// index and are empty in a library's own table.
struct Kernel
{
    std::string name;
    std::string arch;
    std::string code; ///< digest of everything that determines its code, except the compiler
    std::string package = {};
    std::string headers = {};
    std::string entry   = {};
    std::string source  = {}; ///< digest of its source

    /// For messages.
    std::string text() const { return name + " for " + arch; }

    /// Paths below the root.
    std::string source_path() const { return "src/" + package + "/" + name + ".cpp"; }
    std::string entry_path() const { return "entries/" + entry + ".cpp"; }
};

/// A kernel for one compiler.
struct CompiledKernel
{
    std::string name;
    std::string arch;
    std::string key;           ///< 64 hex digits
    std::string identity = {}; ///< of the compiler that the key is for
};

/// Computes a kernel's key from its code's digest, the arch and the compiler's identity.
std::string key_of(const Kernel& kernel, std::string_view identity);

/// Returns a kernel for the compiler of an identity.
CompiledKernel compiled_by(const std::string& identity, const Kernel& kernel);

/// Returns the path of an entry below a cache root or pack directory: NAME/ARCH-KEY.so.
std::string entry_path(const CompiledKernel& kernel);

/// Size of a trailer: the magic, the ABI, the key, and the digest of all preceding bytes.
constexpr std::size_t kTrailerBytes = 80;

/// Makes an entry from a kernel library's bytes.
std::string entry_of(std::string_view library, std::string_view key);

/// Returns the defect of an entry, as a predicate after its name; empty for a valid entry. An empty
/// key matches any.
std::string fault_of_entry(std::string_view bytes, std::string_view key);

/// Returns the key in the trailer of a valid entry.
std::string key_in(std::string_view entry);

/// An open pack.
class Pack
{
    public:
    /// The place of an entry.
    struct Place
    {
        std::string name;
        std::string arch;
        std::string identity; ///< of the compiler; empty if the pack does not record it
        std::uint64_t offset;
        std::uint64_t size;
    };

    /// Opens a pack and reads its table. Throws Problem if it is damaged or not trusted.
    explicit Pack(const std::string& path, const Trust& trust = trust_in_user());

    /// Returns the bytes of an entry, empty if the pack lacks the key. Throws Problem if they are
    /// damaged.
    std::string find(const std::string& key) const;

    /// Maps the code of an entry, aligned as in the file, for the life of the process; the key must be the digest of
    /// the code. Throws Problem if the code has another digest.
    std::string_view map_code(const std::string& key) const;

    /// Finds a kernel's entry of any compiler; returns its key and compiler, or an empty key.
    CompiledKernel of_another_compiler(const Kernel& kernel) const;

    const std::map<std::string, Place>& places() const { return places_; }
    const std::string& path() const { return path_; }

    private:
    std::string path_;
    Fd fd_;
    std::map<std::string, Place> places_;
};

/// An entry to write into a pack. A library has thousands, so their bytes are read one at a time.
struct Item
{
    CompiledKernel kernel;
    std::uint64_t size;
    std::function<std::string()> read;
};

/// Writes a pack with the same bytes for the same entries, in any order, and renames it when complete.
/// Throws Problem.
void write_pack_file(const std::string& path, const std::vector<Item>& items);

} // namespace qola_runtime
