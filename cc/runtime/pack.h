// A pack in one file: entries of many kernels, found by key.
//
//   "QOLAPCK1", u32 number of entries, u32 bytes of the labels
//   for each entry, sorted by key: its key (32 bytes), u64 offset, u64 size
//   labels: a line "<name>\t<arch>\t<identity of its compiler>" for each entry, in the same order
//   digest (32 bytes) of all before it
//   the entries, each as it lies in a cache, at offsets that are multiples of 16
//
// Numbers have their lowest byte first.
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
    /// One entry's place.
    struct Place
    {
        std::string name;
        std::string arch;
        std::string identity; ///< of the compiler; empty where the pack does not tell
        std::uint64_t offset;
        std::uint64_t size;
    };

    /// Opens a pack and reads its table. Throws Problem where it is damaged or not to be trusted.
    explicit Pack(const std::string& path, const Trust& trust = trust_in_user());

    /// The bytes of an entry, empty where the pack has none of this key. Throws Problem where they
    /// are damaged.
    std::string find(const std::string& key) const;

    /// What the pack has of a kernel as some other compiler compiled it: its key and compiler; an
    /// empty key where there is none.
    CompiledKernel of_another_compiler(const Kernel& kernel) const;

    const std::map<std::string, Place>& places() const { return places_; }
    const std::string& path() const { return path_; }

    private:
    std::string path_;
    Fd fd_;
    std::map<std::string, Place> places_;
};

/// An entry on its way into a pack. A library has thousands: their bytes are not held, but read
/// when their turn comes.
struct Item
{
    CompiledKernel kernel;
    std::uint64_t size;
    std::function<std::string()> read;
};

/// Writes a pack: the same bytes for the same entries, in whatever order they come. The file
/// appears whole or not at all. Throws Problem.
void write_pack_file(const std::string& path, const std::vector<Item>& items);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_PACK_H
