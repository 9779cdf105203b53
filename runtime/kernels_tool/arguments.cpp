#include "arguments.h"

#include "runtime/lazy/files.h"
#include "runtime/lazy/text.h"
#include "tool.h"

#include <algorithm>
#include <cctype>

#include <unistd.h>

namespace qola_runtime {
namespace {

constexpr const char* kSelection = R"(
selection: the union of
  NAME...          names of kernels or of their files
  --list FILE      one name per line, optionally with an arch; "-" reads standard input
  --record FILE    a file that QOLA_RECORD wrote
  --all            all kernels of the library
  --arch ARCH      only for this arch; may be repeated
)";

constexpr const char* kProgram = R"(usage: qola-kernels [--root DIR] [--cache-dir DIR] COMMAND ...

Compiles, packs and checks the kernels of lazy libraries.

  list      list the kernels of the libraries and their caches or packs
  build     compile kernels into the cache, or into a pack
  export    copy kernels from caches and packs into a pack
  verify    check caches or packs
  clean     remove kernels from the cache
  cache     list the contents of the caches
  pack      put compiled kernels into a pack

  --root DIR       directory with one subdirectory per library, each with a kernels.index; by default
                   the only one below ../share/qola of this program, else QOLA_ROOT
  --cache-dir DIR  the cache, instead of QOLA_CACHE

Exit codes: 0 success, 1 a failure or a missing kernel, 2 a wrong command line or setting.
COMMAND --help describes a command.
)";

struct Usage
{
    int (*run)(Tool&);
    const char* text;
    bool selects; ///< has the options of a selection
};

const std::map<std::string, Usage>& usages()
{
    static const std::map<std::string, Usage> all = {
        {"list",
         {list,
          R"(usage: qola-kernels list [--format human|list] [selection]

Lists kernels, by default all, and the place of each. Exit code 1 if a name is unknown.
)",
          true}},
        {"build",
         {build,
          R"(usage: qola-kernels build [--jobs N] [--force] [--output PACK.qpack|DIR] selection

Compiles the selected kernels that are in no cache or pack into the cache. --output writes all
selected kernels into a pack. --force compiles all of them again.
)",
          true}},
        {"export",
         {export_pack,
          R"(usage: qola-kernels export --output PACK.qpack|DIR [selection]

Copies kernels from caches and packs into a pack, by default all of them. If a selected kernel is
missing, the command writes nothing and returns 1.
)",
          true}},
        {"verify",
         {verify,
          R"(usage: qola-kernels verify [PACK.qpack|DIR...]

Checks digests, keys and ownership of all entries, by default in the caches and in the sources
below the root. Prints a line per finding, and returns 1 if there is one.
)",
          false}},
        {"clean",
         {clean,
          R"(usage: qola-kernels clean [--stalled] [--all] [selection]

Removes entries from the cache that is written to. --stalled: entries that no library below the root
requests, and files of interrupted compiles. --all: everything.
)",
          true}},
        {"cache",
         {cache,
          R"(usage: qola-kernels cache [--current] [--format human|list] [--write-list FILE]

Lists the contents of the caches. --current: only entries that a library below the root requests.
--write-list: writes names and archs to a file for --list.
)",
          true}},
        {"pack",
         {pack,
          R"(usage: qola-kernels pack --output PACK.qpack|DIR [@FILE] (INDEX NAME:ARCH=FILE.so...)...

Puts kernel libraries into a pack. The compiler that the index names must have compiled them. INDEX
is a kernels.index, NAME one of its kernel instances. @FILE holds one operand per line.
)",
          false}},
    };
    return all;
}

/// An option of the command line.
struct Option
{
    const char* commands; ///< that accept it, each between blanks; "" for the options before a command,
                          ///< "selection" for each command that selects kernels
    void (*set)(Arguments& arguments, const std::string& value);
    bool has_value = true;
};

void set_format(Arguments& arguments, const std::string& format)
{
    arguments.list_format = format == "list" || format == "blob-list";
    if(!arguments.list_format && format != "human")
        throw UsageError("--format: expected human or list, found " + format);
}

void set_jobs(Arguments& arguments, const std::string& jobs)
{
    const auto count = number(jobs, 1, 4096);
    if(!count)
        throw UsageError("--jobs: expected a number from 1 to 4096, found " + jobs);
    arguments.jobs = static_cast<int>(*count);
}

const std::map<std::string, Option>& options()
{
    using A                         = Arguments;
    using Text                      = const std::string;
    constexpr const char* selection = "selection";
    const Option add_name           = {selection, [](A& to, Text& name) { to.selection.add(name); }};
    const Option add_file           = {selection, [](A& to, Text& path) { to.selection.add_file(path); }};
    const Option write_list         = {" cache ", [](A& to, Text& path) { to.write_list = path; }};
    static const std::map<std::string, Option> all = {
        {"--root", {"", [](A& to, Text& path) { to.root = path; }}},
        {"--cache-dir", {"", [](A& to, Text& path) { to.cache_dir = path; }}},
        {"--help", {"", [](A& to, Text&) { to.help = true; }, false}},
        {"-h", {"", [](A& to, Text&) { to.help = true; }, false}},
        {"--all", {selection, [](A& to, Text&) { to.selection.all = true; }, false}},
        {"--arch", {selection, [](A& to, Text& arch) { to.selection.archs.insert(arch); }}},
        {"--name", add_name},
        {"--list", add_file},
        {"--record", add_file},
        {"--force", {" build ", [](A& to, Text&) { to.force = true; }, false}},
        {"--stalled", {" clean ", [](A& to, Text&) { to.stalled = true; }, false}},
        {"--current", {" cache ", [](A& to, Text&) { to.current = true; }, false}},
        {"--output", {" build export pack ", [](A& to, Text& path) { to.output = path; }}},
        {"--write-list", write_list},
        {"--format", {" list cache ", set_format}},
        {"--jobs", {" build ", set_jobs}},
        // Names of ck-jit.
        {"--blob", add_name},
        {"--blob-list", add_file},
        {"--write-blob-list", write_list},
    };
    return all;
}

