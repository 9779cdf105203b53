// Runs programs without a shell, which end at their timeout or with this process, and work in threads.
#pragma once

#include <cstddef>
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

/// Returns the number of concurrent compiles: the user's choice or, if that is 0, one per processor of
/// this process, limited by free memory. At least 1.
std::size_t compiles_at_a_time(int asked);

/// Calls `work` with each number below `count`, with `at_a_time` threads including this one, or fewer
/// if the system refuses threads. Returns after all calls. `work` must not throw.
void side_by_side(std::size_t count, std::size_t at_a_time, const std::function<void(std::size_t)>& work);

/// Runs `work` in a detached thread, or in this one if the system refuses a thread. `work` must not
/// throw, and must only use objects that live as long as the process.
void in_background(const std::function<void()>& work);

} // namespace qola_runtime
