// A cache root or pack directory, which stores entries as files.
#ifndef QOLA_RUNTIME_CACHE_H
#define QOLA_RUNTIME_CACHE_H

#include "entry.h"
#include "ownership.h"

#include <string>
#include <vector>

#include <sys/types.h>

namespace qola_runtime {

/// Result of a cache lookup.
struct Looked
{
    bool found = false;
    std::string path;  ///< of the entry, existing or not
    std::string bytes; ///< the whole entry, if found
    std::string fault; ///< a sentence, if a file exists that must not be loaded
};

/// Finds an entry below a root, and checks its digest and ownership.
Looked look_up(const std::string& root,
               const CompiledKernel& kernel,
               const Trust& trust = trust_in_user());

/// Modes for new files and directories below a root, as permissive as the root's.
struct Modes
{
    mode_t directory;
    mode_t file;
};
Modes modes_below(const std::string& root);

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

} // namespace qola_runtime

#endif // QOLA_RUNTIME_CACHE_H
