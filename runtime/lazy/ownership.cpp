#include "ownership.h"

#include "text.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace qola_runtime {
namespace {

std::string facts(const struct stat& status)
{
    char mode[16];
    std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(status.st_mode & 07777));
    return std::string("(mode ") + mode + ", owner " + std::to_string(status.st_uid) + ")";
}

/// Who has the root directory: root. In a user namespace root may be shown as nobody, as all are
/// who are not in it, and cannot be told from them.
bool is_owner_of_all(uid_t user)
{
    struct stat status;
    return stat("/", &status) == 0 && status.st_uid == user;
}

bool trusts(const Trust& trust, uid_t user) { return user == 0 || user == trust.user || user == trust.other; }

/// The owner of a link can change its target after the check.
std::string distrust_link(const std::string& path, const Trust& trust)
{
    struct stat status;
    if(lstat(path.c_str(), &status) != 0 || !S_ISLNK(status.st_mode) || trusts(trust, status.st_uid) ||
       is_owner_of_all(status.st_uid))
        return {};
    return path + " is another user's symbolic link " + facts(status) + "; choose another place";
}

std::string distrust_ancestors(std::string path, const Trust& trust)
{
    while(path != "/" && path != ".")
    {
        path = directory_of(path);
        struct stat status;
        if(const std::string why = distrust_link(path, trust); !why.empty())
            return why;
        if(stat(path.c_str(), &status) != 0)
            continue;
        if(!trusts(trust, status.st_uid) && !is_owner_of_all(status.st_uid))
            return path + " is another user's " + facts(status) + "; choose another place";
        if((status.st_mode & S_IWOTH) != 0 && (status.st_mode & S_ISVTX) == 0)
            return path + " is writable by everybody " + facts(status) + "; chmod o-w " + path;
    }
    return {};
}

/// How names of private directories begin.
const std::string kPrivate = "qola-lazy-";

/// Removes unlocked directories, which killed processes left.
void remove_abandoned(const std::string& place)
{
    for(const std::string& name : names_in(place))
    {
        const std::string path = place + "/" + name;
        struct stat status;
        if(!starts_with(name, kPrivate) || lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) ||
           status.st_uid != geteuid())
            continue;
        const Fd unused = open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
        if(unused && flock(unused.get(), LOCK_EX | LOCK_NB) == 0)
            remove_tree(path);
    }
}

/// Locks a directory that was just made; an empty Fd where the file system has no locks. Returns
/// nothing where another process took it for an abandoned one.
std::optional<Fd> lock_own(const std::string& path)
{
    Fd lock = open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if(!lock && errno == ENOENT)
        return std::nullopt;
    while(lock && flock(lock.get(), LOCK_EX) != 0)
        if(errno != EINTR)
            return Fd();
    struct stat status;
    if(lock && (fstat(lock.get(), &status) != 0 || status.st_nlink == 0))
        return std::nullopt;
    return lock;
}

TemporaryDirectory make_in(const std::string& place)
{
    remove_abandoned(place);
    for(;;)
    {
        std::string path = place + "/" + kPrivate + "XXXXXX";
        if(mkdtemp(&path[0]) == nullptr)
            throw SystemError("mkdtemp " + path, errno);
        if(std::optional<Fd> lock = lock_own(path))
            return TemporaryDirectory(path, std::move(*lock));
    }
}

} // namespace

Trust trust_in_user() { return {geteuid(), geteuid()}; }

Trust trust_in_owner_of(const std::string& file)
{
    struct stat status;
    Trust trust = trust_in_user();
    if(stat(file.c_str(), &status) == 0)
    {
        trust.other      = status.st_uid;
        trust.with_group = true;
    }
    return trust;
}

std::string distrust(const std::string& path, const struct stat& status, const Trust& trust)
{
    if(S_ISLNK(status.st_mode))
        return path + " is a symbolic link; remove it";
    if(!trusts(trust, status.st_uid))
        return path + " is another user's " + facts(status) + "; chown " + std::to_string(trust.user) + " " + path;
    if((status.st_mode & S_IWOTH) != 0 || (!trust.with_group && (status.st_mode & S_IWGRP) != 0))
        return path + " is writable by others " + facts(status) + "; chmod go-w " + path;
    return {};
}

std::string distrust(const std::string& path, const Trust& trust)
{
    struct stat status;
    if(lstat(path.c_str(), &status) != 0)
        return {};
    return distrust(path, status, trust);
}

std::string distrust_above(const std::string& path, const Trust& trust)
{
    const std::string given = absolute(path);
    const std::string why   = distrust_ancestors(given, trust);
    if(!why.empty())
        return why;
    const std::string real = real_path(given);
    return real.empty() || real == given ? std::string{} : distrust_ancestors(real, trust);
}

std::string distrust_of_directory(const std::string& path, const Trust& trust)
{
    struct stat status;
    if(stat(path.c_str(), &status) != 0)
        return {};
    for(const std::string& why : {distrust_link(path, trust), distrust(path, status, trust)})
        if(!why.empty())
            return why;
    return distrust_above(path, trust);
}

TemporaryDirectory make_private_directory(const std::string& parent)
{
    std::string why = distrust_above(parent + "/x");
    if(why.empty())
    {
        try
        {
            return make_in(parent);
        }
        catch(const SystemError& error)
        {
            why = error.what();
        }
    }
    const std::string place = "/tmp";
    std::string more        = distrust_above(place + "/x");
    if(more.empty() && parent != place)
    {
        try
        {
            say_once(why + " (TMPDIR); /tmp is used");
            return make_in(place);
        }
        catch(const SystemError& error)
        {
            more = error.what();
        }
    }
    throw Problem("no place for temporary files (TMPDIR): " + why + (more.empty() ? "" : "; ") + more);
}

} // namespace qola_runtime
