#include "tool.h"

#include "runtime/lazy/files.h"
#include "runtime/lazy/process.h"
#include "runtime/lazy/text.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <optional>
#include <set>

#include <unistd.h>

namespace qola_runtime {
namespace {

/// Makes a pack's item of a library. A library from a cache or pack is read again when it is written.
Item packed(Tool& tool, const ModuleKernel& kernel, Library library)
{
    const CompiledKernel own{kernel.kernel->name, kernel.kernel->arch, key_in(library.bytes), library.identity};
    const std::uint64_t size = library.bytes.size();
    if(library.made && library.path.empty())
        return {own, size, [bytes = std::move(library.bytes)] { return bytes; }};
    return {own, size, [&tool, own] { return tool.store.find(own).bytes; }};
}

/// Writes a pack: a file if the name ends with .qpack, else a directory, to which it adds entries. A
/// failure leaves no new files. Throws Problem.
void write_pack(const std::string& output, const std::vector<Item>& items)
{
    if(ends_with(output, ".qpack"))
    {
        write_pack_file(output, items);
        return;
    }
    std::vector<std::string> written;
    try
    {
        for(const Item& item : items)
        {
            const std::string path = output + "/" + entry_path(item.kernel);
            make_directories(directory_of(path), 0755);
            const bool is_new = !is_file(path);
            write_file(path, item.read(), 0644);
            if(is_new)
                written.push_back(path);
        }
    }
    catch(...)
    {
        for(const std::string& path : written)
            unlink(path.c_str());
        throw;
    }
}

/// Writes a pack of selected kernels. Warns if a directory gets kernels of compilers other than the
/// libraries': its entries do not name their compiler, so a library only finds those of its own compiler
/// or of an installed one.
void write_kernels(const Arguments& arguments, const Kernels& kernels, const std::vector<Item>& items)
{
    const std::string output = absolute(arguments.output);
    write_pack(output, items);
    if(ends_with(output, ".qpack"))
        return;
    std::set<std::string> own;
    for(const ModuleKernel& each : kernels.found)
        own.insert(key_of(*each.kernel, each.module->index.identity));
    for(const Item& item : items)
        if(own.count(item.kernel.key) == 0)
        {
            say(output + " has kernels of " + item.kernel.identity +
                ", not of the libraries' compiler: machines without it find them only in a file .qpack");
            return;
        }
}

/// Throws UsageError without --output.
void check_output(const Arguments& arguments)
{
    if(arguments.output.empty())
        throw UsageError(arguments.command + ": --output is missing");
}

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

int build(Tool& tool)
{
    const Arguments& arguments = tool.arguments;
    const Kernels kernels      = tool.selected(false);
    std::vector<Item> items(arguments.output.empty() ? 0 : kernels.found.size());
    std::atomic<int> compiled{0}, cached{0}, failed{0}, done{0};
    const auto make = [&](const ModuleKernel& each, Item* item) {
        const Kernel& kernel = *each.kernel;
        const Module module{each.module->index.identity, each.module->root, {}, tool.trust};
        const auto start = std::chrono::steady_clock::now();
        Library library =
            arguments.force ? tool.obtainer.compile(kernel, module, true) : tool.obtainer.obtain(kernel, module);
        if(library.made && library.path.empty() && item == nullptr)
            throw Problem(kernel.text() + " was compiled, but could not be stored");
        ++(library.made ? compiled : cached);
        const int number = ++done;
        if(library.made || tool.settings.verbose)
            print("[" + std::to_string(number) + "/" + std::to_string(kernels.found.size()) + "] " + kernel.name + " " +
                  kernel.arch + ": " + library.origin + ", " + time_since(start));
        std::fflush(stdout);
        if(item != nullptr)
            *item = packed(tool, each, std::move(library));
    };
    const int jobs = arguments.jobs > 0 ? arguments.jobs : tool.settings.jobs;
    side_by_side(kernels.found.size(), compiles_at_a_time(jobs), [&](std::size_t at) {
        try
        {
            make(kernels.found[at], items.empty() ? nullptr : &items[at]);
        }
        catch(const std::exception& error)
        {
            ++done;
            ++failed;
            say(error.what());
        }
    });
    print(std::to_string(compiled) + " compiled, " + std::to_string(cached) + " cached, " + std::to_string(failed) +
          " failed" + (kernels.unknown == 0 ? "" : ", " + std::to_string(kernels.unknown) + " unknown"));
    if(failed > 0 || kernels.unknown > 0)
        return 1;
    if(!arguments.output.empty())
        write_kernels(arguments, kernels, items);
    return 0;
}

int export_pack(Tool& tool)
{
    const Arguments& arguments = tool.arguments;
    check_output(arguments);
    const Kernels kernels = tool.selected(true);
    std::vector<Item> items;
    bool lacks = kernels.unknown > 0;
    for(const ModuleKernel& each : kernels.found)
    {
        if(Library found = tool.find(each))
            items.push_back(packed(tool, each, std::move(found)));
        else if(!arguments.selection.empty())
        {
            lacks = true;
            say(each.kernel->name + " " + each.kernel->arch +
                " is in no cache or pack; qola-kernels build compiles it");
        }
    }
    if(lacks)
        return 1;
    if(items.empty())
    {
        say("no kernel to export; qola-kernels build compiles them");
        return 1;
    }
    write_kernels(arguments, kernels, items);
    print(std::to_string(items.size()) + " kernels written to " + absolute(arguments.output));
    return 0;
}

int pack(Tool& tool)
{
    const Arguments& arguments = tool.arguments;
    check_output(arguments);
    std::optional<Index> index;
    std::vector<Item> items;
    std::set<std::string> named;
    for(const std::string& operand : operands_of(arguments))
    {
        const std::size_t equals = operand.find('=');
        if(equals == std::string::npos)
        {
            index = index_of(read_file(operand, kMostOfText), operand);
            continue;
        }
        if(!index)
            throw UsageError("pack: expected a kernels.index before " + operand);
        const Kernel& kernel     = kernel_of(*index, operand, equals);
        const CompiledKernel own = compiled_by(index->identity, kernel);
        if(!named.insert(own.key).second)
            throw UsageError("pack: " + kernel.text() + " is given twice");
        const std::string file = operand.substr(equals + 1);
        items.push_back(
            {own, read_file(file).size() + kTrailerBytes, [file, own] { return entry_of(read_file(file), own.key); }});
    }
    write_pack(absolute(arguments.output), items);
    return 0;
}

} // namespace qola_runtime
