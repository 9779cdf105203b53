// The command line of qola-kernels, and the kernels that it selects.
#pragma once

#include "runtime/lazy/text.h"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace qola_runtime {

class Tool;

/// A wrong command line.
class UsageError : public Problem
{
    public:
    using Problem::Problem;
};

/// Selects kernels by name, each for its archs, or for all archs if it has none.
struct Selection
{
    bool all = false;
    std::map<std::string, std::set<std::string>> names;
    std::set<std::string> archs; ///< limits the whole selection; empty for all archs
    int leftovers = 0;           ///< number of lines that name temporary files of interrupted compiles

    bool empty() const { return !all && names.empty(); }

    /// Adds a line of a list: a kernel's name or file (source, library or cache entry), then optionally
    /// an arch. Skips comments and counts leftovers. Throws Problem for more than two words.
    void add(std::string_view line);

    /// Adds the lines of a file, "-" for standard input. Throws Problem that names file and line.
    void add_file(const std::string& path);

    /// Returns whether it selects a kernel for an arch.
    bool has(const std::string& name, const std::string& arch) const;
};

/// A parsed command line.
struct Arguments
{
    std::string root;
    std::string cache_dir;
    std::string command;
    int (*run)(Tool&) = nullptr; ///< runs the command and returns the exit code
    bool help         = false;
    Selection selection;
    bool list_format = false;
    int jobs         = 0; ///< 0: as the settings say
    bool force       = false;
    std::string output;
    bool stalled = false;
    bool current = false;
    std::string write_list;
    std::vector<std::string> operands; ///< of verify and pack
};

/// Parses a command line without the program's name, and reads the lists that it names. Throws
/// UsageError or Problem.
Arguments arguments_of(const std::vector<std::string>& words);

/// Returns the help of a command, or of the program if the command is empty or unknown.
std::string help_of(const std::string& command);

} // namespace qola_runtime
