// A lock that processes hold on a file, and that ends with its owner.
#ifndef QOLA_RUNTIME_LOCK_H
#define QOLA_RUNTIME_LOCK_H

#include "files.h"

#include <functional>
#include <string>

#include <sys/types.h>

namespace qola_runtime {

/// Name of this machine, as it is a part of file names.
std::string host_name();

/// Whether this machine has a process of this number, whoever's.
bool process_lives(pid_t process);

/// Somebody else holds a lock for longer than one waits.
class LockBusy : public Problem
{
    public:
    LockBusy(const std::string& what, bool lives) : Problem(what), lives(lives) {}
    /// Whether the owner is a process of this machine that is there. Where not, a child of it may
    /// have the open file, for as long as that one runs.
    const bool lives;
};

/// Holds a lock file locked. It is a lock of the open file (F_OFD_SETLK): the kernel drops it when
/// the owner dies, however it does; it keeps threads of one process apart, too; and file servers
/// know it.
class FileLock
{
    public:
    /// Waits for the lock at most `wait` seconds, and then throws LockBusy that names lock and
    /// owner; at once where the owner is a process of this machine that is no more. `waiting` is
    /// called once with the owner, after two seconds. Throws SystemError where the file cannot be
    /// made; where there is no locking, that is said once and nothing is held: a lock spares work,
    /// it keeps nothing right.
    FileLock(const std::string& path,
             int wait,
             const std::function<void(const std::string&)>& waiting);
    ~FileLock();
    FileLock(const FileLock&)            = delete;
    FileLock& operator=(const FileLock&) = delete;

    /// Whether the lock is held; false where there is no locking.
    bool held() const { return static_cast<bool>(fd_); }

    private:
    Fd fd_;
};

} // namespace qola_runtime

#endif // QOLA_RUNTIME_LOCK_H
