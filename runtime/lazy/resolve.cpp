// Implements qola_lazy::resolve: all calls of HIP, and the load of kernel libraries.
#include "qola_lazy.h"

#include "qola_call.h"
#include "device.h"
#include "files.h"
#include "process.h"
#include "lock.h"
#include "obtain.h"
#include "ownership.h"
#include "text.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <hip/hip_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

namespace qola_lazy {
namespace {

using namespace qola_runtime;
using qola_entry::StatusError;

/// Returns the loaded file that contains an address.
std::string file_of(const void* address)
{
    Dl_info info = {};
    return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

/// Finds the directory of the module's sources next to the library: next to each symbolic link that leads
/// to it, then next to the resolved path.
std::string root_beside()
{
    const auto root_of_file = [](const std::string& path) {
        const std::string root = directory_of(path) + "/" + module.root;
        return is_directory(root) ? real_path(root) : std::string{};
    };
    std::string path = own_file();
    for(int links = 0; links < 40 && !path.empty(); ++links)
    {
        if(std::string root = root_of_file(path); !root.empty())
            return root;
        path = target_of(path);
    }
    const std::string real = real_path(own_file());
    return real.empty() ? std::string{} : root_of_file(real);
}

/// Returns the HIP runtime of this process, to link kernels to.
std::string hip_runtime() { return real_path(file_of(reinterpret_cast<const void*>(&hipGetDevice))); }

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
        if(void* handle = dlopen(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), RTLD_NOW | RTLD_LOCAL))
        {
            // It stays open: glibc identifies loaded libraries by name, and would confuse it with a
            // later one of the same number.
            fd.release();
            return handle;
        }
    const TemporaryDirectory directory = make_private_directory(settings().temporary);
    const std::string path             = directory.path + "/kernel.so";
    write_file(path, bytes, 0600);
    return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

/// Loads a kernel library, for the life of the process, and returns its functions. Throws Problem.
const qola_kernel_function* load(const Library& library, const std::string& name)
{
    void* handle = library.path.empty() ? nullptr : dlopen(library.path.c_str(), RTLD_NOW | RTLD_LOCAL);
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
        throw Problem(name + " (" + library.origin + ") has kernel ABI " + std::to_string(table->abi) + " with " +
                      std::to_string(table->count) + " functions, expected ABI " + std::to_string(QOLA_KERNEL_ABI) +
                      " and at least one");
    return table->functions;
}

/// The result of resolving a kernel. It is final unless another process still compiles it.
struct Slot
{
    explicit Slot(unsigned row) : row(row) {}
    const unsigned row;
    std::atomic<bool> done{false};
    std::atomic<bool> in_background{false}; ///< a thread of the runtime's own is at it
    std::mutex mutex;                       ///< protects the members below
    bool recorded                         = false;
    const qola_kernel_function* functions = nullptr;
    std::string problem;
};

/// The library's state; never freed, because kernels may be requested while a process ends.
class Runtime
{
    public:
    Runtime()
        : settings_(settings()),
          root_(root_of(settings_, module.name, root_beside())),
          store_(settings_, packs_beside(root_), own_file()),
          obtainer_(settings_, store_, hip_runtime())
    {
        for(const std::string& note : settings_.notes)
            say_once(note);
    }

    /// Finds or compiles the kernels of a call, all of them, and returns the functions of the first.
    const qola_kernel_function* functions(const std::vector<unsigned>& rows)
    {
        std::vector<Slot*> slots, pending;
        for(const unsigned row : rows)
        {
            slots.push_back(&slot_of(row));
            if(!slots.back()->done)
                pending.push_back(slots.back());
        }
        const bool compiles = settings_.compile && pending.size() > 1;
        if(settings_.background)
            leave_to_background(pending);
        else
            side_by_side(pending.size(), compiles ? compiles_at_a_time(settings_.jobs) : 1, [&](std::size_t at) {
                resolve_once(*pending[at]);
            });
        std::vector<const qola_kernel_function*> found;
        for(Slot* slot : slots)
        {
            const std::lock_guard<std::mutex> lock(slot->mutex);
            if(slot->functions == nullptr)
                throw StatusError(QOLA_STATUS_UNAVAILABLE, slot->problem);
            found.push_back(slot->functions);
        }
        // Publish at the end: a call that lacks a kernel launches none, also when repeated.
        for(std::size_t at = 0; at < rows.size(); ++at)
            loaded[rows[at]].store(found[at], std::memory_order_release);
        return found.front();
    }

