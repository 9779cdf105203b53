#include "load.h"

#include "files.h"
#include "ownership.h"
#include "settings.h"

#include <cerrno>

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

namespace qola_runtime {
namespace {

/// Creates a file in memory; empty if the system forbids it or memory is short.
Fd memory_file(const std::string& bytes, const std::string& name)
{
    constexpr unsigned kExecutable = 0x10; // MFD_EXEC, of Linux 6.3
    const std::string label        = name.substr(0, 200);
    Fd fd(memfd_create(label.c_str(), MFD_CLOEXEC | kExecutable));
    if(!fd && errno == EINVAL)
        fd = Fd(memfd_create(label.c_str(), MFD_CLOEXEC));
    if(!fd)
        return {};
    try
    {
        write_all(fd.get(), bytes, "memory file of " + name);
    }
    catch(const SystemError&)
    {
        return {};
    }
    return fd;
}

/// Loads bytes from memory or from a temporary file.
void* load_bytes(const std::string& bytes, const std::string& name)
{
    if(Fd fd = memory_file(bytes, name))
        if(void* handle =
               dlopen(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), RTLD_NOW | RTLD_LOCAL))
        {
            // It stays open: glibc identifies loaded libraries by name, and would confuse it with a
            // later one of the same number.
            fd.release();
            return handle;
        }
    const TemporaryDirectory directory = make_private_directory(settings().temporary);
    const std::string path = directory.path + "/kernel.so";
    write_file(path, bytes, 0600);
    return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

} // namespace

const qola_kernel_function* load(const Library& library, const std::string& name)
{
    void* handle =
        library.path.empty() ? nullptr : dlopen(library.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    // The file system is mounted noexec, or `qola-kernels clean` removed the file after it was read.
    // Load the verified bytes.
    if(handle == nullptr)
    {
        const char* first      = library.path.empty() ? nullptr : dlerror();
        const std::string file = first ? std::string(first) + "; " : "";
        const std::string what = name + " cannot be loaded (" + library.origin + "): " + file;
        try
        {
            handle = load_bytes(library.bytes, name);
        }
        catch(const Problem& problem)
        {
            throw Problem(what + problem.what());
        }
        if(handle == nullptr)
        {
            const char* error = dlerror();
            throw Problem(what + (error ? error : "unknown error"));
        }
    }
    const auto* table = static_cast<const qola_kernel_table*>(dlsym(handle, "qola_kernel"));
    if(table == nullptr)
        throw Problem(name + " (" + library.origin + ") has no symbol qola_kernel");
    if(table->abi != QOLA_KERNEL_ABI || table->count == 0)
        throw Problem(name + " (" + library.origin + ") has kernel ABI " +
                      std::to_string(table->abi) + " with " + std::to_string(table->count) +
                      " functions, expected ABI " + std::to_string(QOLA_KERNEL_ABI) +
                      " and at least one");
    return table->functions;
}

} // namespace qola_runtime
