// Checks ownership: code is only loaded from files that no untrusted user could have written.
#pragma once

#include "files.h"

#include <string>

#include <sys/stat.h>

namespace qola_runtime {

/// The trusted owners.
struct Trust
{
    uid_t user;              ///< besides root
    uid_t other;             ///< trusted like the user
    bool with_group = false; ///< group write permission is accepted
};

/// Trusts the user of this process.
Trust trust_in_user();

/// Also trusts the owner of a file: a library of this process, or the program. That owner already
/// controls code of this process.
Trust trust_in_owner_of(const std::string& file);

/// Returns why a file or directory is not trusted, and how to correct that; empty if it is trusted. It
/// must belong to the user or root, and nobody else may write to it.
std::string distrust(const std::string& path, const struct stat& status, const Trust& trust = trust_in_user());

/// Does the same for a path; also empty if it does not exist.
std::string distrust(const std::string& path, const Trust& trust = trust_in_user());

/// Returns why a directory above a path is not trusted: others could rename entries in it, because it
/// belongs to another user or is writable by everybody. For a path with symbolic links, the directories
/// of the links and of their targets are checked.
std::string distrust_above(const std::string& path, const Trust& trust = trust_in_user());

/// Returns why files below a directory are not trusted, considering it and its parents; empty if they
/// are, or it does not exist. A symbolic link is the user's own choice: its target and its owner count.
std::string distrust_of_directory(const std::string& path, const Trust& trust = trust_in_user());

/// Creates a private directory in another one, or in /tmp if that one is not trusted or not writable.
/// Removes such directories of killed processes. Throws Problem.
TemporaryDirectory make_private_directory(const std::string& parent);

} // namespace qola_runtime
