// A file lock that ends with its owner.
#pragma once

#include "files.h"

#include <functional>
#include <string>

#include <sys/types.h>

namespace qola_runtime {

/// Returns this machine's name, in a form for file names.
std::string host_name();

/// Returns whether this machine has a process with an ID, of any user.
bool process_lives(pid_t process);

/// Another process held a lock beyond the timeout.
class LockBusy : public Problem
{
    public:
    LockBusy(const std::string& what, bool lives) : Problem(what), lives(lives) {}
    /// Whether the owner is a running process of this machine. If it ended, a child may still hold the
    /// open file.
    const bool lives;
};

/// Holds a lock on an open file (F_OFD_SETLK). The kernel releases it when the owner dies. It also
/// excludes threads of the same process, and file servers support it.
class FileLock
{
    public:
    /// Waits for the lock at most `wait` seconds, then throws LockBusy with lock and owner. It throws at
    /// once if the owner was a process of this machine that ended. Calls `waiting` once with the owner,
    /// after two seconds. Throws SystemError if the file cannot be created. Without support for locks
    /// it reports that once and holds nothing: locks only avoid repeated work.
    FileLock(const std::string& path, int wait, const std::function<void(const std::string&)>& waiting);
    ~FileLock();
    FileLock(const FileLock&)            = delete;
    FileLock& operator=(const FileLock&) = delete;

    /// Whether the lock is held; false without support for locks.
    bool held() const { return static_cast<bool>(fd_); }

    private:
    Fd fd_;
};

} // namespace qola_runtime
