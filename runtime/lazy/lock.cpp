#include "lock.h"

#include "text.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

namespace qola_runtime {
namespace {

using Clock = std::chrono::steady_clock;

bool lock(int fd, short type)
{
    struct flock range = {};
    range.l_type       = type;
    range.l_whence     = SEEK_SET;
    int result;
    do
        result = fcntl(fd, F_OFD_SETLK, &range);
    while(result != 0 && errno == EINTR);
    return result == 0;
}

bool is_busy(int code) { return code == EAGAIN || code == EACCES; }

/// Returns whether a path still names the open file: `qola-kernels clean` removes lock files.
bool is_named(int fd, const std::string& path)
{
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && opened.st_nlink > 0 && stat(path.c_str(), &named) == 0 &&
           opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

enum class Owner
{
    lives,
    dead,
    unknown, ///< of another machine, or not told
};

/// Parses the owner in a lock file, "process <number> on <host>".
Owner state_of(const std::string& owner)
{
    const std::vector<std::string> words = split(owner, " ");
    if(words.size() != 4 || words[3] != host_name())
        return Owner::unknown;
    const auto process = number(words[1], 1, 999999999);
    if(!process)
        return Owner::unknown;
    return process_lives(static_cast<pid_t>(*process)) ? Owner::lives : Owner::dead;
}

void write_owner(int fd, const std::string& path)
{
    try
    {
        if(ftruncate(fd, 0) == 0)
            write_all(fd, "process " + std::to_string(getpid()) + " on " + host_name() + "\n", path);
    }
    catch(const Problem&)
    {
        // The owner's name is only informative. A full disk will stop the compile.
    }
}

} // namespace

std::string host_name()
{
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    std::string name = host;
    std::replace(name.begin(), name.end(), '/', '-');
    return name;
}

bool process_lives(pid_t process) { return kill(process, 0) == 0 || errno == EPERM; }

FileLock::FileLock(const std::string& path, int wait, const std::function<void(const std::string&)>& waiting)
{
    const auto start = Clock::now();
    auto last_alive  = start;
    auto pause       = std::chrono::milliseconds(2);
    bool said        = false;
    for(;;)
    {
        if(!fd_)
            fd_ = open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
        if(!fd_)
            throw SystemError("open " + path, errno);
        if(lock(fd_.get(), F_WRLCK))
        {
            if(is_named(fd_.get(), path))
            {
                write_owner(fd_.get(), path);
                return;
            }
            fd_ = Fd();
            continue;
        }
        if(!is_busy(errno))
        {
            say_once_of("no locks",
                        "no locks in " + directory_of(directory_of(path)) + " (" + SystemError("fcntl", errno).what() +
                            "): processes may compile the same kernel at the same time");
            fd_ = Fd();
            return;
        }
        const auto waited       = Clock::now() - start;
        const std::string owner = join(split(read_start(path, 200), "\n"), " ");
        const Owner state       = state_of(owner);
        if(state != Owner::dead)
            last_alive = Clock::now();
        // A new owner holds the lock before it writes its name, so the old name may still be there.
        else if(Clock::now() - last_alive >= std::chrono::seconds(1))
            throw LockBusy(path + " is held by " + owner + ", which ended: its child still has the file open", false);
        if(waited >= std::chrono::seconds(wait))
            throw LockBusy("waited " + std::to_string(wait) + " s for " + path + ", held by " + owner +
                               "; check that process, or raise QOLA_WAIT",
                           state == Owner::lives);
        if(!said && waited >= std::chrono::seconds(2))
        {
            said = true;
            waiting(owner);
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::milliseconds(100));
        // A removed file stays locked while a process has it open.
        if(!is_named(fd_.get(), path))
            fd_ = Fd();
    }
}

FileLock::~FileLock()
{
    // Unlock before closing: a child forked by another thread may share the open file.
    if(fd_)
        lock(fd_.get(), F_UNLCK);
}

} // namespace qola_runtime
