// Runs programs without a shell. They end at their timeout, or with this process.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace qola_runtime {

/// A program to run, with its limits.
struct Command
{
    std::vector<std::string> arguments;   ///< the first is the program's path
    std::vector<std::string> environment; ///< NAME=value
    std::string directory;                ///< to run in
    std::string output;                   ///< file for its output, created or truncated
    int timeout = 0;                      ///< seconds
};

/// The end of a program.
struct Ended
{
    bool timed_out = false;
    int status     = 0; ///< as of waitpid

    bool well() const { return !timed_out && status == 0; }
    /// Such as "exit code 1", "signal 9", "no end within 1800 s".
    std::string text(int timeout) const;
};

/// Runs a program and its children in a new process group, and waits for the end. The group is killed at
/// the timeout and when this process dies. Calls `slow` once after two seconds. Throws SystemError if
/// the program cannot be started.
Ended run(const Command& command, const std::function<void()>& slow = {});

} // namespace qola_runtime
