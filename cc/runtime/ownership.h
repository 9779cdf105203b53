// Who may have written a file: code is loaded only from where nobody else could put it.
#ifndef QOLA_RUNTIME_OWNERSHIP_H
#define QOLA_RUNTIME_OWNERSHIP_H

#include "files.h"

#include <string>

#include <sys/stat.h>

namespace qola_runtime {

/// Whose files are trusted.
struct Trust
{
    uid_t user;              ///< besides root
    uid_t other;             ///< as much as the user
    bool with_group = false; ///< whether a group may write
};

/// The user of this process.
Trust trust_in_user();

/// The owner of a file, too: of a library that is in the process, or of the program itself. Who
/// made that could have done worse.
Trust trust_in_owner_of(const std::string& file);

/// Why a file or directory is not to be trusted, and what mends it; empty where it is. It has to be
/// of the user or root, and writable by nobody else.
std::string
distrust(const std::string& path, const struct stat& status, const Trust& trust = trust_in_user());

/// The same of a path; empty also where nothing is there.
std::string distrust(const std::string& path, const Trust& trust = trust_in_user());

/// Why what is above a path is not to be trusted: a directory in which others may rename things,
/// because it is another user's or writable by everybody. Of a path with symbolic links in it, this
/// is asked of both ways.
std::string distrust_above(const std::string& path, const Trust& trust = trust_in_user());

/// Why nothing below a directory may be used, it itself and what is above included; empty where it
/// may, or is not there. One that is a symbolic link is the user's own choice: what counts is where it
/// leads, and who made the link.
std::string distrust_of_directory(const std::string& path, const Trust& trust = trust_in_user());

/// Makes a directory for one's own files in another one, or in /tmp where that is not to be
/// trusted or nothing can be made in it. Those that killed processes have left there are removed.
/// Throws Problem.
TemporaryDirectory make_private_directory(const std::string& parent);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_OWNERSHIP_H
