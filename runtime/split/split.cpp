// Implements the HIP functions by which a library registers and launches kernels with device code from packs.
//
// Definitions in the library take precedence over those of HIP's runtime. A kernel is launched by hipModuleLaunchKernel,
// from a module that is loaded at the kernel's first launch on a device. HIP itself would register all code at once, and
// for one arch per host function. Modules and mapped code stay until the process ends, because HIP may be gone before
// destructors of the library run; a process that unloads the library keeps them, like the modules of assembly kernels.
#include "table.h"

#include "runtime/lazy/arch_packs.h"
#include "runtime/lazy/files.h"
#include "runtime/lazy/text.h"
#include "qola_call.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include <hip/hip_runtime_api.h>

extern "C" {
decltype(hipModuleLoadData) __real_hipModuleLoadData;
decltype(hipModuleLoadData) __wrap_hipModuleLoadData;
}

namespace {

using namespace qola_runtime;
using namespace qola_split;

/// The structure that clang emits for a bundle.
struct FatBinaryWrapper
{
    std::uint32_t magic;
    std::uint32_t version;
    const void* binary;
    void* unused;
};

/// A kernel: its host function, its name in device code, and the place of its bundle.
struct Function
{
    const void* host;
    const char* name;
    const void* place;
};

/// Returns a kernel's name for messages: start and end of a mangled name, which may have thousands of characters.
std::string shown(const Function& function)
{
    constexpr std::size_t kStart = 100, kEnd = 40;
    const std::string name = function.name;
    if(name.size() <= kStart + kEnd)
        return name;
    return name.substr(0, kStart) + "..." + name.substr(name.size() - kEnd);
}

/// The library's kernels. Constructors of the library fill the list one after the other; later it is only read. It is
/// not destroyed, because the library may launch kernels while a process ends.
std::vector<Function>& functions()
{
    static auto* const all = new std::vector<Function>;
    return *all;
}

void check(hipError_t status, const std::string& what)
{
    if(status != hipSuccess)
        throw std::runtime_error(what + ": " + hipGetErrorString(status));
}

/// Returns the positions of kernels in functions() by host function.
const std::unordered_map<const void*, std::size_t>& function_index()
{
    static const auto& found = *[] {
        auto* const all = new std::unordered_map<const void*, std::size_t>;
        for(std::size_t number = 0; number < functions().size(); ++number)
            all->emplace(functions()[number].host, number);
        return all;
    }();
    return found;
}

/// Makes a device the thread's current one, and restores the previous one on destruction.
class CurrentDevice
{
    public:
    explicit CurrentDevice(int device)
    {
        check(hipGetDevice(&before_), "hipGetDevice");
        changed_ = before_ != device;
        if(changed_)
            check(hipSetDevice(device), "hipSetDevice");
    }
    ~CurrentDevice()
    {
        if(changed_)
            static_cast<void>(hipSetDevice(before_));
    }
    CurrentDevice(const CurrentDevice&)            = delete;
    CurrentDevice& operator=(const CurrentDevice&) = delete;

    private:
    int before_   = 0;
    bool changed_ = false;
};

/// The pack of an arch, or the reason why there is none.
struct Part
{
    const ArchCode* codes = nullptr;
    const Pack* pack      = nullptr;
    std::string problem;
    std::map<const void*, const void*> mapped; ///< code by place
};

struct Device
{
    int number = 0;
    Part* part = nullptr;
    std::map<const void*, hipModule_t> modules; ///< by place of the bundle
    /// By position in functions(); null until the first launch.
    std::vector<std::atomic<hipFunction_t>> launched;
};

/// Returns the command that installs a pack of the wheel that a library belongs to; empty outside of a wheel.
std::string pip_command(const std::string& library, const std::string& arch)
{
    const std::string package = directory_of(directory_of(library));
    if(!is_file(package + "/__init__.py"))
        return {};
    const std::string name = base_name(package);
    std::string version;
    for(const std::string& entry : names_in(directory_of(package)))
        if(starts_with(entry, name + "-") && ends_with(entry, ".dist-info"))
            version = "==" + entry.substr(name.size() + 1, entry.size() - name.size() - 1 - 10);
    std::string project = name + "-" + arch;
    std::replace(project.begin(), project.end(), '_', '-');
    return "pip install " + project + version;
}

class Code
{
    public:
    /// Returns a kernel for the device of a stream. Throws StatusError if its code is unavailable.
    hipFunction_t function(const void* host, hipStream_t stream)
    {
        const auto at = function_index().find(host);
        if(at == function_index().end())
            throw std::runtime_error(std::string(table.library) + ": a launch of an unknown function");
        Device& device            = device_of(stream);
        const hipFunction_t found = device.launched[at->second].load(std::memory_order_acquire);
        return found != nullptr ? found : load(device, at->second);
    }

