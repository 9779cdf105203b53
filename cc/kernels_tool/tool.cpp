#include "tool.h"

#include "cc/runtime/files.h"

namespace qola_runtime {
namespace {

std::vector<std::string> directories_in(const std::string& path, const std::string& with)
{
    std::vector<std::string> found;
    for(const std::string& name : names_in(path))
        if(is_file(path + "/" + name + with))
            found.push_back(path + "/" + name);
    return found;
}

/// Returns whether a directory has a subdirectory of a module.
bool has_modules(const std::string& path)
{
    return !directories_in(path, std::string("/") + kIndexFile).empty();
}

std::string
root_for(const Arguments& arguments, const Settings& settings, const std::string& program)
{
    if(!arguments.root.empty())
        return absolute(arguments.root);
    const std::string shared = directory_of(directory_of(program)) + "/share/qola";
    std::vector<std::string> found;
    // A bundle without a namespace has its modules directly in share/qola.
    if(has_modules(shared))
        found.push_back(shared);
    for(const std::string& name : names_in(shared))
        if(has_modules(shared + "/" + name))
            found.push_back(shared + "/" + name);
    return found.size() == 1 ? found.front() : settings.root;
}

} // namespace

Tool::Tool(const Arguments& arguments, Settings given, const std::string& program)
    : arguments(arguments),
      settings(std::move(given)),
      root(root_for(arguments, settings, program)),
      trust(trust_in_owner_of(program)),
      store(settings,
            root.empty() ? std::vector<std::string>{} : std::vector<std::string>{root + "/packs"},
            program),
      obtainer(settings, store, {})
{
}

const std::vector<Sources>& Tool::modules()
{
    if(!modules_.empty())
        return modules_;
    if(root.empty())
        throw UsageError("the directory of the libraries' sources is unknown: pass --root DIR, or set QOLA_ROOT");
    const std::string index = std::string("/") + kIndexFile;
    for(const std::string& path : directories_in(root, index))
        modules_.push_back({path, read_index(path)});
    if(modules_.empty())
        throw UsageError("no directory below " + root + " has a " + kIndexFile +
                         "; --root names another");
    return modules_;
}

/// Returns the identity of the installed compiler; empty if there is none or it cannot be run.
const std::string& Tool::compiler_at_hand()
{
    if(asked_)
        return at_hand_;
    asked_ = true;
    try
    {
        if(const Compiler* compiler = obtainer.compiler())
            at_hand_ = compiler->identity;
    }
    catch(const Problem& problem)
    {
        say_once(problem.what());
    }
    return at_hand_;
}

Library Tool::find(const ModuleKernel& kernel)
{
    const std::string& built   = kernel.module->index.identity;
    const std::string& at_hand = compiler_at_hand();
    if(Library found = store.find(*kernel.kernel, built))
        return found;
    if(at_hand.empty() || at_hand == built)
        return {};
    return store.find(compiled_by(at_hand, *kernel.kernel));
}

std::set<std::string> Tool::current_paths()
{
    const std::string& at_hand = compiler_at_hand();
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

} // namespace qola_runtime
