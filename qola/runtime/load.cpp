#include "load.h"

#include "files.h"
#include "ownership.h"
#include "settings.h"

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

/// A file in memory; none where the system forbids them. It stays open: glibc knows what it loaded
/// by name, and would take what comes to have the same number for the same library.
std::string memory_file(const std::string& bytes, const std::string& name)
{
    constexpr unsigned kExecutable = 0x10; // MFD_EXEC, of Linux 6.3
    const std::string label        = name.substr(0, 200);
    Fd fd(memfd_create(label.c_str(), MFD_CLOEXEC | kExecutable));
    if(!fd && errno == EINVAL)
        fd = Fd(memfd_create(label.c_str(), MFD_CLOEXEC));
    if(!fd)
        return {};
    write_all(fd.get(), bytes, "memory file of " + name);
    return "/proc/self/fd/" + std::to_string(fd.release());
}

/// Loads bytes, from memory or from a file that is there just for that.
void* load_bytes(const std::string& bytes, const std::string& name)
{
    if(const std::string path = memory_file(bytes, name); !path.empty())
        if(void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL))
            return handle;
    const TemporaryDirectory directory(make_private_directory(settings().temporary));
    const std::string path = directory.path + "/kernel.so";
    write_file(path, bytes, 0600);
    return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

} // namespace

const qola_kernel_function* load(const Library& library, const std::string& name)
{
    const bool in_memory = library.path.empty();
    void* handle = in_memory ? nullptr : dlopen(library.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    // Or removed since it was read, as `qola-kernels clean` does.
    if(in_memory || (handle == nullptr && !is_file(library.path)))
        handle = load_bytes(library.bytes, name);
    if(handle == nullptr)
    {
        const char* error = dlerror();
        throw Problem(name + " cannot be loaded (" + library.origin +
                      "): " + (error ? error : "unknown error") +
                      (in_memory ? "" : hint_for(library.path)));
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
