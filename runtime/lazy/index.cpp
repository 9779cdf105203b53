#include "index.h"

#include "files.h"
#include "qola_kernel.h"
#include "sha256.h"
#include "text.h"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <set>

#include <fcntl.h>

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
                refuse(std::string(name) + " has " + std::to_string(parts.size() - 1) + " parts, expected " +
                       std::to_string(count));
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
                refuse("it has kernel ABI " + part(1) + ", expected " + std::to_string(QOLA_KERNEL_ABI));
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
                if(parts[at].empty() || parts[at][0] == '.' || parts[at].find('/') != std::string_view::npos)
                    refuse("a kernel or arch \"" + part(at) + "\", expected a name without a slash");
            index.kernels.push_back({part(1), part(2), part(7), part(3), part(4), part(5), part(6)});
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

/// Returns the digest of each file by its path below the root.
using Files = std::map<std::string, std::string>;

const Headers& headers_of(const Index& index, const Kernel& kernel)
{
    // A set without a directory and a file has no line.
    static const Headers none;
    const auto found = index.headers.find(kernel.headers);
    return found == index.headers.end() ? none : found->second;
}

const std::string& entry_of_kernel(const Index& index, const Kernel& kernel)
{
    const auto found = index.entries.find(kernel.entry);
    if(found == index.entries.end())
        throw Problem(std::string(kIndexFile) + " has no entry " + kernel.entry + " of " + kernel.name);
    return found->second;
}

/// Adds the files of a kernel except headers.
void add_sources(Files& files, const Index& index, const Kernel& kernel)
{
    files.emplace(kernel.source_path(), kernel.source);
    files.emplace(kernel.entry_path(), entry_of_kernel(index, kernel));
}

Files files_of(const Index& index)
{
    Files files = index.link_scripts;
    for(const auto& [name, headers] : index.headers)
        files.insert(headers.files.begin(), headers.files.end());
    for(const Kernel& kernel : index.kernels)
        add_sources(files, index, kernel);
    return files;
}

/// Reads a file of the index. Throws Problem if its digest differs.
std::string checked(const std::string& root, const std::string& file, const std::string& expected)
{
    const std::string path = root + "/" + file, wrapped = "/" + file + "/";
    for(const char* part : {"//", "/./", "/../"})
        if(wrapped.find(part) != std::string::npos)
            throw Problem(root + "/" + kIndexFile + " has the path " + file +
                          ", which is not below its directory; install the library's sources "
                          "again");
    if(!is_file(path))
        throw Problem(path + " is missing; install the library's sources again");
    std::string bytes = read_file(path, kMostOfText);
    if(const std::string found = sha256(bytes); found != expected)
        throw Problem(path + " differs from the index: its digest is " + found + ", expected " + expected +
                      "; install the library's sources again");
    return bytes;
}

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
    const std::string text = read_file(path, kMostOfText);
    if(const std::string found = sha256(text); !digest.empty() && found != digest)
        throw Problem(path + " belongs to another library: its digest is " + found + ", expected " + digest +
                      "; install library and sources from one bundle");
    return index_of(text, path);
}

std::vector<std::string> faults_of_directory(const std::string& root, const Index& index, const Trust& trust)
{
    Files files = files_of(index);
    files.emplace(kIndexFile, "");
    std::set<std::string> directories;
    for(const auto& [file, digest] : files)
        for(std::size_t at = 0; (at = file.find('/', at)) != std::string::npos; ++at)
            directories.insert(file.substr(0, at));
    std::vector<std::string> faults;
    const auto add = [&](const std::string& fault) {
        if(!fault.empty())
            faults.push_back(fault);
    };
    add(distrust_of_directory(root, trust));
    const std::function<void(const std::string&)> look = [&](const std::string& below) {
        for(const std::string& name : names_in(root + "/" + below))
        {
            const std::string file = below + name, path = root + "/" + file;
            struct stat status;
            // Follow symlinks: the target must match the index.
            if(stat(path.c_str(), &status) == 0)
                add(distrust(path, status, trust));
            if(directories.count(file) > 0 && is_directory(path))
                look(file + "/");
            else if(files.count(file) == 0)
                add(path + " is not among the files of " + root + "/" + kIndexFile +
                    ", and a compiler could read it instead of a listed file; remove it");
        }
    };
    look("");
    return faults;
}

std::vector<std::string> faults_of_files(const std::string& root, const Index& index)
{
    std::vector<std::string> faults;
    const auto add_problem_of = [&](const auto& check) {
        try
        {
            check();
        }
        catch(const Problem& problem)
        {
            faults.emplace_back(problem.what());
        }
    };
    add_problem_of([&] {
        for(const auto& [file, digest] : files_of(index))
            add_problem_of([&, &file = file, &digest = digest] { checked(root, file, digest); });
        for(const Kernel& kernel : index.kernels)
            if(const std::string found = code_of(index, kernel); found != kernel.code)
                throw Problem(root + "/" + kIndexFile + ": the code of " + kernel.text() + " has the digest " + found +
                              ", expected " + kernel.code + "; install the library's sources again");
    });
    return faults;
}

std::vector<std::string> flags_of(const Index& index, const Kernel& kernel)
{
    std::vector<std::string> flags = index.flags;
    const auto add                 = [&](const auto& flags_by, const std::string& name) {
        if(const auto found = flags_by.find(name); found != flags_by.end())
            flags.insert(flags.end(), found->second.begin(), found->second.end());
    };
    add(index.arch_flags, kernel.arch);
    add(index.package_flags, kernel.package);
    flags.push_back("--offload-arch=" + kernel.arch);
    flags.push_back("-cuid=" + kernel.name);
    return flags;
}

std::string code_of(const Index& index, const Kernel& kernel)
{
    const Headers& headers            = headers_of(index, kernel);
    std::vector<std::string> included = headers.dirs, listed, link = index.link_flags;
    for(const auto& [file, digest] : headers.files)
        listed.push_back(file + "\t" + digest);
    std::sort(listed.begin(), listed.end());
    included.insert(included.end(), listed.begin(), listed.end());
    for(const auto& [script, digest] : index.link_scripts)
        link.push_back(digest);
    return sha256("qola kernel code " + std::to_string(QOLA_KERNEL_ABI) + "\nsource " + kernel.source + "\nentry " +
                  entry_of_kernel(index, kernel) + "\nheaders " + sha256(join(included, "\n") + "\n") + "\nflags " +
                  sha256(join(flags_of(index, kernel), "\n")) + "\nlink " + sha256(join(link, "\n")) + "\n");
}

void copy_sources(const std::string& root, const Index& index, const Kernel& kernel, const std::string& directory)
{
    Files files         = index.link_scripts;
    const auto& headers = headers_of(index, kernel).files;
    files.insert(headers.begin(), headers.end());
    add_sources(files, index, kernel);
    for(const auto& [file, digest] : files)
    {
        const std::string bytes = checked(root, file, digest), path = directory + "/" + file;
        make_directories(directory_of(path), 0700);
        // Not flushed, because it is only read by this compile.
        const Fd fd = open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
        if(!fd)
            throw SystemError("create " + path, errno);
        write_all(fd.get(), bytes, path);
    }
}

} // namespace qola_runtime
