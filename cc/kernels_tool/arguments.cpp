#include "arguments.h"

#include "cc/runtime/text.h"
#include "commands.h"

#include <map>

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
  identity  print the identity of a compiler from its preprocessed identity.hip

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
    bool selects;
    const char* options; ///< its options, separated by blanks
};

const std::map<std::string, Usage>& usages()
{
    static const std::map<std::string, Usage> all = {
        {"list",
         {list,
          R"(usage: qola-kernels list [--format human|list] [selection]

Lists kernels, by default all, and the place of each. Exit code 1 if a name is unknown.
)",
          true,
          " --format "}},
        {"build",
         {build,
          R"(usage: qola-kernels build [--jobs N] [--force] [--output PACK.qpack|DIR] selection

Compiles the selected kernels that are in no cache or pack into the cache. --output writes all
selected kernels into a pack. --force compiles all of them again.
)",
          true,
          " --jobs --force --output "}},
        {"export",
         {export_pack,
          R"(usage: qola-kernels export --output PACK.qpack|DIR [selection]

Copies kernels from caches and packs into a pack, by default all of them. If a selected kernel is
missing, the command writes nothing and returns 1.
)",
          true,
          " --output "}},
        {"verify",
         {verify,
          R"(usage: qola-kernels verify [PACK.qpack|DIR...]

Checks digests, keys and ownership of all entries, by default in the caches and in the sources
below the root. Prints a line per finding, and returns 1 if there is one.
)",
          false,
          " "}},
        {"clean",
         {clean,
          R"(usage: qola-kernels clean [--stalled] [--all] [selection]

Removes entries from the cache that is written to. --stalled: entries that no library below the root
requests, and files of interrupted compiles. --all: everything.
)",
          true,
          " --stalled "}},
        {"cache",
         {cache,
          R"(usage: qola-kernels cache [--current] [--format human|list] [--write-list FILE]

Lists the contents of the caches. --current: only entries that a library below the root requests.
--write-list: writes names and archs to a file for --list.
)",
          true,
          " --current --format --write-list "}},
        {"pack",
         {pack,
          R"(usage: qola-kernels pack --output PACK.qpack|DIR [@FILE] (INDEX NAME:ARCH=FILE.so...)...

Puts kernel libraries into a pack. The compiler that the index names must have compiled them. INDEX
is a kernels.index, NAME one of its kernel instances. @FILE holds one operand per line.
)",
          false,
          " --output "}},
        {"identity",
         {identity,
          R"(usage: qola-kernels identity FILE

Prints the identity of the compiler that preprocessed identity.hip into FILE.
)",
          false,
          " "}},
    };
    return all;
}

/// Iterates over the arguments of a command line.
class Words
{
    public:
    explicit Words(const std::vector<std::string>& words) : words_(words) {}

    bool next()
    {
        if(at_ >= words_.size())
            return false;
        word           = words_[at_++];
        has_value_     = false;
        const auto cut = word.find('=');
        if(starts_with(word, "--") && cut != std::string::npos)
        {
            value_     = word.substr(cut + 1);
            has_value_ = true;
            word.resize(cut);
        }
        return true;
    }

    std::string value()
    {
        if(has_value_)
        {
            has_value_ = false;
            return value_;
        }
        if(at_ >= words_.size())
            throw UsageError(word + " needs a value");
        return words_[at_++];
    }

    /// Throws UsageError if an option without a value got one.
    void check() const
    {
        if(has_value_)
            throw UsageError(word + " has no value, found " + value_);
    }

    std::string word;

    private:
    const std::vector<std::string>& words_;
    std::size_t at_ = 0;
    std::string value_;
    bool has_value_ = false;
};

std::string own_name(const std::string& option)
{
    // Names of ck-jit's options.
    static const std::map<std::string, std::string> others = {
        {"--blob-list", "--list"}, {"--blob", "--name"}, {"--write-blob-list", "--write-list"}};
    const auto found = others.find(option);
    return found == others.end() ? option : found->second;
}

bool read_selection(Arguments& arguments, const std::string& option, Words& words)
{
    Selection& selection = arguments.selection;
    if(option == "--all")
        selection.all = true;
    else if(option == "--arch")
        selection.archs.insert(words.value());
    else if(option == "--name")
        selection.add(words.value());
    else if(option == "--list" || option == "--record")
        selection.add_file(words.value());
    else
        return false;
    return true;
}

bool read_option(Arguments& arguments, const std::string& option, Words& words)
{
    if(option == "--force")
        arguments.force = true;
    else if(option == "--stalled")
        arguments.stalled = true;
    else if(option == "--current")
        arguments.current = true;
    else if(option == "--output")
        arguments.output = words.value();
    else if(option == "--write-list")
        arguments.write_list = words.value();
    else if(option == "--format")
    {
        const std::string format = words.value();
        arguments.list_format    = format == "list" || format == "blob-list";
        if(!arguments.list_format && format != "human")
            throw UsageError("--format: expected human or list, found " + format);
    }
    else if(option == "--jobs")
    {
        const std::string jobs = words.value();
        const auto count       = number(jobs, 1, 4096);
        if(!count)
            throw UsageError("--jobs: expected a number from 1 to 4096, found " + jobs);
        arguments.jobs = static_cast<int>(*count);
    }
    else
        return false;
    return true;
}

bool read_global(Arguments& arguments, const std::string& option, Words& words)
{
    if(option == "--root")
        arguments.root = words.value();
    else if(option == "--cache-dir")
        arguments.cache_dir = words.value();
    else if(option == "--help" || option == "-h")
        arguments.help = true;
    else
        return false;
    return true;
}

} // namespace

Arguments arguments_of(const std::vector<std::string>& given)
{
    Arguments arguments;
    Words words(given);
    bool options = true;
    while(words.next())
    {
        const std::string option = own_name(words.word);
        const auto command       = usages().find(arguments.command);
        if(options && option == "--" && command != usages().end())
            options = false;
        else if(options && starts_with(option, "-") && option != "-")
        {
            if(read_global(arguments, option, words))
            {
                words.check();
                continue;
            }
            if(command == usages().end())
                throw UsageError("unknown option " + words.word);
            const Usage& usage = command->second;
            const bool known   = usage.selects && read_selection(arguments, option, words);
            if(!known &&
               (std::string(usage.options).find(" " + option + " ") == std::string::npos ||
                !read_option(arguments, option, words)))
                throw UsageError(arguments.command + ": unknown option " + words.word);
            words.check();
        }
        else if(arguments.command.empty())
        {
            arguments.command = words.word;
            const auto named  = usages().find(words.word);
            if(named == usages().end())
                throw UsageError("unknown command " + words.word);
            arguments.run = named->second.run;
        }
        else if(command->second.selects)
            arguments.selection.add(words.word);
        else
            arguments.operands.push_back(words.word);
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
