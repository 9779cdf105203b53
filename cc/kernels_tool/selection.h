// The kernels that a command of qola-kernels selects.
#ifndef QOLA_KERNELS_TOOL_SELECTION_H
#define QOLA_KERNELS_TOOL_SELECTION_H

#include "cc/runtime/index.h"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace qola_runtime {

/// A parsed line of a list of kernels.
struct ListLine
{
    enum Kind
    {
        nothing,  ///< blank, or a comment
        leftover, ///< name of a temporary file of an interrupted compile
        kernel,
    };
    Kind kind = nothing;
    std::string name;
    std::string arch; ///< empty for all
};

/// Parses a line: a kernel's name or file (source, library or cache entry), then optionally an arch.
/// Throws Problem for more than two words.
ListLine list_line(std::string_view line);

/// Selects kernels by name, each for its archs, or for all archs if it has none.
struct Selection
{
    bool all = false;
    std::map<std::string, std::set<std::string>> names;
    std::set<std::string> archs; ///< limits the whole selection; empty for all archs
    int leftovers = 0;           ///< number of skipped lines

    bool empty() const { return !all && names.empty(); }

    /// Adds a line. Throws Problem.
    void add(std::string_view line);

    /// Adds the lines of a file, "-" for standard input. Throws Problem that names file and line.
    void add_file(const std::string& path);

    /// Returns whether it selects a kernel for an arch.
    bool has(const std::string& name, const std::string& arch) const;
};

/// A directory of sources and its index.
struct Sources
{
    std::string root;
    Index index;
};

/// A kernel of an index, with its module.
struct ModuleKernel
{
    const Sources* module;
    const Kernel* kernel;
};

/// Selected kernels in the order of the indexes, and selected names that no index has, sorted.
struct Kernels
{
    std::vector<ModuleKernel> found;
    std::vector<std::string> missing; ///< "<name>", or "<name> <arch>"
};
Kernels kernels_of(const std::vector<Sources>& modules, const Selection& selection);

} // namespace qola_runtime

#endif // QOLA_KERNELS_TOOL_SELECTION_H
