#include "commands.h"

#include "cc/runtime/files.h"
#include "cc/runtime/text.h"
#include "output.h"

#include <optional>
#include <set>

namespace qola_runtime {
namespace {

std::vector<std::string> operands_of(const Arguments& arguments)
{
    std::vector<std::string> operands;
    for(const std::string& operand : arguments.operands)
    {
        if(!starts_with(operand, "@"))
        {
            operands.push_back(operand);
            continue;
        }
        const std::string text = read_file(operand.substr(1));
        for(const std::string_view line : lines(text))
            if(!line.empty())
                operands.emplace_back(line);
    }
    return operands;
}

/// The kernel that an operand NAME:ARCH=FILE.so names.
const Kernel& kernel_of(const Index& index, const std::string& operand, std::size_t equals)
{
    const std::string named = operand.substr(0, equals);
    for(const Kernel& kernel : index.kernels)
        if(kernel.name + ":" + kernel.arch == named)
            return kernel;
    throw UsageError("pack: the index of " + index.module + " has no " + named);
}

} // namespace

int pack(Tool& tool)
{
    const Arguments& arguments = tool.arguments;
    const std::string output   = output_of(tool, true);
    std::optional<Index> index;
    std::vector<Item> items;
    std::set<std::string> named;
    for(const std::string& operand : operands_of(arguments))
    {
        const std::size_t equals = operand.find('=');
        if(equals == std::string::npos)
        {
            index = index_of(read_file(operand), operand);
            continue;
        }
        if(!index)
            throw UsageError("pack: expected a kernels.index before " + operand);
        const Kernel& kernel = kernel_of(*index, operand, equals);
        const CompiledKernel own = compiled_by(index->identity, kernel);
        if(!named.insert(own.key).second)
            throw UsageError("pack: " + kernel.name + " for " + kernel.arch + " is given twice");
        const std::string file = operand.substr(equals + 1);
        items.push_back({own, read_file(file).size() + kTrailerBytes, [file, own] {
                             return entry_of(read_file(file), own.key);
                         }});
    }
    write_pack(output, items);
    return 0;
}

} // namespace qola_runtime
