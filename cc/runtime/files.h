// Files and directories, without exceptions of the standard library and with EINTR handled.
#ifndef QOLA_RUNTIME_FILES_H
#define QOLA_RUNTIME_FILES_H

#include "report.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/stat.h>
#include <sys/types.h>

namespace qola_runtime {

/// A file descriptor that is closed with its owner; -1 for none.
class Fd
{
    public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd&& other) noexcept : fd_(other.release()) {}
    Fd& operator=(Fd&& other) noexcept;
    ~Fd();
    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    int release();

    private:
    int fd_ = -1;
};

/// A directory that is removed, with all in it, with its owner. The lock tells others that it has one.
class TemporaryDirectory
{
    public:
    TemporaryDirectory() = default;
    explicit TemporaryDirectory(std::string path, Fd lock = {}) :
        path(std::move(path)), lock_(std::move(lock))
    {
    }
    TemporaryDirectory(const TemporaryDirectory&)            = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    ~TemporaryDirectory();
    const std::string path;

    private:
    const Fd lock_;
};

/// Opens a file, always with O_CLOEXEC; an empty Fd and errno where that fails.
Fd open_file(const std::string& path, int flags, mode_t mode = 0600);

/// The bytes of an open file from an offset on; fewer than `size` where it ends. Throws
/// SystemError.
std::string read_at(int fd, std::uint64_t offset, std::size_t size, const std::string& path);

/// All bytes of an open regular file. Throws SystemError.
std::string read_all(int fd, const std::string& path);

/// All bytes of a file. Throws SystemError.
std::string read_file(const std::string& path);

/// Throws SystemError.
void write_all(int fd, std::string_view bytes, const std::string& path);

/// Writes a file that takes its name once it is whole and on the disk. Throws SystemError.
void write_file(const std::string& path, std::string_view bytes, mode_t mode);

/// The same, of what `fill` gives to the function that it is called with.
void write_file_by(const std::string& path,
                   mode_t mode,
                   const std::function<void(const std::function<void(std::string_view)>&)>& fill);

/// Flushes what was written to a file or directory. Throws SystemError.
void flush(int fd, const std::string& path);
void flush_directory(const std::string& path);

/// Renames over what is there. A file server may report a rename as failed that it carried out, so
/// that the target is looked at before that is believed. Throws SystemError.
void move_over(const std::string& from, const std::string& to);

/// Makes a directory and those above it, where they are missing. Throws SystemError.
void make_directories(const std::string& path, mode_t mode);

/// Removes a file or directory with all in it, as far as that goes. No symbolic link is followed.
void remove_tree(const std::string& path) noexcept;

/// Sorted names in a directory; none where it cannot be read.
std::vector<std::string> names_in(const std::string& directory);

bool is_file(const std::string& path);
bool is_directory(const std::string& path);

/// Whether a file is there and may be run.
bool is_program(const std::string& path);

/// A path from the root on; links in it stay.
std::string absolute(const std::string& path);

/// A path without symbolic links; empty where there is none.
std::string real_path(const std::string& path);

/// Where a symbolic link leads, from the root on; empty where it is none.
std::string target_of(const std::string& path);

/// What is before the last slash, and what is after it.
std::string directory_of(const std::string& path);
std::string base_name(const std::string& path);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_FILES_H
