// Searches kernels in the caches, whose roots store entries as files, then in the packs.
#pragma once

#include "ownership.h"
#include "pack.h"
#include "settings.h"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <sys/types.h>

namespace qola_runtime {

/// Result of a cache lookup.
struct Looked
{
    std::string path;  ///< of the entry, existing or not
    std::string bytes; ///< the whole entry; empty if the store lacks it
    std::string fault; ///< a sentence, if a file exists that must not be loaded
};

/// Finds an entry below a root, and checks its digest and ownership.
Looked look_up(const std::string& root, const CompiledKernel& kernel, const Trust& trust = trust_in_user());

/// Returns the mode of new files below a root, or of new directories: as permissive as the root's.
mode_t mode_below(const std::string& root, bool directory);

/// Creates a missing root and the directory of a kernel. Throws Problem.
void prepare(const std::string& root, const std::string& name);

/// A file or directory below a root, parsed from its name.
struct Found
{
    enum Kind
    {
        entry,
        lock,
        leftover, ///< of an interrupted compile
        unknown,
    };
    Kind kind;
    std::string path;
    std::string name; ///< the kernel instance
    std::string arch;
    std::string key; ///< of an entry, lock or leftover: its first 32 digits
};

/// Returns all files and directories below a root, sorted.
std::vector<Found> files_in(const std::string& root);

/// Returns whether a leftover may belong to a running compile on another machine: its name contains
/// another machine, and it is at most `timeout` seconds old.
bool is_of_another_machine(const std::string& leftover, int timeout);

/// A kernel library that was found or compiled.
struct Library
{
    std::string path;             ///< file to load; if empty, load the bytes
    std::string bytes;            ///< whole entry
    std::string origin;           ///< description of its source, for messages
    bool made            = false; ///< compiled just now
    std::string identity = {};    ///< of its compiler

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
