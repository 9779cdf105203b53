// Where kernels are looked for: the cache roots, then the packs.
#ifndef QOLA_RUNTIME_STORE_H
#define QOLA_RUNTIME_STORE_H

#include "cache.h"
#include "pack.h"
#include "settings.h"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace qola_runtime {

/// A kernel library that was found or made.
struct Library
{
    std::string path;   ///< file to be loaded; empty: the bytes
    std::string bytes;  ///< whole entry
    std::string origin; ///< for people: where it came from
    bool made = false;  ///< compiled just now
    std::string identity = {};     ///< of its compiler

    explicit operator bool() const { return !bytes.empty(); }
};

/// The cache roots and packs of a process.
class Store
{
    public:
    /// `beside`: packs that come with the library, looked at last. They may be of the owner of a
    /// file, the library or the program itself, and of a group.
    Store(const Settings& settings, std::vector<std::string> beside, const std::string& file);

    /// Looks for a kernel; an empty library where there is none. What is damaged or not to be
    /// trusted is said once and passed over.
    Library find(const CompiledKernel& kernel);

    /// Looks for a kernel of a compiler, then for what a pack file has of another. A machine that
    /// compiles nothing does not know which compiler its packs are of; they do.
    Library find(const Kernel& kernel, const std::string& identity);

    private:
    /// A pack in either form.
    struct Source
    {
        std::string directory;
        std::unique_ptr<Pack> pack;
        Trust trust;
    };

    void open_packs();
    void open_pack(const std::string& path, const Trust& trust);

    const Settings& settings_;
    const std::vector<std::string> beside_;
    const Trust trust_beside_;
    std::once_flag opened_;
    std::vector<Source> packs_;
};

} // namespace qola_runtime

#endif // QOLA_RUNTIME_STORE_H
