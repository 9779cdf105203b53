// Running a program: never through a shell, never longer than allowed, never longer than ourselves.
#ifndef QOLA_RUNTIME_PROCESS_H
#define QOLA_RUNTIME_PROCESS_H

#include <functional>
#include <string>
#include <vector>

namespace qola_runtime {

/// A program to run.
struct Command
{
    std::vector<std::string> arguments;   ///< the first is the program's path
    std::vector<std::string> environment; ///< NAME=value
    std::string directory;                ///< to run in
    std::string output;                   ///< file for what it prints; made, or emptied
    int timeout = 0;                      ///< seconds
};

/// How it ended.
struct Ended
{
    bool timed_out = false;
    int status     = 0; ///< as of waitpid

    bool well() const { return !timed_out && status == 0; }
    /// Such as "exit code 1", "signal 9", "no end within 1800 s".
    std::string text(int timeout) const;
};

/// Runs a program to its end, with all that it starts in a process group of its own, which is
/// killed at the timeout and when this process dies. `slow` is called once, after two seconds.
/// Throws SystemError where it cannot be started.
Ended run(const Command& command, const std::function<void()>& slow = {});

} // namespace qola_runtime

#endif // QOLA_RUNTIME_PROCESS_H
