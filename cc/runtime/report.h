// What is said on standard error, and the exception that carries what is to be said.
#ifndef QOLA_RUNTIME_REPORT_H
#define QOLA_RUNTIME_REPORT_H

#include <stdexcept>
#include <string>

namespace qola_runtime {

/// A kernel cannot be had, or a command cannot be carried out. The message is for people: what,
/// where, and what to do.
class Problem : public std::runtime_error
{
    public:
    using std::runtime_error::runtime_error;
};

/// A call of the operating system failed.
class SystemError : public Problem
{
    public:
    /// `what` is the call and what it was for, `code` its errno.
    SystemError(const std::string& what, int code);
    const int code;
};

/// Writes "qola: <text>" and a line's end, in one call, so that lines of processes do not mix, and
/// with nothing in it that a terminal obeys.
void say(const std::string& text);

/// The same, but each text once in a process.
void say_once(const std::string& text);

/// The same, but once in a process for all texts of a kind.
void say_once_of(const std::string& kind, const std::string& text);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_REPORT_H
