// Which kernels a command of qola-kernels is about.
#ifndef QOLA_KERNELS_TOOL_SELECTION_H
#define QOLA_KERNELS_TOOL_SELECTION_H

#include "cc/runtime/index.h"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace qola_runtime {

/// A line of a list of kernels.
struct ListLine
{
    enum Kind
    {
        nothing,  ///< blank, or a comment
        leftover, ///< name of a temporary file that was left behind
        kernel,
    };
    Kind kind = nothing;
    std::string name;
    std::string arch; ///< empty for all
};

/// Reads a line: a kernel's name, or the name of a file of it (its source, a library, an entry of a
/// cache), then perhaps an arch. Throws Problem for more words than two.
ListLine list_line(std::string_view line);

/// Kernels by name, each for some archs; for all where there is none.
struct Selection
{
    bool all = false;
    std::map<std::string, std::set<std::string>> names;
    std::set<std::string> archs; ///< of all that is selected; empty for all
    int leftovers = 0;           ///< lines that were passed over

    bool empty() const { return !all && names.empty(); }

    /// Adds a line. Throws Problem.
    void add(std::string_view line);

    /// Adds the lines of a file, "-" for standard input. Throws Problem that names file and line.
    void add_file(const std::string& path);

    /// Whether a kernel for an arch is selected.
    bool has(const std::string& name, const std::string& arch) const;
};

/// A directory of sources and its index.
struct Sources
{
    std::string root;
    Index index;
};

/// A kernel of an index, and the module that it is of.
struct ModuleKernel
{
    const Sources* module;
    const Kernel* kernel;
};

/// The kernels of indexes that are selected, in their order, and names that none has, sorted.
struct Kernels
{
    std::vector<ModuleKernel> found;
    std::vector<std::string> missing; ///< "<name>", or "<name> <arch>"
};
Kernels kernels_of(const std::vector<Sources>& modules, const Selection& selection);

} // namespace qola_runtime

#endif // QOLA_KERNELS_TOOL_SELECTION_H
