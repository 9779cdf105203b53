// A pack file holds the entries of many kernels, found by key.
//
//   "QOLAPCK1", u32 number of entries, u32 bytes of the labels
//   for each entry, sorted by key: its key (32 bytes), u64 offset, u64 size
//   labels: a line "<name>\t<arch>\t<identity of its compiler>" for each entry, in the same order
//   digest (32 bytes) of all preceding bytes
//   the entries, each as in a cache, at offsets that are multiples of 16
//
// Numbers are little-endian.
#ifndef QOLA_RUNTIME_PACK_H
#define QOLA_RUNTIME_PACK_H

#include "entry.h"
#include "files.h"
#include "ownership.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace qola_runtime {

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

#endif // QOLA_RUNTIME_PACK_H
