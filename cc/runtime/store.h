// Searches kernels in the cache roots, then in the packs.
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

/// A kernel library that was found or compiled.
struct Library
{
    std::string path;   ///< file to load; if empty, load the bytes
    std::string bytes;  ///< whole entry
    std::string origin; ///< description of its source, for messages
    bool made = false;  ///< compiled just now
    std::string identity = {};     ///< of its compiler

    explicit operator bool() const { return !bytes.empty(); }
};

/// The cache roots and packs of a process.
class Store
{
    public:
    /// `beside` lists the library's own packs, searched last. They may belong to the owner of the library
    /// or the program, and be writable by a group.
    Store(const Settings& settings, std::vector<std::string> beside, const std::string& file);

    /// Finds a kernel; an empty library if there is none. Reports damaged or untrusted files once and
    /// skips them.
    Library find(const CompiledKernel& kernel);

    /// Finds a kernel of a compiler, else one of any compiler in a pack file. A machine without a compiler
    /// does not know the compiler of its packs, but the packs record it.
    Library find(const Kernel& kernel, const std::string& identity);

    private:
    /// A pack file or directory.
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
