#include "tool.h"

#include "runtime/lazy/files.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>

namespace qola_runtime {
namespace {

/// Returns the subdirectories that have an index.
std::vector<std::string> modules_in(const std::string& path)
{
    std::vector<std::string> found;
    for(const std::string& name : names_in(path))
        if(is_file(path + "/" + name + "/" + kIndexFile))
            found.push_back(path + "/" + name);
    return found;
}

std::string root_for(const Arguments& arguments, const Settings& settings, const std::string& program)
{
    if(!arguments.root.empty())
        return absolute(arguments.root);
    // A bundle without a namespace has its modules directly in share/qola.
    const std::string shared        = directory_of(directory_of(program)) + "/share/qola";
    std::vector<std::string> places = {shared}, found;
    for(const std::string& name : names_in(shared))
        places.push_back(shared + "/" + name);
    std::copy_if(places.begin(), places.end(), std::back_inserter(found), [](const std::string& place) {
        return !modules_in(place).empty();
    });
    return found.size() == 1 ? found.front() : settings.root;
}

} // namespace

Tool::Tool(const Arguments& arguments, Settings given, const std::string& program)
    : arguments(arguments),
      settings(std::move(given)),
      root(root_for(arguments, settings, program)),
      trust(trust_in_owner_of(program)),
      store(settings, root.empty() ? std::vector<std::string>{} : std::vector{root + "/packs"}, program),
      obtainer(settings, store, {})
{
}

const std::vector<Sources>& Tool::modules()
{
    if(!modules_.empty())
        return modules_;
    if(root.empty())
        throw UsageError("the directory of the libraries' sources is unknown: pass --root DIR, or set QOLA_ROOT");
    for(const std::string& path : modules_in(root))
        modules_.push_back({path, read_index(path)});
    if(modules_.empty())
        throw UsageError("no directory below " + root + " has a " + kIndexFile + "; --root names another");
    return modules_;
}

Kernels Tool::selected(bool all_by_default)
{
    Selection selection = arguments.selection;
    if(selection.empty())
    {
        if(!all_by_default)
            throw UsageError(arguments.command + ": no kernel is selected; --all selects all");
        selection.all = true;
    }
    Kernels result;
    std::map<std::string, std::set<std::string>> known;
    for(const Sources& module : modules())
        for(const Kernel& kernel : module.index.kernels)
        {
            known[kernel.name].insert(kernel.arch);
            if(selection.has(kernel.name, kernel.arch))
                result.found.push_back({&module, &kernel});
        }
    const auto report = [&](const std::string& name) {
        ++result.unknown;
        say("no kernel " + name + " below " + root);
    };
    for(const auto& [name, archs] : selection.names)
    {
        if(known.count(name) == 0)
            report(name);
        else
            for(const std::string& arch : archs)
                if(known[name].count(arch) == 0)
                    report(name + " " + arch);
    }
    if(selection.leftovers > 0)
        say(std::to_string(selection.leftovers) + " lines name temporary files and were skipped");
    return result;
}

std::string Tool::compiler_at_hand()
{
    try
    {
        if(const Compiler* compiler = obtainer.compiler())
            return compiler->identity;
    }
    catch(const Problem& problem)
    {
        say_once(problem.what());
    }
    return {};
}

Library Tool::find(const ModuleKernel& kernel)
{
    const std::string& own = kernel.module->index.identity;
    if(Library found = store.find(*kernel.kernel, own))
        return found;
    const std::string at_hand = compiler_at_hand();
    return at_hand.empty() || at_hand == own ? Library{} : store.find(compiled_by(at_hand, *kernel.kernel));
}

std::set<std::string> Tool::current_entries()
{
    const std::string at_hand = compiler_at_hand();
    std::set<std::string> paths;
    for(const Sources& module : modules())
        for(const Kernel& kernel : module.index.kernels)
        {
            paths.insert(entry_path(compiled_by(module.index.identity, kernel)));
            if(!at_hand.empty())
                paths.insert(entry_path(compiled_by(at_hand, kernel)));
        }
    return paths;
}

void print(const std::string& line) { std::printf("%s\n", line.c_str()); }

} // namespace qola_runtime
