// The commands of qola-kernels; each returns the exit code.
#ifndef QOLA_KERNELS_TOOL_TOOL_COMMANDS_H
#define QOLA_KERNELS_TOOL_TOOL_COMMANDS_H

#include "cc/runtime/obtain.h"
#include "tool_arguments.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace qola_runtime {

/// What commands work on.
class Tool
{
    public:
    /// `program`: path of this program.
    Tool(const Arguments& arguments, Settings settings, const std::string& program);

    const Arguments& arguments;
    const Settings settings;
    const std::string root; ///< has a directory for each module; empty where there is none
    Store store;
    Obtainer obtainer;

    /// The modules below the root. Throws UsageError where there is no root or no module.
    const std::vector<Sources>& modules();

    /// A row's kernel as the library's compiler compiles it, then as the one at hand does, if that
    /// is another.
    std::vector<Wanted> wanted(const Selected& row);

    /// The library of a row from a cache or a pack; empty where it is in none.
    Library find(const Selected& row);

    private:
    std::vector<Sources> modules_;
    bool asked_ = false;
    std::string other_identity_;
};

/// The commands by name.
const std::map<std::string, std::function<int(Tool&)>>& commands();

} // namespace qola_runtime

#endif // QOLA_KERNELS_TOOL_TOOL_COMMANDS_H
