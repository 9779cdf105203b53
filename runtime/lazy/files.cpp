#include "files.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

namespace qola_runtime {

Fd& Fd::operator=(Fd&& other) noexcept
{
    if(this != &other)
    {
        if(fd_ >= 0)
            close(fd_);
        fd_ = other.release();
    }
    return *this;
}

Fd::~Fd()
{
    if(fd_ >= 0)
        close(fd_);
}

int Fd::release()
{
    const int fd = fd_;
    fd_          = -1;
    return fd;
}

TemporaryDirectory::~TemporaryDirectory()
{
    if(!path.empty())
        remove_tree(path);
}

Fd open_file(const std::string& path, int flags, mode_t mode)
{
    for(;;)
    {
        const int fd = open(path.c_str(), flags | O_CLOEXEC, mode);
        if(fd >= 0 || errno != EINTR)
            return Fd(fd);
    }
}

std::string read_at(int fd, std::uint64_t offset, std::size_t size, const std::string& path)
{
    std::string bytes(size, '\0');
    std::size_t at = 0;
    while(at < size)
    {
        const ssize_t got = pread(fd, &bytes[at], size - at, static_cast<off_t>(offset + at));
        if(got < 0 && errno == EINTR)
            continue;
        if(got < 0)
            throw SystemError("read " + path, errno);
        if(got == 0)
            break;
        at += static_cast<std::size_t>(got);
    }
    bytes.resize(at);
    return bytes;
}

std::string read_all(int fd, const std::string& path, std::uint64_t most)
{
    struct stat status;
    if(fstat(fd, &status) != 0)
        throw SystemError("stat " + path, errno);
    if(!S_ISREG(status.st_mode))
        throw SystemError("read " + path, S_ISDIR(status.st_mode) ? EISDIR : EINVAL);
    if(static_cast<std::uint64_t>(status.st_size) > most)
        throw SystemError("read " + path, EFBIG);
    return read_at(fd, 0, static_cast<std::size_t>(status.st_size), path);
}

std::string read_file(const std::string& path, std::uint64_t most)
{
    const Fd fd = open_file(path, O_RDONLY | O_NONBLOCK);
    if(!fd)
        throw SystemError("open " + path, errno);
    return read_all(fd.get(), path, most);
}

std::string read_start(const std::string& path, std::size_t most)
{
    try
    {
        const Fd fd = open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
        return fd ? read_at(fd.get(), 0, most, path) : std::string{};
    }
    catch(const Problem&)
    {
        return {};
    }
}

namespace {

/// Makes a write beyond the file size limit fail instead of ending the process.
class SizeLimit
{
    public:
    SizeLimit()
    {
        sigemptyset(&signal_);
        sigaddset(&signal_, SIGXFSZ);
        pthread_sigmask(SIG_BLOCK, &signal_, &before_);
    }
    ~SizeLimit()
    {
        const timespec now = {};
        // The writing thread gets the signal.
        if(sigismember(&before_, SIGXFSZ) == 0)
            sigtimedwait(&signal_, nullptr, &now);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    SizeLimit(const SizeLimit&)            = delete;
    SizeLimit& operator=(const SizeLimit&) = delete;

    private:
    sigset_t signal_, before_;
};

} // namespace

void write_all(int fd, std::string_view bytes, const std::string& path)
{
    const SizeLimit limit;
    while(!bytes.empty())
    {
        const ssize_t written = write(fd, bytes.data(), bytes.size());
        if(written < 0 && errno == EINTR)
            continue;
        if(written < 0)
            throw SystemError("write " + path, errno);
        bytes.remove_prefix(static_cast<std::size_t>(written));
    }
}

void write_file(const std::string& path, std::string_view bytes, mode_t mode)
{
    write_file_by(path, mode, [&](const auto& write) { write(bytes); });
}

void write_file_by(const std::string& path,
                   mode_t mode,
                   const std::function<void(const std::function<void(std::string_view)>&)>& fill)
{
    static std::atomic<unsigned> count{0};
    const std::string temporary = path + ".tmp." + std::to_string(getpid()) + "." + std::to_string(count++);
    try
    {
        const Fd fd = open_file(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
        if(!fd)
            throw SystemError("create " + temporary, errno);
        fill([&](std::string_view bytes) { write_all(fd.get(), bytes, temporary); });
        // Set the mode regardless of the umask.
        fchmod(fd.get(), mode);
        flush(fd.get(), temporary);
        move_over(temporary, path);
        flush_directory(directory_of(path));
    }
    catch(...)
    {
        unlink(temporary.c_str());
        throw;
    }
}

void flush(int fd, const std::string& path)
{
    // EINVAL: the file system does not support it and has no data to lose.
    while(fsync(fd) != 0)
        if(errno != EINTR)
        {
            if(errno == EINVAL || errno == ENOSYS)
                return;
            throw SystemError("fsync " + path, errno);
        }
}

void flush_directory(const std::string& path)
{
    if(const Fd fd = open_file(path, O_RDONLY | O_DIRECTORY))
        flush(fd.get(), path);
}

void move_over(const std::string& from, const std::string& to)
{
    struct stat before, after;
    const bool known = lstat(from.c_str(), &before) == 0;
    if(rename(from.c_str(), to.c_str()) == 0)
        return;
    const int code = errno;
    if(known && lstat(to.c_str(), &after) == 0 && before.st_ino == after.st_ino && before.st_dev == after.st_dev)
        return;
    throw SystemError("rename " + from + " to " + to, code);
}

void make_directories(const std::string& path, mode_t mode)
{
    for(std::size_t at = 0; at != std::string::npos;)
    {
        at                     = path.find('/', at + 1);
        const std::string part = path.substr(0, at);
        if(mkdir(part.c_str(), mode) == 0 || errno == EEXIST)
            continue;
        const int code = errno;
        // A read-only file system or directory reports that also for an existing directory.
        if(!is_directory(part))
            throw SystemError("mkdir " + part, code);
    }
    if(!is_directory(path))
        throw SystemError("mkdir " + path, ENOTDIR);
}

void remove_tree(const std::string& path) noexcept
try
{
    struct stat status;
    if(lstat(path.c_str(), &status) != 0)
        return;
    if(!S_ISDIR(status.st_mode))
    {
        unlink(path.c_str());
        return;
    }
    for(const std::string& name : names_in(path))
        remove_tree(path + "/" + name);
    rmdir(path.c_str());
}
catch(...)
{
    // Out of memory: the remaining files are found later as leftovers.
}

std::vector<std::string> names_in(const std::string& directory)
{
    std::vector<std::string> names;
    DIR* handle = opendir(directory.c_str());
    if(handle == nullptr)
        return names;
    while(const dirent* found = readdir(handle))
        if(const std::string name = found->d_name; name != "." && name != "..")
            names.push_back(name);
    closedir(handle);
    std::sort(names.begin(), names.end());
    return names;
}

bool is_file(const std::string& path)
{
    struct stat status;
    return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

bool is_directory(const std::string& path)
{
    struct stat status;
    return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool is_program(const std::string& path) { return is_file(path) && access(path.c_str(), X_OK) == 0; }

std::string absolute(const std::string& path)
{
    if(!path.empty() && path.front() == '/')
        return path;
    char* here = getcwd(nullptr, 0);
    if(here == nullptr)
        return path;
    const std::string result = std::string(here) + "/" + path;
    std::free(here);
    return result;
}

std::string real_path(const std::string& path)
{
    char* found = realpath(path.c_str(), nullptr);
    if(found == nullptr)
        return {};
    const std::string result = found;
    std::free(found);
    return result;
}

std::string target_of(const std::string& path)
{
    char target[4096];
    const ssize_t size = readlink(path.c_str(), target, sizeof target);
    if(size <= 0 || size == static_cast<ssize_t>(sizeof target))
        return {};
    const std::string found(target, static_cast<std::size_t>(size));
    return found.front() == '/' ? found : directory_of(path) + "/" + found;
}

std::string directory_of(const std::string& path)
{
    const std::size_t slash = path.rfind('/');
    if(slash == std::string::npos)
        return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

} // namespace qola_runtime
