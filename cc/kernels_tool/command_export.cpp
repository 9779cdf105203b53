#include "commands.h"

#include "output.h"

namespace qola_runtime {

int export_pack(Tool& tool)
{
    const std::string output = output_of(tool, true);
    const bool all           = tool.arguments.selection.empty();
    const Kernels kernels    = selected(tool, true);
    std::vector<Item> items;
    std::size_t absent = 0;
    for(const ModuleKernel& each : kernels.found)
    {
        if(Library found = tool.find(each))
            items.push_back(packed(tool, each, std::move(found)));
        else if(!all)
        {
            ++absent;
            say(each.kernel->name + " " + each.kernel->arch +
                " is in no cache or pack; qola-kernels build compiles it");
        }
    }
    if(absent > 0 || !kernels.missing.empty())
        return 1;
    if(items.empty())
    {
        say("no kernel to export; qola-kernels build compiles them");
        return 1;
    }
    write_pack(output, items);
    warn_of_compilers(output, kernels.found, items);
    print(std::to_string(items.size()) + " kernels written to " + output);
    return 0;
}

} // namespace qola_runtime
