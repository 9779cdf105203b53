#include "library.h"

#include "runtime/lazy/arch_packs.h"
#include "runtime/lazy/device.h"
#include "runtime/lazy/sha256.h"
#include "runtime/lazy/text.h"

#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include <hip/hip_runtime_api.h>

namespace qola_triton {
namespace {

thread_local std::string error;

void check(hipError_t status, const std::string& what)
{
    if(status != hipSuccess)
        throw Refusal(QOLA_TRITON_FAILED, what + ": " + hipGetErrorString(status));
}

int current_device()
{
    int device = 0;
    check(hipGetDevice(&device), "hipGetDevice");
    return device;
}

using namespace qola_runtime;

/// Checks that an entry's code is the code that the library was built with. The entry's own digest does not
/// prove that, because a forger can change both.
void check_code(const std::string& path, const Instance& instance, std::string_view entry)
{
    const std::string found = sha256(entry.substr(0, entry.size() - kTrailerBytes));
    if(found != instance.key)
        throw Problem(path + ": " + instance.name + " is other code than " + table.library +
                      " was built with: it has the digest " + found + ", expected " + instance.key);
}

/// Returns the code object of a kernel from the first pack that has it. Throws Problem if none has it, or an
/// earlier pack is damaged.
std::string code_of(const Instance& instance, ArchPacks& packs)
{
    const auto found = packs.find(instance.arch, {instance.key});
    if(found.pack != nullptr)
    {
        std::string code = found.pack->find(instance.key);
        check_code(found.pack->path(), instance, code);
        return code;
    }
    if(!found.other.empty())
        throw Problem(found.other + " has no " + instance.name + " of this build of " + table.library);
    const std::string beside = directory_of(packs.file()) + "/" + packs.name_of(instance.arch);
    throw Problem(std::string("no pack of kernels for ") + instance.arch + ": " + beside);
}

/// Open packs and loaded kernels; never freed, because kernels may be requested while a process ends.
class Loaded
{
    public:
    hipFunction_t function(const Instance& instance)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        auto& found = functions_[{current_device(), &instance}];
        if(found == nullptr)
        {
            const std::string code = code_of(instance, packs_);
            hipModule_t module     = nullptr;
            check(hipModuleLoadData(&module, code.data()), std::string("load ") + instance.name);
            check(hipModuleGetFunction(&found, module, instance.symbol),
                  std::string("function ") + instance.symbol + " of " + instance.name);
        }
        return found;
    }

    private:
    std::mutex mutex_;
    ArchPacks packs_{table.library};
    std::map<std::pair<int, const Instance*>, hipFunction_t> functions_;
};

Loaded& loaded()
{
    static auto* const all = new Loaded;
    return *all;
}

bool has(const Instance& instance, const Choices& choices)
{
    for(const auto& [name, value] : choices)
    {
        bool same = false;
        for(std::size_t at = 0; at < instance.choice_count && !same; ++at)
            same = name == instance.choices[at].name && value == instance.choices[at].value;
        if(!same)
            return false;
    }
    return true;
}

std::string text_of(const std::string& kernel, const Choices& choices)
{
    std::string text = kernel;
    for(const auto& [name, value] : choices)
        text += " " + name + "=" + value;
    return text;
}

/// Returns the bytes of a number; throws if it is out of the type's range.
std::string bytes_of(const Instance& instance, const Argument& argument, const qola_triton_argument& value)
{
    const auto refuse = [&](const std::string& why) {
        throw Refusal(QOLA_TRITON_INVALID,
                      std::string(instance.kernel) + ": " + argument.name + " is " + std::to_string(value.integer) +
                          ", " + why);
    };
    if(argument.kind == 'f')
    {
        char bytes[8];
        const auto single = static_cast<float>(value.number);
        if(argument.bytes == 4)
            std::memcpy(bytes, &single, 4);
        else
            std::memcpy(bytes, &value.number, 8);
        return {bytes, argument.bytes};
    }
    const auto bits = static_cast<std::uint64_t>(value.integer);
    if(bits % argument.divisible != 0)
        refuse("no multiple of " + std::to_string(argument.divisible));
    if(argument.bytes < 8)
    {
        const std::int64_t half = std::int64_t{1} << (8 * argument.bytes - 1);
        const bool fits         = argument.kind == 'u' ? value.integer >= 0 && value.integer < 2 * half
                                                       : value.integer >= -half && value.integer < half;
        if(!fits)
            refuse("which " + std::to_string(8 * argument.bytes) + " bits do not hold");
    }
    return number_bytes(bits, static_cast<int>(argument.bytes));
}

} // namespace

