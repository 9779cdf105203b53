// Wraps AITER's entry points; not installed.
#pragma once

#include "qola_call.h"
#include "qola_common.h"
#include "qola_reach.h"

#include <hip/hip_runtime_api.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

#ifdef QOLA_ASM
#include "qola_asm.h"
#endif

#define QOLA_TEXT_(...) #__VA_ARGS__
#define QOLA_TEXT(...) QOLA_TEXT_(__VA_ARGS__)

static_assert(QOLA_NS(status::no_kernel) == QOLA_STATUS_NO_KERNEL && QOLA_NS(status::no_arch) == QOLA_STATUS_NO_ARCH &&
              QOLA_NS(status::failed) == QOLA_STATUS_FAILED && QOLA_NS(status::unavailable) == QOLA_STATUS_UNAVAILABLE);

namespace qola_entry {

/// Archs of this library's code, separated by commas.
constexpr std::string_view archs = QOLA_TEXT(QOLA_ARCHS);

/// Returns whether a comma-separated list contains an arch.
template <class Meant>
bool any_of(std::string_view listed, Meant meant)
{
    for(std::string_view rest = listed; !rest.empty();)
    {
        const std::size_t end = rest.find(',');
        if(meant(rest.substr(0, end)))
            return true;
        rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    }
    return false;
}

/// Returns whether `archs` contains the arch that a device reports, such as "gfx950:sramecc+:xnack-".
inline bool has_code_for(std::string_view device)
{
    const std::string_view arch = device.substr(0, device.find(':'));
    return any_of(archs, [arch](std::string_view own) { return own == arch; });
}

/// Reports a failed HIP call on standard error, and clears the error, which Composable Kernel would
/// attribute to its next launch.
inline float failed(const char* function, const char* call, hipError_t error)
{
    std::fprintf(stderr, "qola: %s: %s: %s\n", function, call, hipGetErrorString(error));
    copy_text(reason, (std::string(call) + ": " + hipGetErrorString(error)).c_str());
    static_cast<void>(hipGetLastError());
    return QOLA_NS(status::failed);
}

/// Returns 0 if the current device can run this library, else a status.
inline float status_of_current_device(const char* function)
{
    enum State : char { unknown, served, foreign };
    // Cached per device: querying properties takes a millisecond.
    static std::array<std::atomic<State>, 64> states{};
    int device = 0;
    if(const hipError_t error = hipGetDevice(&device); error != hipSuccess)
        return failed(function, "hipGetDevice", error);
    // Beyond the cache: the launch will report a missing arch.
    if(device < 0 || device >= static_cast<int>(states.size()))
        return 0;
    State state = states[device].load(std::memory_order_relaxed);
    if(state == unknown)
    {
        hipDeviceProp_t properties;
        if(const hipError_t error = hipGetDeviceProperties(&properties, device); error != hipSuccess)
            return failed(function, "hipGetDeviceProperties", error);
        state = has_code_for(properties.gcnArchName) ? served : foreign;
        if(state == foreign)
            std::fprintf(stderr,
                         "qola: %s: no kernel for this arch: device %d is %s, the library has %s\n",
                         function,
                         device,
                         properties.gcnArchName,
                         archs.data());
        states[device].store(state, std::memory_order_relaxed);
    }
    return state == served ? 0 : QOLA_NS(status::no_arch);
}

/// Sets a variable, and restores it on destruction.
template <typename Value>
class Restored
{
    public:
    Restored(Value& variable, Value value) : variable_(variable), before_(variable) { variable_ = value; }
    ~Restored() { variable_ = before_; }
    Restored(const Restored&)            = delete;
    Restored& operator=(const Restored&) = delete;

    private:
    Value& variable_;
    const Value before_;
};

/// Calls `run()`, which launches nothing, and returns 0 if it throws.
template <typename Run>
auto value(const char* function, Run run) -> decltype(run())
{
    try
    {
        return run();
    }
    catch(const std::exception& error)
    {
        std::fprintf(stderr, "qola: %s: %s\n", function, error.what());
        return {};
    }
}

/// Returns whether a forward problem has a soft cap or skipped sequences, which assembly kernels of later
/// AITERs silently ignore.
template <typename Args>
bool beyond_assembly(const Args& args)
{
    if constexpr(requires {
                     args.use_asm_v3;
                     args.logits_soft_cap;
                     args.min_seqlen_q;
                 })
        return args.logits_soft_cap != 0.f || args.min_seqlen_q != 0;
    return false;
}

/// Excludes assembly kernels that would ignore a part of the forward problem; most also ignore a sink.
/// Throws no_kernel if there are no other kernels.
template <typename Args>
Args for_assembly(const Args& args)
{
#if defined(ENABLE_CK) && !ENABLE_CK
    if(beyond_assembly(args))
        throw StatusError(QOLA_STATUS_NO_KERNEL, "only Composable Kernel supports the problem");
#endif
    Args own = args;
    if constexpr(requires { own.use_asm_v3; })
        own.use_asm_v3 = own.use_asm_v3 && !beyond_assembly(own);
    if constexpr(requires {
                     own.use_asm_v3;
                     own.sink_ptr;
                 })
        own.use_asm_v3 = own.use_asm_v3 && own.sink_ptr == nullptr;
    return own;
}

/// Calls `run(use_asm)` and converts exceptions to a status.
///
/// Composable Kernel and the embedded assembly kernels throw if a HIP call fails, but callers of these
/// functions expect numbers.
template <typename Run>
float answer(const char* function, bool use_asm, Run run)
{
    if(const float status = status_of_current_device(function); status != 0)
        return status;
    try
    {
#ifdef QOLA_ASM
        try
        {
            return run(use_asm);
        }
        catch(const qola_asm::NotEmbedded&)
        {
            // AITER does not ship the code object of this table row: let Composable Kernel serve the problem.
            return run(false);
        }
#else
        (void)use_asm;
        return run(false);
#endif
    }
    catch(const StatusError& error)
    {
        copy_text(reason, error.what());
        return error.status;
    }
    catch(const std::exception& error)
    {
        std::fprintf(stderr, "qola: %s: %s\n", function, error.what());
        copy_text(reason, error.what());
        // Composable Kernel would attribute an old error to its next launch.
        static_cast<void>(hipGetLastError());
        return QOLA_NS(status::failed);
    }
}

} // namespace qola_entry