/// Returns an option that the command accepts. Throws UsageError.
const Option& option_of(const std::string& command, const std::string& name)
{
    const auto found = options().find(name);
    if(found != options().end())
    {
        const std::string commands = found->second.commands;
        if(commands.empty() || (commands == "selection" && !command.empty() && usages().at(command).selects) ||
           commands.find(" " + command + " ") != std::string::npos)
            return found->second;
    }
    throw UsageError((command.empty() ? "" : command + ": ") + "unknown option " + name);
}

bool is_hex(std::string_view text)
{
    return std::all_of(
        text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_alphanumeric(std::string_view text)
{
    return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
}

/// Returns whether a file's stem is that of a cache entry: <arch>-<32 hex digits>.
bool is_entry_stem(const std::string& stem)
{
    return stem.size() > 33 && stem[stem.size() - 33] == '-' && is_hex(std::string_view(stem).substr(stem.size() - 32));
}

std::string read_input()
{
    std::string text;
    char buffer[65536];
    for(ssize_t got; (got = read(STDIN_FILENO, buffer, sizeof buffer)) > 0;)
        text.append(buffer, static_cast<std::size_t>(got));
    return text;
}

} // namespace

void Selection::add(std::string_view line)
{
    const std::vector<std::string> words = split(line.substr(0, line.find('#')), " \t\r");
    if(words.empty())
        return;
    if(words.size() > 2)
        throw Problem("expected a kernel's name and optionally an arch, found \"" + std::string(line) + "\"");
    const std::string file = base_name(words[0]);
    const std::size_t dot  = std::min(file.find('.'), file.size());
    std::string name = file.substr(0, dot), arch = words.size() > 1 ? words[1] : "";
    const std::string rest = file.substr(dot);
    bool is_leftover       = starts_with(rest, ".so.") && rest.size() == 10 && is_alphanumeric(rest.substr(4));
    if(is_entry_stem(name) && file != words[0])
    {
        if(arch.empty())
            arch = name.substr(0, name.size() - 33);
        name        = base_name(directory_of(words[0]));
        is_leftover = rest != ".so" && !rest.empty();
    }
    if(is_leftover)
    {
        ++leftovers;
        return;
    }
    // A name without an arch selects every arch, also if other lines name some.
    const auto [found, is_new] = names.try_emplace(name);
    if(arch.empty())
        found->second.clear();
    else if(is_new || !found->second.empty())
        found->second.insert(arch);
}

void Selection::add_file(const std::string& path)
{
    const std::string text = path == "-" ? read_input() : read_file(path);
    int number             = 0;
    for(const std::string_view line : lines(text))
    {
        ++number;
        try
        {
            add(line);
        }
        catch(const Problem& problem)
        {
            throw Problem(path + ":" + std::to_string(number) + ": " + problem.what());
        }
    }
}

bool Selection::has(const std::string& name, const std::string& arch) const
{
    if(!archs.empty() && archs.count(arch) == 0)
        return false;
    if(all)
        return true;
    const auto found = names.find(name);
    return found != names.end() && (found->second.empty() || found->second.count(arch) > 0);
}

Arguments arguments_of(const std::vector<std::string>& words)
{
    Arguments arguments;
    for(std::size_t at = 0; at < words.size(); ++at)
    {
        const std::string& word = words[at];
        if(starts_with(word, "-") && word != "-")
        {
            const std::size_t equals = std::min(word.find('='), word.size());
            const std::string name   = word.substr(0, equals);
            const Option& option     = option_of(arguments.command, name);
            const bool given         = equals < word.size();
            if(given && !option.has_value)
                throw UsageError(name + " has no value, found " + word.substr(equals + 1));
            if(!given && option.has_value && ++at == words.size())
                throw UsageError(name + " needs a value");
            option.set(arguments, given ? word.substr(equals + 1) : words[at]);
        }
        else if(arguments.command.empty())
        {
            const auto named = usages().find(word);
            if(named == usages().end())
                throw UsageError("unknown command " + word);
            arguments.command = word;
            arguments.run     = named->second.run;
        }
        else if(usages().at(arguments.command).selects)
            arguments.selection.add(word);
        else
            arguments.operands.push_back(word);
    }
    if(arguments.command.empty() && !arguments.help)
        throw UsageError("no command");
    return arguments;
}

std::string help_of(const std::string& command)
{
    const auto found = usages().find(command);
    if(found == usages().end())
        return kProgram;
    return std::string(found->second.text) + (found->second.selects ? kSelection : "");
}

} // namespace qola_runtime
