// The state that the commands of qola-kernels share: settings, caches, packs and modules.
#ifndef QOLA_KERNELS_TOOL_TOOL_H
#define QOLA_KERNELS_TOOL_TOOL_H

#include "cc/runtime/obtain.h"
#include "arguments.h"

#include <set>
#include <string>
#include <vector>

namespace qola_runtime {

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

    /// Finds a kernel's library in caches and packs; empty if none has it.
    Library find(const ModuleKernel& kernel);

    /// Returns the relative paths of all cache entries that a library below the root requests.
    std::set<std::string> current_paths();

    private:
    const std::string& compiler_at_hand();

    std::vector<Sources> modules_;
    bool asked_ = false;
    std::string at_hand_;
};

} // namespace qola_runtime

#endif // QOLA_KERNELS_TOOL_TOOL_H