    /// Returns the code of an embedded code object, or null for the address of something else.
    const void* code_object(const void* place)
    {
        for(std::size_t at = 0; at < table.count; ++at)
            if(const DeviceCode* const code = find(table.archs[at], place))
            {
                const std::lock_guard<std::mutex> lock(mutex_);
                return map(part_of(table.archs[at].arch), *code);
            }
        return nullptr;
    }

    private:
    static const DeviceCode* find(const ArchCode& codes, const void* place)
    {
        const auto* const end   = codes.codes + codes.count;
        const auto* const found = std::lower_bound(
            codes.codes, end, place, [](const DeviceCode& code, const void* wanted) { return code.place < wanted; });
        return found != end && found->place == place ? found : nullptr;
    }

    Device& device_of(hipStream_t stream)
    {
        int number = 0;
        // HIP's streams without an object, 0 to 2, are of the current device.
        if(reinterpret_cast<std::uintptr_t>(stream) <= 2)
            check(hipGetDevice(&number), "hipGetDevice");
        else
            check(hipStreamGetDevice(stream, &number), "hipStreamGetDevice");
        const bool common = number >= 0 && number < static_cast<int>(devices_.size());
        if(common)
            if(Device* const device = devices_[number].load(std::memory_order_acquire))
                return *device;
        const std::lock_guard<std::mutex> lock(mutex_);
        std::unique_ptr<Device>& device = all_devices_[number];
        if(device == nullptr)
        {
            hipDeviceProp_t properties;
            check(hipGetDeviceProperties(&properties, number), "hipGetDeviceProperties");
            const std::string name = properties.gcnArchName;
            auto own               = std::make_unique<Device>();
            own->number            = number;
            own->part              = &part_of(name.substr(0, name.find(':')));
            own->launched          = std::vector<std::atomic<hipFunction_t>>(functions().size());
            device                 = std::move(own);
        }
        if(common)
            devices_[number].store(device.get(), std::memory_order_release);
        return *device;
    }

    hipFunction_t load(Device& device, std::size_t number)
    {
        const Function& function = functions()[number];
        const std::lock_guard<std::mutex> lock(mutex_);
        hipFunction_t found = device.launched[number].load(std::memory_order_relaxed);
        if(found != nullptr)
            return found;
        const CurrentDevice current(device.number);
        hipModule_t& module = device.modules[function.place];
        if(module == nullptr)
        {
            const DeviceCode* const code =
                device.part->codes == nullptr ? nullptr : find(*device.part->codes, function.place);
            if(code == nullptr)
                throw std::runtime_error(std::string(table.library) + ": " + shown(function) +
                                         " is not for the arch of device " + std::to_string(device.number));
            const void* const image = map(*device.part, *code);
            check(__real_hipModuleLoadData(&module, image), "load the code of " + shown(function));
        }
        check(hipModuleGetFunction(&found, module, function.name), "find " + shown(function));
        device.launched[number].store(found, std::memory_order_release);
        return found;
    }

