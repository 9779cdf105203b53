// File functions that handle EINTR and throw no exceptions of the standard library.
#pragma once

#include "text.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/stat.h>
#include <sys/types.h>

namespace qola_runtime {

/// Owns a file descriptor; -1 for none.
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

/// Owns a temporary directory and removes it with its contents. Its lock shows others that it is in use.
class TemporaryDirectory
{
    public:
    TemporaryDirectory() = default;
    explicit TemporaryDirectory(std::string path, Fd lock = {}) : path(std::move(path)), lock_(std::move(lock)) {}
    TemporaryDirectory(const TemporaryDirectory&)            = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    ~TemporaryDirectory();
    const std::string path;

    private:
    const Fd lock_;
};

/// Opens a file with O_CLOEXEC; returns an empty Fd and sets errno on failure.
Fd open_file(const std::string& path, int flags, mode_t mode = 0600);

/// Reads `size` bytes of an open file from an offset, fewer at its end. Throws SystemError.
std::string read_at(int fd, std::uint64_t offset, std::size_t size, const std::string& path);

/// Most bytes of a file that is read as a whole, such as a kernel library. A file with holes may claim any size.
constexpr std::uint64_t kMostOfFile = 1 << 30;

/// Most bytes of an index, or of a source in its directory.
constexpr std::uint64_t kMostOfText = 64 << 20;

/// Reads all bytes of an open regular file. Throws SystemError, also if it has more than `most` bytes.
std::string read_all(int fd, const std::string& path, std::uint64_t most = kMostOfFile);

/// Reads all bytes of a file. Throws SystemError, also if it has more than `most` bytes.
std::string read_file(const std::string& path, std::uint64_t most = kMostOfFile);

/// Reads the first `most` bytes of a file, or all of a shorter one; empty if it cannot be read. Unlike
/// read_file it also reads files in /proc, which report no size.
std::string read_start(const std::string& path, std::size_t most);

/// Throws SystemError.
void write_all(int fd, std::string_view bytes, const std::string& path);

/// Writes and flushes a temporary file, then renames it. Throws SystemError.
void write_file(const std::string& path, std::string_view bytes, mode_t mode);

/// Does the same with the data that `fill` passes to its argument.
void write_file_by(const std::string& path,
                   mode_t mode,
                   const std::function<void(const std::function<void(std::string_view)>&)>& fill);

/// Flushes a file or directory to disk. Throws SystemError.
void flush(int fd, const std::string& path);
void flush_directory(const std::string& path);

/// Renames a file, replacing the target. A file server may report a failure although it renamed the
/// file, so the target is checked after a failure. Throws SystemError.
void move_over(const std::string& from, const std::string& to);

/// Creates a missing directory and its missing parents. Throws SystemError.
void make_directories(const std::string& path, mode_t mode);

/// Removes a file or directory tree as far as possible, without following symbolic links.
void remove_tree(const std::string& path) noexcept;

/// Lists the names in a directory, sorted; empty if it cannot be read.
std::vector<std::string> names_in(const std::string& directory);

bool is_file(const std::string& path);
bool is_directory(const std::string& path);

/// Returns whether a file exists and is executable.
bool is_program(const std::string& path);

/// Makes a path absolute without resolving links.
std::string absolute(const std::string& path);

/// Returns the absolute path of the library or program that contains this function, with the working directory of the
/// time when it was loaded; empty if it is unknown.
const std::string& own_file();

/// Resolves all symbolic links of a path; empty if it does not exist.
std::string real_path(const std::string& path);

/// Returns the absolute target of a symbolic link; empty for other files.
std::string target_of(const std::string& path);

/// Return the part before, and after, the last slash.
std::string directory_of(const std::string& path);
std::string base_name(const std::string& path);

} // namespace qola_runtime
