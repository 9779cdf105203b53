#include "commands.h"

namespace qola_runtime {

int list(Tool& tool)
{
    const Kernels kernels = selected(tool, true);
    for(const ModuleKernel& each : kernels.found)
    {
        const std::string name = each.kernel->name + " " + each.kernel->arch;
        if(tool.arguments.list_format)
        {
            print(name);
            continue;
        }
        const Library found = tool.find(each);
        print(name + "  " + (found ? found.origin : "not there yet"));
    }
    return kernels.missing.empty() ? 0 : 1;
}

} // namespace qola_runtime
