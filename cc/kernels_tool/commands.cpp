#include "commands.h"

#include "cc/runtime/files.h"

#include <cstdio>

namespace qola_runtime {
namespace {

void say_missing(const Tool& tool, const std::vector<std::string>& missing)
{
    for(const std::string& name : missing)
        say("no kernel " + name + " below " + tool.root);
    if(const int count = tool.arguments.selection.leftovers)
        say(std::to_string(count) + " lines name temporary files and were skipped");
}

} // namespace

void print(const std::string& line) { std::printf("%s\n", line.c_str()); }

Kernels selected(Tool& tool, bool all_by_default)
{
    Selection selection = tool.arguments.selection;
    if(selection.empty())
    {
        if(!all_by_default)
            throw UsageError(tool.arguments.command +
                             ": no kernel is selected; --all selects all");
        selection.all = true;
    }
    Kernels kernels = kernels_of(tool.modules(), selection);
    say_missing(tool, kernels.missing);
    return kernels;
}

std::string output_of(const Tool& tool, bool needed)
{
    if(needed && tool.arguments.output.empty())
        throw UsageError(tool.arguments.command + ": --output is missing");
    return tool.arguments.output.empty() ? "" : absolute(tool.arguments.output);
}

std::string path_below(const std::string& root, const Found& item)
{
    return item.path.substr(root.size() + 1);
}

} // namespace qola_runtime