    private:
    static std::vector<std::string> packs_beside(const std::string& root)
    {
        return root.empty() ? std::vector<std::string>{} : std::vector<std::string>{directory_of(root) + "/packs"};
    }

    Slot& slot_of(unsigned row)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        std::unique_ptr<Slot>& slot = slots_[row];
        if(slot == nullptr)
            slot = std::make_unique<Slot>(row);
        return *slot;
    }

    /// Resolves available kernels. Starts a thread that compiles the missing ones, unless another does,
    /// and throws StatusError if one is missing.
    void leave_to_background(const std::vector<Slot*>& pending)
    {
        std::vector<Slot*> due;
        {
            // One thread at a time, so that none waits for a compile of another thread.
            const std::lock_guard<std::mutex> finding(finding_);
            for(Slot* slot : pending)
                if(!slot->in_background)
                {
                    const std::lock_guard<std::mutex> lock(slot->mutex);
                    if(!slot->done)
                        slot->done = resolve_into(*slot, false);
                    if(!slot->done)
                    {
                        slot->in_background = true;
                        due.push_back(slot);
                    }
                }
        }
        if(!due.empty())
            in_background([this, due] {
                // The limit on concurrent compiles applies to all calls together.
                const std::lock_guard<std::mutex> lock(background_);
                side_by_side(due.size(), compiles_at_a_time(settings_.jobs), [&](std::size_t at) {
                    resolve_once(*due[at]);
                    due[at]->in_background = false;
                });
            });
        const auto missing = std::find_if(pending.begin(), pending.end(), [](const Slot* slot) { return !slot->done; });
        if(missing == pending.end())
            return;
        const Kernel& kernel   = module.kernels[(*missing)->row];
        const std::string what = std::string(kernel.name) + " for " + kernel.arch +
                                 " is compiled in the background; calls that need it answer -4 until it is there";
        say_once(what);
        throw StatusError(QOLA_STATUS_UNAVAILABLE, what);
    }

    void resolve_once(Slot& slot)
    {
        const std::lock_guard<std::mutex> lock(slot.mutex);
        if(!slot.done)
            slot.done = resolve_into(slot, true);
    }

    /// Returns whether the result is final. Without compiles, a missing kernel may appear later.
    bool resolve_into(Slot& slot, bool compile)
    {
        const Kernel& kernel = module.kernels[slot.row];
        const auto start     = std::chrono::steady_clock::now();
        try
        {
            if(!slot.recorded)
                record(kernel);
            slot.recorded = true;
            if(!settings_.errors.empty())
                throw Problem(join(settings_.errors, "\nqola: "));
            const qola_runtime::Kernel wanted{kernel.name, kernel.arch, kernel.code};
            const Library found =
                compile ? obtainer_.obtain(wanted, {module.identity, root_, module.index, trust_in_owner_of(own_file())})
                        : store_.find(wanted, module.identity);
            if(!found)
                return false;
            slot.functions = load(found, kernel.name);
            if(settings_.verbose)
                say(std::string(kernel.name) + " for " + kernel.arch + ": " + found.origin + ", " + time_since(start));
        }
        catch(const LockBusy& busy)
        {
            slot.problem = busy.what();
            say_once(slot.problem);
            return false;
        }
        catch(const std::exception& error)
        {
            // Includes exceptions of the standard library, such as bad_alloc.
            slot.problem = error.what();
            say_once(slot.problem);
        }
        return true;
    }

