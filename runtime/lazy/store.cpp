#include "store.h"

#include "files.h"
#include "lock.h"
#include "text.h"

#include <cerrno>
#include <ctime>

#include <fcntl.h>
#include <unistd.h>

namespace qola_runtime {
namespace {

Library found_in(const std::string& root,
                 const CompiledKernel& kernel,
                 const std::string& what,
                 const Trust& trust = trust_in_user())
{
    Looked looked = look_up(root, kernel, trust);
    if(!looked.fault.empty())
        say_once(looked.fault + " (skipped)");
    if(looked.bytes.empty())
        return {};
    return {looked.path, std::move(looked.bytes), what + " " + looked.path, false, kernel.identity};
}

Library found_in(const Pack& pack, const CompiledKernel& kernel)
{
    try
    {
        if(std::string bytes = pack.find(kernel.key); !bytes.empty())
            return {{}, std::move(bytes), "pack " + pack.path(), false, kernel.identity};
    }
    catch(const Problem& problem)
    {
        say_once(std::string(problem.what()) + " (skipped)");
    }
    return {};
}

/// Parses a file name in a kernel's directory.
Found file_of_name(const std::string& root, const std::string& name, const std::string& file)
{
    Found item{Found::unknown, root + "/" + name + "/" + file, name, {}, {}};
    const std::size_t end  = file.find(".so");
    const std::size_t dash = file.rfind('-', end);
    if(end == std::string::npos || dash == std::string::npos || end - dash - 1 != 32)
        return item;
    item.arch              = file.substr(0, dash);
    item.key               = file.substr(dash + 1, 32);
    const std::string rest = file.substr(end + 3);
    if(rest.empty())
        item.kind = Found::entry;
    else if(rest == ".lock")
        item.kind = Found::lock;
    else if(starts_with(rest, ".tmp."))
        item.kind = Found::leftover;
    return item;
}

} // namespace

Store::Store(const Settings& settings, std::vector<std::string> beside, const std::string& file)
    : settings_(settings), beside_(std::move(beside)), trust_beside_(trust_in_owner_of(file))
{
}

Library Store::find(const CompiledKernel& kernel)
{
    for(const std::string& root : settings_.caches)
        if(Library found = found_in(root, kernel, "cache"))
            return found;
    std::call_once(opened_, [this] { open_packs(); });
    for(const Source& source : packs_)
        if(Library found =
               source.pack ? found_in(*source.pack, kernel) : found_in(source.directory, kernel, "pack", source.trust))
            return found;
    return {};
}

Library Store::find(const Kernel& kernel, const std::string& identity)
{
    if(Library found = find(compiled_by(identity, kernel)))
        return found;
    for(const Source& source : packs_)
        if(source.pack != nullptr)
            if(const CompiledKernel other = source.pack->of_another_compiler(kernel); !other.key.empty())
                if(Library found = found_in(*source.pack, other))
                    return found;
    return {};
}

void Store::open_packs()
{
    for(const std::string& path : settings_.packs)
    {
        if(!is_file(path) && !is_directory(path))
            say_once("QOLA_PACKS: no file " + path);
        open_pack(path, trust_in_user());
    }
    for(const std::string& path : beside_)
        open_pack(path, trust_beside_);
}

void Store::open_pack(const std::string& path, const Trust& trust)
{
    if(is_directory(path))
    {
        for(const std::string& name : names_in(path))
            if(ends_with(name, ".qpack"))
                open_pack(path + "/" + name, trust);
        packs_.push_back({path, nullptr, trust});
    }
    else if(is_file(path))
    {
        try
        {
            packs_.push_back({{}, std::make_unique<Pack>(path, trust), trust});
        }
        catch(const Problem& problem)
        {
            say_once(std::string(problem.what()) + " (skipped)");
        }
    }
}

Looked look_up(const std::string& root, const CompiledKernel& kernel, const Trust& trust)
{
    Looked looked{root + "/" + entry_path(kernel), {}, {}};
    const Fd fd = open_file(looked.path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if(!fd)
    {
        if(errno == ELOOP)
            looked.fault = looked.path + " is a symbolic link; remove it";
        else if(errno != ENOENT && errno != ENOTDIR)
            looked.fault = SystemError("open " + looked.path, errno).what();
        return looked;
    }
    try
    {
        struct stat status;
        if(fstat(fd.get(), &status) != 0)
            throw SystemError("stat " + looked.path, errno);
        for(const std::string& why : {distrust_of_directory(root, trust),
                                      distrust(root + "/" + kernel.name, trust),
                                      distrust(looked.path, status, trust)})
            if(!why.empty())
                throw Problem(why);
        std::string bytes = read_all(fd.get(), looked.path);
        if(const std::string fault = fault_of_entry(bytes, kernel.key); !fault.empty())
            throw Problem(looked.path + " " + fault);
        looked.bytes = std::move(bytes);
    }
    catch(const Problem& problem)
    {
        looked.fault = problem.what();
    }
    return looked;
}

mode_t mode_below(const std::string& root, bool directory)
{
    struct stat status;
    if(stat(root.c_str(), &status) == 0 && (status.st_mode & 0055) == 0055)
        return directory ? 0755 : 0644;
    return directory ? 0700 : 0600;
}

void prepare(const std::string& root, const std::string& name)
{
    make_directories(root, 0700);
    if(const std::string why = distrust_of_directory(root); !why.empty())
        throw Problem(why);
    const std::string directory = root + "/" + name;
    const mode_t mode           = mode_below(root, true);
    if(mkdir(directory.c_str(), mode) == 0)
        // Set the mode regardless of the umask.
        chmod(directory.c_str(), mode);
    else if(const int code = errno; !is_directory(directory))
        throw SystemError("mkdir " + directory, code);
    if(const std::string why = distrust(directory); !why.empty())
        throw Problem(why);
}

std::vector<Found> files_in(const std::string& root)
{
    std::vector<Found> items;
    for(const std::string& name : names_in(root))
    {
        struct stat status;
        const std::string directory = root + "/" + name;
        if(lstat(directory.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))
            continue;
        for(const std::string& file : names_in(directory))
            items.push_back(file_of_name(root, name, file));
    }
    return items;
}

bool is_of_another_machine(const std::string& leftover, int timeout)
{
    // <entry>.tmp.<process>.<number>.<host>; the host may contain dots.
    const std::string file = base_name(leftover);
    std::size_t at         = file.find(".tmp.");
    if(at == std::string::npos)
        return false;
    at += 4;
    for(int parts = 0; parts < 2 && at != std::string::npos; ++parts)
        at = file.find('.', at + 1);
    if(at == std::string::npos || file.substr(at + 1) == host_name())
        return false;
    struct stat status;
    return lstat(leftover.c_str(), &status) == 0 && time(nullptr) - status.st_mtime <= timeout;
}

} // namespace qola_runtime
