#include "tool_commands.h"

#include "cc/runtime/files.h"
#include "cc/runtime/identity.h"
#include "cc/runtime/lock.h"
#include "cc/runtime/ownership.h"
#include "cc/runtime/pack.h"
#include "cc/runtime/text.h"
#include "tool_output.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <optional>
#include <set>
#include <thread>

#include <unistd.h>

namespace qola_runtime {
namespace {

void print(const std::string& line) { std::printf("%s\n", line.c_str()); }

std::vector<std::string> directories_in(const std::string& path, const std::string& with)
{
    std::vector<std::string> found;
    for(const std::string& name : names_in(path))
        if(is_file(path + "/" + name + with))
            found.push_back(path + "/" + name);
    return found;
}

/// Whether a directory has one for a module.
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
    // A bundle without a namespace has its modules there.
    if(has_modules(shared))
        found.push_back(shared);
    for(const std::string& name : names_in(shared))
        if(has_modules(shared + "/" + name))
            found.push_back(shared + "/" + name);
    return found.size() == 1 ? found.front() : settings.root;
}

void say_missing(const Tool& tool, const std::vector<std::string>& missing)
{
    for(const std::string& name : missing)
        say("there is no kernel " + name + " below " + tool.root);
    if(const int count = tool.arguments.selection.leftovers)
        say(std::to_string(count) + " lines were names of temporary files, and passed over");
}

/// The rows that are selected, all where nothing is. Throws UsageError where something has to be.
Rows selected(Tool& tool, bool all_by_default)
{
    Selection selection = tool.arguments.selection;
    if(selection.empty())
    {
        if(!all_by_default)
            throw UsageError(tool.arguments.command +
                             ": no kernel is selected; --all is all of them");
        selection.all = true;
    }
    Rows rows = rows_of(tool.modules(), selection);
    say_missing(tool, rows.missing);
    return rows;
}

int list(Tool& tool)
{
    const Rows rows = selected(tool, true);
    for(const Selected& row : rows.rows)
    {
        const std::string what = row.kernel->name + " " + row.kernel->arch;
        if(tool.arguments.list_format)
        {
            print(what);
            continue;
        }
        const Library found = tool.find(row);
        print(what + "  " + (found ? found.origin : "not there yet"));
    }
    return rows.missing.empty() ? 0 : 1;
}

std::string output_of(const Tool& tool, bool needed)
{
    if(needed && tool.arguments.output.empty())
        throw UsageError(tool.arguments.command + ": --output is missing");
    return tool.arguments.output.empty() ? "" : absolute(tool.arguments.output);
}

/// A library on its way into a pack. What lies in a cache or pack is read again when it is written.
Item packed(Tool& tool, const Selected& row, Library library)
{
    const Wanted wanted{
        row.kernel->name, row.kernel->arch, key_in(library.bytes), library.identity};
    const std::uint64_t size = library.bytes.size();
    if(library.made && library.path.empty())
        return {wanted, size, [bytes = std::move(library.bytes)] { return bytes; }};
    return {wanted, size, [&tool, wanted] { return tool.store.find(wanted).bytes; }};
}

/// A directory does not tell of which compilers its entries are: libraries find those of their own
/// alone, unless they ask one that is at hand.
void warn_of_compilers(const std::string& output,
                       const std::vector<Selected>& rows,
                       const std::vector<Item>& items)
{
    if(ends_with(output, ".qpack"))
        return;
    std::set<std::string> own;
    for(const Selected& row : rows)
        own.insert(key_of(row.kernel->code, row.kernel->arch, row.module->index.identity));
    for(const Item& item : items)
        if(own.count(item.wanted.key) == 0)
        {
            say(output + " has kernels of " + item.wanted.identity +
                ", not of the libraries' compiler: machines without it find them only in a file "
                ".qpack");
            return;
        }
}

int build(Tool& tool)
{
    const std::string output = output_of(tool, false);
    const Rows rows          = selected(tool, false);
    const std::size_t total  = rows.rows.size();
    std::vector<Item> items(output.empty() ? 0 : total);
    std::atomic<std::size_t> next{0}, done{0};
    std::atomic<int> compiled{0}, cached{0}, failed{0};
    const auto work = [&] {
        for(std::size_t at; (at = next++) < total;)
        {
            const Selected& row  = rows.rows[at];
            const Kernel& kernel = *row.kernel;
            const auto start     = std::chrono::steady_clock::now();
            const Request request{kernel.name,
                                  kernel.arch,
                                  kernel.code,
                                  row.module->index.identity,
                                  row.module->root,
                                  {}};
            try
            {
                Library library = tool.arguments.force ? tool.obtainer.compile_anew(request)
                                                       : tool.obtainer.obtain(request);
                if(library.made && library.path.empty() && output.empty())
                    throw Problem(kernel.name + " for " + kernel.arch +
                                  " was compiled, but not kept");
                ++(library.made ? compiled : cached);
                const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
                if(library.made || tool.settings.verbose)
                    print("[" + std::to_string(++done) + "/" + std::to_string(total) + "] " +
                          kernel.name + " " + kernel.arch + ": " + library.origin + ", " +
                          duration(took.count()));
                else
                    ++done;
                std::fflush(stdout);
                if(!output.empty())
                    items[at] = packed(tool, row, std::move(library));
            }
            catch(const std::exception& error)
            {
                ++done;
                ++failed;
                say(error.what());
            }
        }
    };
    const unsigned processors = std::max(1u, std::thread::hardware_concurrency());
    const std::size_t jobs =
        tool.arguments.jobs > 0 ? static_cast<std::size_t>(tool.arguments.jobs) : processors;
    std::vector<std::thread> threads;
    for(std::size_t at = 0; at < std::min(jobs, total); ++at)
        threads.emplace_back(work);
    for(std::thread& thread : threads)
        thread.join();
    print(std::to_string(compiled) + " compiled, " + std::to_string(cached) + " cached, " +
          std::to_string(failed) + " failed" +
          (rows.missing.empty() ? "" : ", " + std::to_string(rows.missing.size()) + " unknown"));
    if(failed > 0 || !rows.missing.empty())
        return 1;
    if(!output.empty())
    {
        write_pack(output, items);
        warn_of_compilers(output, rows.rows, items);
    }
    return 0;
}

int export_pack(Tool& tool)
{
    const std::string output = output_of(tool, true);
    const bool all           = tool.arguments.selection.empty();
    const Rows rows          = selected(tool, true);
    std::vector<Item> items;
    std::size_t absent = 0;
    for(const Selected& row : rows.rows)
    {
        if(Library found = tool.find(row))
            items.push_back(packed(tool, row, std::move(found)));
        else if(!all)
        {
            ++absent;
            say(row.kernel->name + " " + row.kernel->arch +
                " is in no cache or pack; qola-kernels build makes it");
        }
    }
    if(absent > 0 || !rows.missing.empty())
        return 1;
    if(items.empty())
    {
        say("there is no kernel to be exported; qola-kernels build makes them");
        return 1;
    }
    write_pack(output, items);
    warn_of_compilers(output, rows.rows, items);
    print(std::to_string(items.size()) + " kernels written to " + output);
    return 0;
}

/// Checks what lies below a directory; says each finding and returns their number.
int verify_directory(const std::string& root)
{
    int findings       = 0;
    const auto finding = [&](const std::string& text) {
        ++findings;
        print(text);
    };
    if(const std::string why = distrust_of_root(root); !why.empty())
        finding(why);
    std::set<std::string> directories;
    for(const Found& item : files_in(root))
    {
        if(directories.insert(item.name).second)
            if(const std::string why = distrust(root + "/" + item.name); !why.empty())
                finding(why);
        if(item.kind == Found::unknown)
            finding(item.path + " is none of qola's");
        if(item.kind != Found::entry)
            continue;
        if(const std::string why = distrust(item.path); !why.empty())
        {
            finding(why);
            continue;
        }
        try
        {
            const std::string bytes = read_file(item.path);
            if(const std::string fault = fault_of_entry(bytes, {}); !fault.empty())
                finding(item.path + " " + fault);
            else if(const std::string key = key_in(bytes); key.substr(0, 32) != item.key)
                finding(item.path + " has the key " + key + ", which is not that of its name");
        }
        catch(const Problem& problem)
        {
            finding(problem.what());
        }
    }
    return findings;
}

int verify_pack(const std::string& path)
{
    int findings = 0;
    try
    {
        const Pack pack(path);
        for(const auto& [key, place] : pack.places())
            try
            {
                static_cast<void>(pack.find(key));
            }
            catch(const Problem& problem)
            {
                ++findings;
                print(problem.what());
            }
    }
    catch(const Problem& problem)
    {
        ++findings;
        print(problem.what());
    }
    return findings;
}

int verify(Tool& tool)
{
    int findings = 0;
    if(tool.arguments.operands.empty())
        for(const std::string& root : tool.settings.caches)
            findings += verify_directory(root);
    for(const std::string& given : tool.arguments.operands)
    {
        const std::string path = absolute(given);
        if(!is_directory(path))
        {
            findings += verify_pack(path);
            continue;
        }
        findings += verify_directory(path);
        for(const std::string& name : names_in(path))
            if(ends_with(name, ".qpack"))
                findings += verify_pack(path + "/" + name);
    }
    return findings == 0 ? 0 : 1;
}

/// First digits of all keys that a library below the root would ask for.
std::set<std::string> current_paths(Tool& tool)
{
    std::set<std::string> paths;
    for(const Sources& module : tool.modules())
        for(const Kernel& kernel : module.index.kernels)
            for(const Wanted& wanted : tool.wanted({&module, &kernel}))
                paths.insert(entry_path(wanted));
    return paths;
}

std::string path_below(const std::string& root, const Found& item)
{
    return item.path.substr(root.size() + 1);
}

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

int clean(Tool& tool)
{
    const Arguments& arguments = tool.arguments;
    const Selection& selection = arguments.selection;
    const std::string& root    = tool.settings.cache;
    if(selection.empty() && !arguments.stalled)
        throw UsageError(
            "clean: nothing is selected; --stalled is what nobody would ask for, --all everything");
    if(root.empty())
        throw UsageError("clean: there is no cache; set QOLA_CACHE");
    const std::set<std::string> current =
        arguments.stalled ? current_paths(tool) : std::set<std::string>{};
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

int cache(Tool& tool)
{
    const Arguments& arguments = tool.arguments;
    const std::set<std::string> current =
        arguments.current ? current_paths(tool) : std::set<std::string>{};
    std::set<std::string> names;
    std::uint64_t bytes = 0, count = 0;
    for(const std::string& root : tool.settings.caches)
        for(const Found& item : files_in(root))
        {
            const Selection& selection = arguments.selection;
            struct stat status;
            if(item.kind != Found::entry || lstat(item.path.c_str(), &status) != 0 ||
               (arguments.current && current.count(path_below(root, item)) == 0) ||
               !(selection.empty() && selection.archs.empty()
                     ? true
                     : selection.has(item.name, item.arch)))
                continue;
            names.insert(item.name + " " + item.arch);
            ++count;
            bytes += static_cast<std::uint64_t>(status.st_size);
            if(!arguments.list_format)
                print(item.name + " " + item.arch + "  " + std::to_string(status.st_size) +
                      " bytes  " + item.path);
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
        const Wanted wanted =
            wanted_of(kernel.name, kernel.arch, kernel.code, index->identity);
        if(!named.insert(wanted.key).second)
            throw UsageError("pack: " + kernel.name + " for " + kernel.arch + " is given twice");
        const std::string file = operand.substr(equals + 1);
        items.push_back({wanted, read_file(file).size() + kTrailerBytes, [file, wanted] {
                             return entry_of(read_file(file), wanted.key);
                         }});
    }
    write_pack(output, items);
    return 0;
}

int identity(Tool& tool)
{
    if(tool.arguments.operands.size() != 1)
        throw UsageError("identity: expected one FILE");
    const std::string& path = tool.arguments.operands.front();
    const std::string found = identity_in(read_file(path));
    if(found.empty())
        throw Problem(path +
                      " has no line that begins with qola_identity; it is to be identity.hip after "
                      "preprocessing");
    print(found);
    return 0;
}

} // namespace

Tool::Tool(const Arguments& arguments, Settings given, const std::string& program)
    : arguments(arguments),
      settings(std::move(given)),
      root(root_for(arguments, settings, program)),
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
        throw UsageError("where the libraries' sources are is not known: --root DIR, or QOLA_ROOT");
    const std::string index = std::string("/") + kIndexFile;
    for(const std::string& path : directories_in(root, index))
        modules_.push_back({path, read_index(path)});
    if(modules_.empty())
        throw UsageError("no directory below " + root + " has a " + kIndexFile +
                         "; --root names another");
    return modules_;
}