    /// Returns an arch's part, and searches its pack the first time.
    Part& part_of(const std::string& arch)
    {
        const auto [at, added] = parts_.try_emplace(arch);
        Part& part             = at->second;
        if(!added)
            return part;
        for(std::size_t number = 0; number < table.count; ++number)
            if(arch == table.archs[number].arch)
                part.codes = &table.archs[number];
        std::vector<std::string> keys;
        for(std::size_t number = 0; part.codes != nullptr && number < part.codes->count; ++number)
            keys.emplace_back(part.codes->codes[number].key);
        try
        {
            const ArchPacks::Found found = packs_.find(arch, keys);
            part.pack                    = found.pack;
            if(found.pack == nullptr)
                part.problem = missing(arch, found);
        }
        catch(const std::exception& problem)
        {
            part.problem = problem.what();
        }
        return part;
    }

    std::string missing(const std::string& arch, const ArchPacks::Found& found) const
    {
        const std::string name    = packs_.name_of(arch);
        const std::string library = base_name(packs_.file());
        std::string fix           = pip_command(packs_.file(), arch);
        if(fix.empty())
            fix = "copy " + name + " of the same build to " + directory_of(packs_.file()) +
                  ", or name it or its directory in QOLA_PACKS";
        const std::string why = found.other.empty()
            ? library + " has no device code for " + arch + ": " + name + " is missing"
            : found.other + " is not of the same build as " + library;
        return why + "; searched: " + join(found.searched, ", ") + "; fix: " + fix;
    }

    /// Returns mapped code. Throws StatusError if it is unavailable, after a message.
    const void* map(Part& part, const DeviceCode& code)
    {
        const void*& mapped = part.mapped[code.place];
        if(mapped != nullptr)
            return mapped;
        std::string problem = part.problem;
        if(problem.empty())
            try
            {
                return mapped = part.pack->map_code(code.key).data();
            }
            catch(const Problem& damaged)
            {
                problem = damaged.what();
            }
        say_once(problem);
        throw qola_entry::StatusError(QOLA_STATUS_UNAVAILABLE, problem);
    }

    std::mutex mutex_; ///< protects the members below, except devices_
    ArchPacks packs_{table.library};
    std::map<std::string, Part> parts_;
    std::map<int, std::unique_ptr<Device>> all_devices_;
    /// Those of all_devices_ with a small number, for calls without a lock.
    std::array<std::atomic<Device*>, 64> devices_{};
};

Code& code()
{
    static auto* const all = new Code;
    return *all;
}

} // namespace

extern "C" {

// No header declares the functions that clang calls.
void** __hipRegisterFatBinary(const void* data);
void __hipRegisterFunction(void**, const void*, char*, const char*, unsigned, void*, void*, void*, void*, int*);
void __hipUnregisterFatBinary(void**);

void** __hipRegisterFatBinary(const void* data) { return static_cast<void**>(const_cast<void*>(data)); }

void __hipRegisterFunction(void** wrapper,
                           const void* host,
                           char*,
                           const char* name,
                           unsigned,
                           void*,
                           void*,
                           void*,
                           void*,
                           int*)
{
    functions().push_back({host, name, reinterpret_cast<const FatBinaryWrapper*>(wrapper)->binary});
}

void __hipUnregisterFatBinary(void**) {}

hipError_t hipLaunchKernel(
    const void* host, dim3 grid, dim3 block, void** parameters, std::size_t shared_bytes, hipStream_t stream)
{
    return hipModuleLaunchKernel(code().function(host, stream),
                                 grid.x,
                                 grid.y,
                                 grid.z,
                                 block.x,
                                 block.y,
                                 block.z,
                                 static_cast<unsigned>(shared_bytes),
                                 stream,
                                 parameters,
                                 nullptr);
}

const char* hipKernelNameRefByPtr(const void* host, hipStream_t)
{
    const auto at = function_index().find(host);
    return at == function_index().end() ? nullptr : functions()[at->second].name;
}

hipError_t __wrap_hipModuleLoadData(hipModule_t* module, const void* image)
{
    const void* const packed = code().code_object(image);
    return __real_hipModuleLoadData(module, packed != nullptr ? packed : image);
}

} // extern "C"
