#include "load.h"

#include "files.h"

#include <cerrno>

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace qola_runtime {
namespace {

std::string hint_for(const std::string& path)
{
    struct statvfs status;
    if(statvfs(path.c_str(), &status) == 0 && (status.f_flag & ST_NOEXEC) != 0)
        return "; " + path +
               " is on a file system that is mounted noexec: set QOLA_CACHE to another";
    return {};
}

/// A file in memory. It stays open: glibc knows what it loaded by name, and would take what comes
/// to have the same number for the same library.
std::string memory_file(const std::string& bytes, const std::string& name)
{
    Fd fd(memfd_create(name.substr(0, 200).c_str(), MFD_CLOEXEC));
    if(!fd)
        throw SystemError("memfd_create", errno);
    write_all(fd.get(), bytes, "memory file of " + name);
    return "/proc/self/fd/" + std::to_string(fd.release());
}

} // namespace

const qola_kernel_function* load(const Library& library, const std::string& name)
{
    const bool in_memory   = library.path.empty();
    const std::string path = in_memory ? memory_file(library.bytes, name) : library.path;
    void* handle           = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    // Removed since it was read, as `qola-kernels clean` does.
    if(handle == nullptr && !is_file(path))
        handle = dlopen(memory_file(library.bytes, name).c_str(), RTLD_NOW | RTLD_LOCAL);
    if(handle == nullptr)
    {
        const char* error = dlerror();
        throw Problem(name + " cannot be loaded (" + library.origin + "): " +
                      (error ? error : "unknown error") + (in_memory ? "" : hint_for(path)));
    }
    const auto* table = static_cast<const qola_kernel_table*>(dlsym(handle, "qola_kernel"));
    if(table == nullptr)
        throw Problem(name + " (" + library.origin + ") has no symbol qola_kernel");
    if(table->abi != QOLA_KERNEL_ABI || table->count == 0)
        throw Problem(name + " (" + library.origin + ") is of kernel ABI " +
                      std::to_string(table->abi) + " with " + std::to_string(table->count) +
                      " functions, expected ABI " + std::to_string(QOLA_KERNEL_ABI) +
                      " and at least one");
    return table->functions;
}

} // namespace qola_runtime
