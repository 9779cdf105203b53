// The command line of qola-kernels.
#ifndef QOLA_KERNELS_TOOL_ARGUMENTS_H
#define QOLA_KERNELS_TOOL_ARGUMENTS_H

#include "cc/runtime/report.h"
#include "selection.h"

#include <string>
#include <vector>

namespace qola_runtime {

class Tool;

/// A wrong command line.
class UsageError : public Problem
{
    public:
    using Problem::Problem;
};

/// A parsed command line.
struct Arguments
{
    std::string root;
    std::string cache_dir;
    std::string command;
    int (*run)(Tool&) = nullptr; ///< runs the command and returns the exit code
    bool help = false;
    Selection selection;
    bool list_format = false;
    int jobs         = 0; ///< 0: as the settings say
    bool force       = false;
    std::string output;
    bool stalled = false;
    bool current = false;
    std::string write_list;
    std::vector<std::string> operands; ///< of verify, pack and identity
};

/// Parses a command line without the program's name, and reads the lists that it names. Throws
/// UsageError or Problem.
Arguments arguments_of(const std::vector<std::string>& words);

/// Returns the help of a command, or of the program if the command is empty or unknown.
std::string help_of(const std::string& command);

} // namespace qola_runtime

#endif // QOLA_KERNELS_TOOL_ARGUMENTS_H
