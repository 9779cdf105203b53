#include "commands.h"

#include "cc/runtime/files.h"
#include "cc/runtime/lock.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include <unistd.h>

namespace qola_runtime {
namespace {

/// The files of one key in a cache.
struct Group
{
    std::vector<Found> files;
    bool has_entry = false;
};

/// Removes the files of one key that `is_wanted` selects, unless a compile of it is running. Returns
/// the number of removed entries. Throws Problem.
int remove_files(const std::string& entry,
                 const Group& group,
                 int timeout,
                 const std::function<bool(const Found&)>& is_wanted)
{
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
    int removed    = 0;
    bool has_entry = group.has_entry;
    for(const Found& file : group.files)
    {
        if(file.kind == Found::lock || !is_wanted(file))
            continue;
        // Without locks, here or on another machine, a compile that still runs may own it.
        if(file.kind == Found::leftover &&
           (!lock->held() || is_of_another_machine(file.path, timeout)))
            continue;
        remove_tree(file.path);
        struct stat status;
        if(lstat(file.path.c_str(), &status) == 0)
            throw Problem("cannot remove " + file.path);
        if(file.kind == Found::entry)
        {
            ++removed;
            has_entry = false;
        }
    }
    if(!has_entry)
        unlink(lock_path.c_str());
    return removed;
}

} // namespace

int clean(Tool& tool)
{
    const Arguments& arguments = tool.arguments;
    const Selection& selection = arguments.selection;
    const std::string& root    = tool.settings.cache;
    if(selection.empty() && !arguments.stalled)
        throw UsageError(
            "clean: nothing is selected; select kernels, --stalled or --all");
    const std::set<std::string> current =
        arguments.stalled ? tool.current_paths() : std::set<std::string>{};
    const auto is_wanted = [&](const Found& file) {
        return selection.has(file.name, file.arch) ||
               (arguments.stalled &&
                (file.kind == Found::leftover || current.count(path_below(root, file)) == 0));
    };
    std::map<std::string, Group> groups;
    std::set<std::string> directories;
    for(Found& file : files_in(root))
    {
        directories.insert(root + "/" + file.name);
        if(file.kind == Found::unknown)
            continue;
        Group& group = groups[root + "/" + entry_path({file.name, file.arch, file.key})];
        group.has_entry |= file.kind == Found::entry;
        group.files.push_back(std::move(file));
    }
    int removed = 0, failed = 0;
    for(const auto& [entry, group] : groups)
    {
        const auto& files = group.files;
        // Without an entry, only the lock file is left: remove it.
        if(group.has_entry && std::none_of(files.begin(), files.end(), is_wanted))
            continue;
        try
        {
            removed += remove_files(entry, group, tool.settings.compile_timeout, is_wanted);
        }
        catch(const Problem& problem)
        {
            ++failed;
            say(problem.what());
        }
    }
    for(const std::string& directory : directories)
        rmdir(directory.c_str());
    print(std::to_string(removed) + " removed");
    return failed == 0 ? 0 : 1;
}

} // namespace qola_runtime
