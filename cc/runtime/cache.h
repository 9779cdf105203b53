// A cache root, or a pack that is a directory: entries as files.
#ifndef QOLA_RUNTIME_CACHE_H
#define QOLA_RUNTIME_CACHE_H

#include "entry.h"
#include "ownership.h"

#include <string>
#include <vector>

#include <sys/types.h>

namespace qola_runtime {

/// What a look into a cache found.
struct Looked
{
    bool found = false;
    std::string path;  ///< of the entry, whether it is there or not
    std::string bytes; ///< of the whole entry, where it is found
    std::string fault; ///< a sentence, where something is there that is not to be loaded
};

/// Looks for an entry below a root, and whether it is whole and nobody else's.
Looked look_up(const std::string& root,
               const CompiledKernel& kernel,
               const Trust& trust = trust_in_user());

/// Modes of what is made below a root: as open to others as the root is.
struct Modes
{
    mode_t directory;
    mode_t file;
};
Modes modes_below(const std::string& root);

/// Makes a root, where it is missing, and the directory of a kernel. Throws Problem.
void prepare(const std::string& root, const std::string& name);

/// A file or directory below a root, as its name tells.
struct Found
{
    enum Kind
    {
        entry,
        lock,
        leftover, ///< of a compile that did not end
        unknown,
    };
    Kind kind;
    std::string path;
    std::string name; ///< the kernel instance
    std::string arch;
    std::string key; ///< of an entry, lock or leftover: its first 32 digits
};

/// All that is below a root, sorted.
std::vector<Found> files_in(const std::string& root);


/// Whether a leftover may be of a compile that goes on, on another machine: it names one, and is no
/// older than `timeout` seconds.
bool is_of_another_machine(const std::string& leftover, int timeout);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_CACHE_H
