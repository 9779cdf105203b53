#include "obtain.h"

#include "files.h"
#include "lock.h"
#include "text.h"

#include <atomic>
#include <cerrno>

#include <unistd.h>

namespace qola_runtime {

/// A pending compile.
struct Obtainer::Work
{
    const CompiledKernel kernel;
    const Compile compile;
};

namespace {

/// Makes a temporary directory for a compile, next to its entry. Throws SystemError.
std::string make_work_directory(const std::string& entry)
{
    static std::atomic<unsigned> count{0};
    const std::string host = host_name();
    for(;;)
    {
        const std::string path =
            entry + ".tmp." + std::to_string(getpid()) + "." + std::to_string(count++) + "." + host;
        if(mkdir(path.c_str(), 0700) == 0)
            return path;
        if(errno != EEXIST)
            throw SystemError("mkdir " + path, errno);
    }
}

/// Removes files of interrupted compiles of this key; the caller holds its lock. It spares a running
/// process whose lock file was removed and, for the duration of a compile, files of another machine,
/// which may not see locks.
void remove_leftovers(const std::string& entry, int timeout)
{
    const std::string directory = directory_of(entry), start = base_name(entry) + ".tmp.";
    const std::string host = host_name();
    for(const std::string& name : names_in(directory))
    {
        if(!starts_with(name, start) || is_of_another_machine(directory + "/" + name, timeout))
            continue;
        const auto owner = number(name.substr(start.size(), name.find('.', start.size()) - start.size()), 1, 999999999);
        const bool lives =
            ends_with(name, "." + host) && owner && *owner != getpid() && process_lives(static_cast<pid_t>(*owner));
        if(!lives)
            remove_tree(directory + "/" + name);
    }
}

/// Renames a complete, flushed entry to its name.
void publish(const std::string& bytes, const std::string& temporary, const std::string& entry, mode_t mode)
{
    write_file(temporary, bytes, mode);
    if(read_file(temporary) != bytes)
        throw SystemError("read back " + temporary, EIO);
    move_over(temporary, entry);
    flush_directory(directory_of(entry));
}

/// The lock of an entry, in the directory of its kernel. Throws Problem where the root is not to be
/// trusted or cannot be written to.
std::unique_ptr<FileLock>
locked(const std::string& root, const CompiledKernel& kernel, int wait, const std::string& what)
{
    const std::string path = root + "/" + entry_path(kernel) + ".lock";
    for(int attempt = 1;; ++attempt)
        try
        {
            prepare(root, kernel.name);
            return std::make_unique<FileLock>(path, wait, [&](const std::string& owner) {
                say("waiting for " + what + ", which " + owner + " compiles");
            });
        }
        catch(const SystemError& error)
        {
            // `qola-kernels clean` removes directories that are empty.
            if(error.code != ENOENT || attempt == 3)
                throw;
        }
}

/// Checks that the directory of the sources only contains files that the index lists, that nobody else
/// may write there, and that the kernel of the index is the one that is asked for. Throws Problem.
void check_sources(const Module& module, const Index& index, const Kernel& listed, const Kernel& asked)
{
    const auto faults = faults_of_directory(module.root, index, module.trust);
    if(!faults.empty())
        throw Problem(faults.front());
    if(const std::string found = code_of(index, listed); found != asked.code)
        throw Problem(module.root + "/" + kIndexFile + ": its content has the digest " + found + ", expected " +
                      asked.code + "; install the library's sources again");
}

Library not_kept(std::string bytes, const std::string& identity, const std::string& why)
{
    say_once_of("not kept", "kernels compiled now are not kept: " + why);
    return {{}, std::move(bytes), "compiled, not kept", true, identity};
}

/// Where the kernel would be, and the command that would put it there.
std::string where_to_get(const CompiledKernel& kernel)
{
    return "neither a cache nor a pack has " + entry_path(kernel) +
           "; it can be made where there is a compiler: qola-kernels build --arch " + kernel.arch + " " + kernel.name;
}

} // namespace

Obtainer::Obtainer(const Settings& settings, Store& store, std::string hip)
    : settings_(settings), store_(store), hip_(std::move(hip)), compilers_(settings)
{
}

Library Obtainer::obtain(const Kernel& kernel, const Module& module)
{
    if(Library found = store_.find(kernel, module.identity))
        return found;
    if(!settings_.compile)
        throw Problem(kernel.text() + " is not there, and QOLA_LAZY=never (or NVTE_CK_JIT) forbids to compile it: " +
                      where_to_get(compiled_by(module.identity, kernel)));
    return compile(kernel, module, false);
}

Library Obtainer::compile(const Kernel& kernel, const Module& module, bool anew)
{
    const std::string what     = kernel.text();
    const CompiledKernel built = compiled_by(module.identity, kernel);
    const Compiler* compiler   = nullptr;
    try
    {
        compiler = compilers_.find();
    }
    catch(const Problem& problem)
    {
        // The message is the same for every kernel.
        say_once(problem.what());
        throw Problem(what + ": " + where_to_get(built));
    }
    if(compiler == nullptr)
        throw Problem(what + ": " + where_to_get(built) + "; here there is none of " + join(settings_.compilers, ", ") +
                      " (QOLA_COMPILER names another)");

    CompiledKernel own = built;
    if(compiler->identity != module.identity)
    {
        say_once("the compiler " + compiler->command.front() + " (" + compiler->identity +
                 ") is not the one the library was built with (" + module.identity + "): its kernels are kept apart");
        own = compiled_by(compiler->identity, kernel);
        if(!anew)
            if(Library found = store_.find(own))
                return found;
    }

    if(module.root.empty())
        throw Problem(what + ": its sources are not there to be compiled, and " + where_to_get(built) +
                      "; QOLA_ROOT names the directory that has them");
    try
    {
        const std::shared_ptr<const Index> index = index_of(module);
        for(const Kernel& listed : index->kernels)
            if(listed.name == kernel.name && listed.arch == kernel.arch)
            {
                check_sources(module, *index, listed, kernel);
                return into_cache({own, {*compiler, module.root, *index, listed, hip_, settings_}}, anew);
            }
    }
    catch(const LockBusy& busy)
    {
        throw LockBusy(what + " cannot be compiled: " + busy.what(), busy.lives);
    }
    catch(const Problem& problem)
    {
        throw Problem(what + " cannot be compiled: " + problem.what());
    }
    throw Problem(what + ": " + module.root + "/" + kIndexFile + " has no such kernel");
}

Library Obtainer::into_cache(const Work& work, bool anew)
{
    const std::string& root = settings_.cache;
    const std::string entry = root + "/" + entry_path(work.kernel);
    std::unique_ptr<FileLock> lock;
    try
    {
        lock = locked(root, work.kernel, settings_.wait, work.compile.kernel.text());
    }
    catch(const LockBusy& busy)
    {
        if(busy.lives)
            throw;
        return in_private(work, busy.what());
    }
    catch(const Problem& problem)
    {
        return in_private(work, problem.what());
    }
    // Whoever held the lock was to make just this.
    if(!anew)
        if(Library found = store_.find(work.kernel))
            return found;
    if(lock->held())
        remove_leftovers(entry, settings_.compile_timeout);
    std::string bytes;
    try
    {
        const TemporaryDirectory directory(make_work_directory(entry));
        bytes = entry_of(qola_runtime::compile(work.compile, directory.path), work.kernel.key);
        publish(bytes, directory.path + "/entry.so", entry, mode_below(root, false));
        // As the next process will find it.
        Looked looked = look_up(root, work.kernel);
        if(looked.bytes.empty())
            throw SystemError(looked.fault.empty() ? "open " + entry : looked.fault, EIO);
        return {looked.path, std::move(looked.bytes), "compiled", true, work.kernel.identity};
    }
    catch(const CompileError& error)
    {
        if(error.place.empty())
            throw;
        return in_private(work, error.place);
    }
    catch(const SystemError& error)
    {
        if(bytes.empty())
            return in_private(work, error.what());
        return not_kept(std::move(bytes), work.kernel.identity, error.what());
    }
}

Library Obtainer::in_private(const Work& work, const std::string& why)
{
    const TemporaryDirectory directory = [&] {
        try
        {
            return make_private_directory(settings_.temporary);
        }
        catch(const Problem& problem)
        {
            throw Problem(std::string(problem.what()) + ", and in the cache it cannot be either: " + why);
        }
    }();
    std::string bytes = entry_of(qola_runtime::compile(work.compile, directory.path), work.kernel.key);
    return not_kept(std::move(bytes), work.kernel.identity, why);
}

std::shared_ptr<const Index> Obtainer::index_of(const Module& module)
{
    const std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<const Index>& index = indexes_[module.root];
    if(index == nullptr)
        index = std::make_shared<const Index>(read_index(module.root, module.index));
    return index;
}

std::string root_of(const Settings& settings, const std::string& module, const std::string& beside)
{
    if(!settings.root.empty())
        return settings.root + "/" + module;
    return settings.module_root.empty() ? beside : settings.module_root;
}

} // namespace qola_runtime
