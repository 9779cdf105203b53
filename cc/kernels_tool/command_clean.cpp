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

/// What lies in a cache of one key.
struct Group
{
    std::vector<Found> files;
    bool has_entry = false;
};

/// Removes files of one key that `is_wanted` says, unless they are being compiled; returns the
/// number of entries among them. Throws Problem.
int remove_files(const std::string& entry,
                 const Group& group,
                 int timeout,
                 const std::function<bool(const Found&)>& is_wanted)
{
    const std::string lock_path = entry + ".lock";
    // Who waits for a lock file that is gone notices.
    std::unique_ptr<FileLock> lock;
    try
    {
        lock = std::make_unique<FileLock>(lock_path, 0, [](const std::string&) {});
    }
    catch(const LockBusy&)
    {
        // Somebody compiles it: what is there now is theirs.
        return 0;
    }
    int removed    = 0;
    bool has_entry = group.has_entry;
    for(const Found& file : group.files)
    {
        if(file.kind == Found::lock || !is_wanted(file))
            continue;
        // Without locks, or on another machine that has none, it may be of a compile that goes on.
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
            "clean: nothing is selected; --stalled is what nobody would ask for, --all everything");
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
        // The lock file of an entry that is gone is nothing but that.
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
