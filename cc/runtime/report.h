// Messages on standard error, and the exceptions that carry them.
#pragma once

#include <stdexcept>
#include <string>

namespace qola_runtime {

/// A kernel is unavailable, or a command failed. The message for the user names the fault, its place and
/// its correction.
class Problem : public std::runtime_error
{
    public:
    using std::runtime_error::runtime_error;
};

/// A call of the operating system failed.
class SystemError : public Problem
{
    public:
    /// `what` is the call and its purpose, `code` its errno.
    SystemError(const std::string& what, int code);
    const int code;
};

/// Writes "qola: <text>" and a line feed in one call, so that lines of processes do not mix, with control
/// characters escaped.
void say(const std::string& text);

/// Does the same, once per text and process.
void say_once(const std::string& text);

/// Does the same, once per kind and process.
void say_once_of(const std::string& kind, const std::string& text);

} // namespace qola_runtime
