// The state and the functions that the commands of qola-kernels share.
#pragma once

#include "arguments.h"
#include "runtime/lazy/obtain.h"

#include <set>
#include <string>
#include <vector>

namespace qola_runtime {

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

/// Selected kernels in the order of the indexes, and the number of selected names that no index has.
struct Kernels
{
    std::vector<ModuleKernel> found;
    int unknown = 0;
};

/// One run of the program.
class Tool
{
    public:
    /// `program`: path of this program.
    Tool(const Arguments& arguments, Settings settings, const std::string& program);

    const Arguments& arguments;
    const Settings settings;
    const std::string root; ///< has a directory per module; empty if unknown
    const Trust trust;      ///< owners whose sources may be compiled
    Store store;
    Obtainer obtainer;

    /// Returns the modules below the root. Throws UsageError without a root or module.
    const std::vector<Sources>& modules();

    /// Returns the selected kernels, or all without a selection if `all_by_default`, else throws
    /// UsageError. Reports unknown names.
    Kernels selected(bool all_by_default);

    /// Finds a kernel's library in caches and packs; empty if none has it.
    Library find(const ModuleKernel& kernel);

    /// Returns the paths of all entries below a cache that a library below the root requests.
    std::set<std::string> current_entries();

    private:
    /// Returns the identity of the installed compiler, or an empty string if no compiler can be run.
    std::string compiler_at_hand();

    std::vector<Sources> modules_;
};

/// Prints a line to standard output.
void print(const std::string& line);

// The commands. Each returns the exit code.
int build(Tool& tool);
int cache(Tool& tool);
int clean(Tool& tool);
int export_pack(Tool& tool);
int list(Tool& tool);
int pack(Tool& tool);
int verify(Tool& tool);

} // namespace qola_runtime
