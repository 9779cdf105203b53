#include "index.h"

#include "files.h"
#include "qola_kernel.h"
#include "sha256.h"
#include "text.h"

#include <algorithm>

namespace qola_runtime {
namespace {

class Parser
{
    public:
    explicit Parser(const std::string& path) : path_(path) {}

    void add(std::string_view text)
    {
        ++line_;
        if(visible(text) != text)
            refuse("a control character, or bytes that are not UTF-8, in \"" + visible(text) + "\"");
        const auto parts           = fields(text);
        const std::string_view key = parts[0];
        const auto part            = [&](std::size_t at) { return std::string(parts[at]); };
        const auto is              = [&](std::string_view name, std::size_t count) {
            if(key != name)
                return false;
            if(parts.size() != count + 1)
                refuse(std::string(name) + " has " + std::to_string(parts.size() - 1) +
                       " parts, expected " + std::to_string(count));
            return true;
        };
        if(line_ == 1)
        {
            if(key != "qola-kernels" || parts.size() != 2 || parts[1] != "1")
                refuse("expected \"qola-kernels\t1\", found \"" + std::string(text) + "\"");
        }
        else if(is("module", 1))
            index.module = part(1);
        else if(is("abi", 1))
        {
            if(part(1) != std::to_string(QOLA_KERNEL_ABI))
                refuse("it has kernel ABI " + part(1) + ", expected " +
                       std::to_string(QOLA_KERNEL_ABI));
        }
        else if(is("identity", 1))
            index.identity = part(1);
        else if(is("flag", 1))
            index.flags.push_back(part(1));
        else if(is("arch-flag", 2))
            index.arch_flags[part(1)].push_back(part(2));
        else if(is("package-flag", 2))
            index.package_flags[part(1)].push_back(part(2));
        else if(is("dir", 2))
            index.headers[part(1)].dirs.push_back(part(2));
        else if(is("header", 3))
            index.headers[part(1)].files.emplace_back(part(2), part(3));
        else if(is("link-flag", 1))
            index.link_flags.push_back(part(1));
        else if(is("link-script", 2))
            index.link_scripts[part(1)] = part(2);
        else if(is("entry", 2))
            index.entries[part(1)] = part(2);
        else if(is("kernel", 7))
        {
            // Caches use them as a directory and as the start of a file name.
            for(const std::size_t at : {1, 2})
                if(parts[at].empty() || parts[at][0] == '.' ||
                   parts[at].find('/') != std::string_view::npos)
                    refuse("a kernel or arch \"" + part(at) + "\", expected a name without a slash");
            index.kernels.push_back(
                {part(1), part(2), part(7), part(3), part(4), part(5), part(6)});
        }
        else
            refuse("unknown line \"" + std::string(text) + "\"");
    }

    Index index;

    private:
    [[noreturn]] void refuse(const std::string& what) const
    {
        throw Problem(path_ + ":" + std::to_string(line_) + ": " + what +
                      "; another version of qola wrote it, or it is damaged");
    }

    const std::string& path_;
    int line_ = 0;
};

} // namespace

Index index_of(std::string_view text, const std::string& path)
{
    Parser parser(path);
    for(const std::string_view line : lines(text))
        parser.add(line);
    if(parser.index.module.empty())
        throw Problem(path + " is not an index of qola's: it names no module");
    return std::move(parser.index);
}

Index read_index(const std::string& root, const std::string& digest)
{
    const std::string path = root + "/" + kIndexFile;
    const std::string text = read_file(path);
    if(const std::string found = sha256(text); !digest.empty() && found != digest)
        throw Problem(path + " belongs to another library: its digest is " + found + ", expected " +
                      digest + "; install library and sources from one bundle");
    return index_of(text, path);
}

} // namespace qola_runtime
