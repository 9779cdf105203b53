#include "tool.h"

#include "runtime/lazy/files.h"
#include "runtime/lazy/lock.h"
#include "runtime/lazy/index.h"
#include "runtime/lazy/text.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include <unistd.h>

namespace qola_runtime {
namespace {

/// Returns the path below the cache of the entry that a file belongs to.
std::string entry_of_file(const Found& file) { return entry_path({file.name, file.arch, file.key}); }

/// Removes the files of an entry that `is_wanted` selects, unless a compile of it is running. Returns
/// the number of removed entries. Throws Problem.
int remove_files(const std::string& entry,
                 const std::vector<Found>& files,
                 int timeout,
                 const std::function<bool(const Found&)>& is_wanted)
{
    const auto is_entry = [](const Found& file) { return file.kind == Found::entry; };
    bool has_entry      = std::any_of(files.begin(), files.end(), is_entry);
    if(has_entry && std::none_of(files.begin(), files.end(), is_wanted))
        return 0;
    const std::string lock_path = entry + ".lock";
    // A process that waits for a removed lock file notices the removal.
    std::unique_ptr<FileLock> lock;
    try
    {
        lock = std::make_unique<FileLock>(lock_path, 0, [](const std::string&) {});
    }
    catch(const LockBusy&)
    {
        // Another process is compiling it and owns these files.
        return 0;
    }
    int removed = 0;
    for(const Found& file : files)
    {
        if(file.kind == Found::lock || !is_wanted(file))
            continue;
        // Without locks, here or on another machine, a compile that still runs may own it.
        if(file.kind == Found::leftover && (!lock->held() || is_of_another_machine(file.path, timeout)))
            continue;
        remove_tree(file.path);
        struct stat status;
        if(lstat(file.path.c_str(), &status) == 0)
            throw Problem("cannot remove " + file.path);
        if(is_entry(file))
        {
            ++removed;
            has_entry = false;
        }
    }
    // Without an entry, only the lock file is left.
    if(!has_entry)
        unlink(lock_path.c_str());
    return removed;
}

/// Prints and counts findings.
struct Findings
{
    int count = 0;

    /// Adds a finding, unless the text is empty; returns whether it is.
    bool add(const std::string& text)
    {
        if(text.empty())
            return true;
        ++count;
        print(text);
        return false;
    }

    /// Adds the Problem that a check throws.
    template <class Check>
    void add_problem_of(const Check& check)
    {
        try
        {
            check();
        }
        catch(const Problem& problem)
        {
            add(problem.what());
        }
    }
};

/// Checks the entries below a directory.
void verify_directory(const std::string& root, Findings& findings)
{
    findings.add(distrust_of_directory(root));
    std::set<std::string> directories;
    for(const Found& item : files_in(root))
    {
        if(directories.insert(item.name).second)
            findings.add(distrust(root + "/" + item.name));
        if(item.kind == Found::unknown)
            findings.add(item.path + " is not a file of qola");
        if(item.kind != Found::entry || !findings.add(distrust(item.path)))
            continue;
        findings.add_problem_of([&] {
            const std::string bytes = read_file(item.path);
            if(const std::string fault = fault_of_entry(bytes, {}); !fault.empty())
                findings.add(item.path + " " + fault);
            else if(const std::string key = key_in(bytes); key.substr(0, 32) != item.key)
                findings.add(item.path + " has the key " + key + ", which differs from its name");
        });
    }
}

void verify_pack(const std::string& path, Findings& findings)
{
    findings.add_problem_of([&] {
        const Pack pack(path);
        for(const auto& place : pack.places())
            findings.add_problem_of([&] { static_cast<void>(pack.find(place.first)); });
    });
}

} // namespace

int list(Tool& tool)
{
    const Kernels kernels = tool.selected(true);
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
    return kernels.unknown == 0 ? 0 : 1;
}

int cache(Tool& tool)
{
    const Arguments& arguments = tool.arguments;
    Selection selection        = arguments.selection;
    selection.all |= selection.empty();
    const auto current         = arguments.current ? tool.current_entries() : std::set<std::string>{};
    std::set<std::string> names;
    std::uint64_t bytes = 0, count = 0;
    for(const std::string& root : tool.settings.caches)
        for(const Found& item : files_in(root))
        {
            struct stat status;
            if(item.kind != Found::entry || lstat(item.path.c_str(), &status) != 0 ||
               (arguments.current && current.count(entry_of_file(item)) == 0) || !selection.has(item.name, item.arch))
                continue;
            const std::string name = item.name + " " + item.arch;
            names.insert(name);
            ++count;
            bytes += static_cast<std::uint64_t>(status.st_size);
            if(!arguments.list_format)
                print(name + "  " + std::to_string(status.st_size) + " bytes  " + item.path);
        }
    const std::string list = join({names.begin(), names.end()}, "\n") + (names.empty() ? "" : "\n");
    if(arguments.list_format)
        std::fputs(list.c_str(), stdout);
    else
        print(std::to_string(count) + " kernels, " + std::to_string(bytes) + " bytes");
    if(!arguments.write_list.empty())
        write_file(absolute(arguments.write_list), list, 0644);
    return 0;
}

int clean(Tool& tool)
{
    const bool stalled         = tool.arguments.stalled;
    const Selection& selection = tool.arguments.selection;
    const std::string& root    = tool.settings.cache;
    if(selection.empty() && !stalled)
        throw UsageError("clean: nothing is selected; select kernels, --stalled or --all");
    const auto current   = stalled ? tool.current_entries() : std::set<std::string>{};
    const auto is_wanted = [&](const Found& file) {
        return selection.has(file.name, file.arch) ||
               (stalled && (file.kind == Found::leftover || current.count(entry_of_file(file)) == 0));
    };
    std::map<std::string, std::vector<Found>> files_of_entry;
    std::set<std::string> directories;
    for(Found& file : files_in(root))
    {
        directories.insert(root + "/" + file.name);
        if(file.kind != Found::unknown)
            files_of_entry[entry_of_file(file)].push_back(std::move(file));
    }
    int removed = 0, failed = 0;
    for(const auto& [entry, files] : files_of_entry)
        try
        {
            removed += remove_files(root + "/" + entry, files, tool.settings.compile_timeout, is_wanted);
        }
        catch(const Problem& problem)
        {
            ++failed;
            say(problem.what());
        }
    for(const std::string& directory : directories)
        rmdir(directory.c_str());
    print(std::to_string(removed) + " removed");
    return failed == 0 ? 0 : 1;
}

int verify(Tool& tool)
{
    Findings findings;
    if(tool.arguments.operands.empty())
    {
        for(const std::string& root : tool.settings.caches)
            verify_directory(root, findings);
        // Machines without sources can check their caches too.
        if(!tool.root.empty())
            findings.add_problem_of([&] {
                for(const Sources& module : tool.modules())
                    for(const auto& faults : {faults_of_directory(module.root, module.index, tool.trust),
                                              faults_of_files(module.root, module.index)})
                        for(const std::string& fault : faults)
                            findings.add(fault);
            });
    }
    for(const std::string& given : tool.arguments.operands)
    {
        const std::string path = absolute(given);
        if(!is_directory(path))
        {
            verify_pack(path, findings);
            continue;
        }
        verify_directory(path, findings);
        for(const std::string& name : names_in(path))
            if(ends_with(name, ".qpack"))
                verify_pack(path + "/" + name, findings);
    }
    return findings.count == 0 ? 0 : 1;
}

} // namespace qola_runtime