std::vector<Wanted> Tool::wanted(const Selected& row)
{
    const Kernel& kernel        = *row.kernel;
    const std::string& identity = row.module->index.identity;
    if(!asked_)
    {
        asked_ = true;
        try
        {
            if(const Compiler* compiler = obtainer.compiler())
                other_identity_ = compiler->identity;
        }
        catch(const Problem& problem)
        {
            say_once(problem.what());
        }
    }
    std::vector<Wanted> result{wanted_of(kernel.name, kernel.arch, kernel.code, identity)};
    result.front().code = kernel.code;
    if(!other_identity_.empty() && other_identity_ != identity)
        result.push_back(wanted_of(kernel.name, kernel.arch, kernel.code, other_identity_));
    return result;
}

Library Tool::find(const Selected& row)
{
    for(const Wanted& each : wanted(row))
        if(Library found = store.find(each))
            return found;
    return {};
}

const std::map<std::string, std::function<int(Tool&)>>& commands()
{
    static const std::map<std::string, std::function<int(Tool&)>> all = {
        {"list", list},
        {"build", build},
        {"export", export_pack},
        {"verify", verify},
        {"clean", clean},
        {"cache", cache},
        {"pack", pack},
        {"identity", identity},
    };
    return all;
}

} // namespace qola_runtime
