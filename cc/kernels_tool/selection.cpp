#include "selection.h"

#include "cc/runtime/files.h"
#include "cc/runtime/text.h"

#include <algorithm>
#include <cctype>

#include <unistd.h>

namespace qola_runtime {
namespace {

bool is_hex(std::string_view text)
{
    return std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    });
}

bool is_alphanumeric(std::string_view text)
{
    return std::all_of(
        text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
}

/// Returns whether a file's stem is that of a cache entry: <arch>-<32 hex digits>.
bool is_entry_stem(const std::string& stem)
{
    return stem.size() > 33 && stem[stem.size() - 33] == '-' &&
           is_hex(std::string_view(stem).substr(stem.size() - 32));
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

ListLine list_line(std::string_view line)
{
    const std::vector<std::string> words = split(line.substr(0, line.find('#')), " \t\r");
    if(words.empty())
        return {};
    if(words.size() > 2)
        throw Problem("expected a kernel's name and optionally an arch, found \"" + std::string(line) +
                      "\"");
    const std::string file = base_name(words[0]);
    const std::size_t dot  = file.find('.');
    const std::string stem = file.substr(0, dot),
                      rest = dot == std::string::npos ? "" : file.substr(dot);
    ListLine result{ListLine::kernel, stem, words.size() > 1 ? words[1] : ""};
    if(is_entry_stem(stem) && file != words[0])
    {
        result.name = base_name(directory_of(words[0]));
        if(result.arch.empty())
            result.arch = stem.substr(0, stem.size() - 33);
        if(rest != ".so" && !rest.empty())
            result.kind = ListLine::leftover;
    }
    else if(starts_with(rest, ".so.") && rest.size() == 10 && is_alphanumeric(rest.substr(4)))
        result.kind = ListLine::leftover;
    return result;
}

void Selection::add(std::string_view line)
{
    const ListLine read = list_line(line);
    if(read.kind == ListLine::leftover)
        ++leftovers;
    if(read.kind != ListLine::kernel)
        return;
    // A name without an arch selects every arch, also if other lines name some.
    const auto [found, is_new] = names.try_emplace(read.name);
    if(read.arch.empty())
        found->second.clear();
    else if(is_new || !found->second.empty())
        found->second.insert(read.arch);
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

Kernels kernels_of(const std::vector<Sources>& modules, const Selection& selection)
{
    Kernels result;
    std::set<std::string> known;
    std::set<std::pair<std::string, std::string>> known_for;
    for(const Sources& module : modules)
        for(const Kernel& kernel : module.index.kernels)
        {
            known.insert(kernel.name);
            known_for.emplace(kernel.name, kernel.arch);
            if(selection.has(kernel.name, kernel.arch))
                result.found.push_back({&module, &kernel});
        }
    for(const auto& [name, archs] : selection.names)
    {
        if(known.count(name) == 0)
            result.missing.push_back(name);
        else
            for(const std::string& arch : archs)
                if(known_for.count({name, arch}) == 0)
                    result.missing.push_back(name + " " + arch);
    }
    return result;
}

} // namespace qola_runtime