const Instance& find(const std::string& kernel, const Choices& choices)
{
    const std::string& arch = arch_of_current_device(check);
    bool elsewhere          = false;
    for(std::size_t at = 0; at < table.count; ++at)
    {
        const Instance& instance = table.instances[at];
        if(kernel != instance.kernel || !has(instance, choices))
            continue;
        if(arch == instance.arch)
            return instance;
        elsewhere = true;
    }
    throw elsewhere
        ? Refusal(QOLA_TRITON_NO_ARCH, text_of(kernel, choices) + " is not for " + arch)
        : Refusal(QOLA_TRITON_NO_KERNEL, std::string(table.library) + " has no " + text_of(kernel, choices));
}

const Instance* named(const std::string& name)
{
    for(std::size_t at = 0; at < table.count; ++at)
        if(name == table.instances[at].name)
            return &table.instances[at];
    return nullptr;
}

void tell(const Instance& instance, qola_triton_found* found)
{
    if(found == nullptr || found->size < sizeof(std::size_t) || found->size > sizeof(*found))
        throw Refusal(QOLA_TRITON_INVALID, "no structure to tell in, or one of another size");
    const qola_triton_found all = {found->size, instance.name, instance.arch, instance.threads, instance.shared};
    std::memcpy(found, &all, found->size);
}

std::int64_t constant(const Instance& instance, const std::string& name)
{
    for(std::size_t at = 0; at < instance.choice_count; ++at)
        if(name == instance.choices[at].name)
        {
            char* end              = nullptr;
            const char* const text = instance.choices[at].value;
            const long long value  = std::strtoll(text, &end, 10);
            if(end != text && *end == '\0')
                return value;
            throw Refusal(QOLA_TRITON_INVALID, name + " is " + text + ", no whole number");
        }
    throw Refusal(QOLA_TRITON_INVALID, std::string(instance.name) + " has no " + name);
}

std::string packed(const Instance& instance, const Values& values)
{
    std::string bytes;
    for(std::size_t at = 0; at < instance.argument_count; ++at)
    {
        const Argument& argument = instance.arguments[at];
        const auto value         = values(argument.name);
        if(!value)
            throw Refusal(QOLA_TRITON_INVALID, std::string(instance.kernel) + ": nothing for " + argument.name);
        bytes.resize((bytes.size() + argument.bytes - 1) / argument.bytes * argument.bytes);
        bytes += bytes_of(instance, argument, *value);
    }
    // Scratch memory, which these kernels do not use.
    bytes.resize((bytes.size() + 7) / 8 * 8 + 16);
    return bytes;
}

Launch prepare(const Instance& instance, const Values& values, const Grid& grid)
{
    // First, so that wrong values are reported also without a pack.
    std::string arguments = packed(instance, values);
    return {loaded().function(instance), &instance, std::move(arguments), grid};
}

void run(Launch launch, void* stream)
{
    if(launch.grid[0] == 0 || launch.grid[1] == 0 || launch.grid[2] == 0)
        return;
    std::size_t size = launch.arguments.size();
    void* extra[]    = {HIP_LAUNCH_PARAM_BUFFER_POINTER,
                        launch.arguments.data(),
                        HIP_LAUNCH_PARAM_BUFFER_SIZE,
                        &size,
                        HIP_LAUNCH_PARAM_END};
    check(hipModuleLaunchKernel(static_cast<hipFunction_t>(launch.function),
                                launch.grid[0],
                                launch.grid[1],
                                launch.grid[2],
                                launch.instance->threads,
                                1,
                                1,
                                launch.instance->shared,
                                static_cast<hipStream_t>(stream),
                                nullptr,
                                extra),
          std::string("launch ") + launch.instance->name);
}

int guarded(const std::function<void()>& work) noexcept
{
    try
    {
        error.clear();
        work();
        return QOLA_TRITON_OK;
    }
    catch(const Refusal& refusal)
    {
        error = refusal.what();
        return refusal.status;
    }
    catch(const Problem& problem)
    {
        error = problem.what();
        return QOLA_TRITON_UNAVAILABLE;
    }
    catch(const std::exception& other)
    {
        error = other.what();
        return QOLA_TRITON_FAILED;
    }
}

const char* last_error() noexcept { return error.c_str(); }

} // namespace qola_triton