    void record(const Kernel& kernel) const
    {
        if(settings_.record.empty())
            return;
        try
        {
            const Fd fd = open_file(settings_.record, O_WRONLY | O_CREAT | O_APPEND, 0644);
            if(!fd)
                throw SystemError("open " + settings_.record, errno);
            write_all(fd.get(), std::string(kernel.name) + " " + kernel.arch + "\n", settings_.record);
        }
        catch(const Problem& problem)
        {
            say_once(std::string("QOLA_RECORD: ") + problem.what());
        }
    }

    const Settings& settings_;
    const std::string root_;
    Store store_;
    Obtainer obtainer_;
    std::mutex background_, finding_;
    std::mutex mutex_;
    std::map<unsigned, std::unique_ptr<Slot>> slots_;
};

Runtime& runtime()
{
    static Runtime& only = *new Runtime;
    return only;
}

void check(hipError_t error, const char* call)
{
    if(error == hipSuccess)
        return;
    const std::string what = std::string(call) + ": " + hipGetErrorString(error);
    // Composable Kernel would attribute an old error to its next launch.
    static_cast<void>(hipGetLastError());
    say(what);
    throw StatusError(QOLA_STATUS_FAILED, what);
}

unsigned row_for_current_device(unsigned row, unsigned count)
{
    const std::string& arch = arch_of_current_device(check);
    for(unsigned at = row; at < row + count; ++at)
        if(arch == module.kernels[at].arch)
            return at;
    const std::string what =
        std::string(module.kernels[row].name) + " is not in the library for " + arch + ", the current device";
    say_once(what);
    throw StatusError(QOLA_STATUS_NO_ARCH, what);
}

/// Converts failures of kernels to the entry points' exception.
template <typename Find>
const qola_kernel_function* found_by(Find find)
{
    try
    {
        return find();
    }
    catch(const StatusError&)
    {
        throw;
    }
    catch(const std::exception& error)
    {
        say_once(error.what());
        throw StatusError(QOLA_STATUS_UNAVAILABLE, error.what());
    }
}

/// Finds the kernels of a call by repeating it in a mode that launches nothing. Returns their rows, each
/// once, with `first` first; only `first` outside of a call, for a call that must not be repeated, and while
/// recording.
std::vector<unsigned> rows_of_call(unsigned first)
{
    using qola_entry::thread_call;
    std::vector<unsigned> rows{first};
    // Composable Kernel would attribute an old error to its launch and clear it. The call itself must
    // see it.
    if(thread_call.again == nullptr || thread_call.noted != nullptr || hipPeekAtLastError() != hipSuccess)
        return rows;
    std::vector<qola_entry::Noted> noted;
    try
    {
        const qola_entry::Recorded recorded(noted);
        thread_call.again(thread_call.call);
    }
    catch(const std::exception&)
    {
        // The call itself will report it.
    }
    for(const unsigned row : qola_entry::rows_of(noted))
        if(row != first)
            rows.push_back(row);
    return rows;
}

void load_rows(const std::vector<unsigned>& rows)
{
    found_by([&] { return runtime().functions(rows); });
}

} // namespace

const qola_kernel_function* resolve(unsigned row, unsigned count)
{
    return found_by([&] {
        const unsigned own                = count == 1 ? row : row_for_current_device(row, count);
        const qola_kernel_function* found = loaded[own].load(std::memory_order_acquire);
        return found != nullptr ? found : runtime().functions(rows_of_call(own));
    });
}

const qola_kernel_function* launching(unsigned row, unsigned count)
{
    std::vector<qola_entry::Noted>* noted = qola_entry::thread_call.noted;
    if(noted == nullptr)
        return functions(row, count);
    const unsigned own = count == 1 ? row : row_for_current_device(row, count);
    noted->push_back(qola_entry::Noted::of_row(module.kernels[own].name, own, load_rows));
    return nullptr;
}

} // namespace qola_lazy
