// The state that the commands of qola-kernels share: settings, caches, packs and modules.
#ifndef QOLA_KERNELS_TOOL_TOOL_H
#define QOLA_KERNELS_TOOL_TOOL_H

#include "cc/runtime/obtain.h"
#include "arguments.h"

#include <set>
#include <string>
#include <vector>

namespace qola_runtime {

/// A call of the program.
class Tool
{
    public:
    /// `program`: path of this program.
    Tool(const Arguments& arguments, Settings settings, const std::string& program);

    const Arguments& arguments;
    const Settings settings;
    const std::string root; ///< has a directory for each module; empty where there is none
    const Trust trust;      ///< whose sources are compiled
    Store store;
    Obtainer obtainer;

    /// The modules below the root. Throws UsageError where there is no root or no module.
    const std::vector<Sources>& modules();

    /// The library of a kernel from a cache or a pack; empty where it is in none.
    Library find(const ModuleKernel& kernel);

    /// Paths, below a cache's root, of all entries that a library below the root would ask for.
    std::set<std::string> current_paths();

    private:
    const std::string& compiler_at_hand();

    std::vector<Sources> modules_;
    bool asked_ = false;
    std::string at_hand_;
};

} // namespace qola_runtime

#endif // QOLA_KERNELS_TOOL_TOOL_H
