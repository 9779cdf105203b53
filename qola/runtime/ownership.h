// Who may have written a file: code is loaded only from where nobody else could put it.
#ifndef QOLA_RUNTIME_OWNERSHIP_H
#define QOLA_RUNTIME_OWNERSHIP_H

#include <string>

#include <sys/stat.h>

namespace qola_runtime {

/// Why a file or directory is not to be trusted, and what mends it; empty where it is. It has to be
/// of the user or root, and writable by nobody else.
std::string distrust(const std::string& path, const struct stat& status, uid_t user);

/// The same of a path, for the user of this process; empty also where nothing is there.
std::string distrust(const std::string& path);

/// Why what is above a path is not to be trusted: a directory in which others may rename things,
/// because it is another user's or writable by everybody. Of a path with symbolic links in it, this is
/// asked of both ways.
std::string distrust_above(const std::string& path);

/// Makes a directory for one's own files in another one, or in /tmp where that is not to be trusted.
/// Throws Problem.
std::string make_private_directory(const std::string& parent);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_OWNERSHIP_H
