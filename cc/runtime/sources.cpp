#include "sources.h"

#include "files.h"
#include "qola_kernel.h"
#include "sha256.h"
#include "text.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>

#include <fcntl.h>

namespace qola_runtime {
namespace {

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
        throw Problem(std::string(kIndexFile) + " has no entry " + kernel.entry + " of " +
                      kernel.name);
    return found->second;
}

Files files_of(const Index& index, const Kernel& kernel)
{
    Files files = index.link_scripts;
    files.emplace(kernel.source_path(), kernel.source);
    files.emplace(kernel.entry_path(), entry_of_kernel(index, kernel));
    const auto& headers = headers_of(index, kernel).files;
    files.insert(headers.begin(), headers.end());
    return files;
}

Files files_of(const Index& index)
{
    Files files = index.link_scripts;
    for(const auto& [name, headers] : index.headers)
        files.insert(headers.files.begin(), headers.files.end());
    for(const Kernel& kernel : index.kernels)
    {
        files.emplace(kernel.source_path(), kernel.source);
        files.emplace(kernel.entry_path(), entry_of_kernel(index, kernel));
    }
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
    std::string bytes = read_file(path);
    if(const std::string found = sha256(bytes); found != expected)
        throw Problem(path + " differs from the index: its digest is " + found +
                      ", expected " + expected + "; install the library's sources again");
    return bytes;
}

/// Visits all files of a directory tree.
class Looker
{
    public:
    Looker(const std::string& root, const Index& index, const Trust& trust)
        : root_(root),
          files_(files_of(index)),
          trust_(trust)
    {
        files_.emplace(kIndexFile, "");
        for(const auto& [file, digest] : files_)
            for(std::size_t at = 0; (at = file.find('/', at)) != std::string::npos; ++at)
                directories_.insert(file.substr(0, at));
    }

    void look(const std::string& below)
    {
        for(const std::string& name : names_in(root_ + "/" + below))
        {
            const std::string file = below + name, path = root_ + "/" + file;
            struct stat status;
            // Follow symlinks: the target must match the index.
            if(stat(path.c_str(), &status) == 0)
                add(distrust(path, status, trust_));
            if(directories_.count(file) > 0 && is_directory(path))
                look(file + "/");
            else if(files_.count(file) == 0)
                add(path + " is not among the files of " + root_ + "/" + kIndexFile +
                    ", and a compiler could read it instead of a listed file; remove it");
        }
    }

    void add(const std::string& fault)
    {
        if(!fault.empty())
            faults.push_back(fault);
    }

    std::vector<std::string> faults;

    private:
    const std::string& root_;
    Files files_;
    std::set<std::string> directories_;
    const Trust& trust_;
};

} // namespace

std::vector<std::string>
faults_of_directory(const std::string& root, const Index& index, const Trust& trust)
{
    Looker looker(root, index, trust);
    looker.add(distrust_of_directory(root, trust));
    looker.look("");
    return looker.faults;
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
                throw Problem(root + "/" + kIndexFile + ": the code of " + kernel.name + " for " +
                              kernel.arch + " has the digest " + found + ", expected " +
                              kernel.code + "; install the library's sources again");
    });
    return faults;
}

std::string code_of(const Index& index, const Kernel& kernel)
{
    const auto flags_at = [](const auto& flags, const std::string& name) {
        const auto found = flags.find(name);
        return found == flags.end() ? std::vector<std::string>{} : found->second;
    };
    const Headers& headers            = headers_of(index, kernel);
    std::vector<std::string> included = headers.dirs, listed, flags = index.flags,
                             link = index.link_flags;
    for(const auto& [file, digest] : headers.files)
        listed.push_back(file + "\t" + digest);
    std::sort(listed.begin(), listed.end());
    included.insert(included.end(), listed.begin(), listed.end());
    for(const auto& more : {flags_at(index.arch_flags, kernel.arch),
                            flags_at(index.package_flags, kernel.package),
                            {"--offload-arch=" + kernel.arch, "-cuid=" + kernel.name}})
        flags.insert(flags.end(), more.begin(), more.end());
    for(const auto& [script, digest] : index.link_scripts)
        link.push_back(digest);
    return sha256("qola kernel code " + std::to_string(QOLA_KERNEL_ABI) + "\nsource " +
                  kernel.source + "\nentry " + entry_of_kernel(index, kernel) + "\nheaders " +
                  sha256(join(included, "\n") + "\n") + "\nflags " + sha256(join(flags, "\n")) +
                  "\nlink " + sha256(join(link, "\n")) + "\n");
}

void copy_sources(const std::string& root,
                  const Index& index,
                  const Kernel& kernel,
                  const std::string& directory)
{
    for(const auto& [file, digest] : files_of(index, kernel))
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
