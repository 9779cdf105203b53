#include "settings.h"

#include "launch.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace fake_hip {
namespace {

thread_local hipError_t last_error = hipSuccess;
thread_local hipError_t refusal    = hipSuccess;
std::atomic<hipError_t> fault{hipSuccess};

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

constexpr std::array kArchs{
    Arch{"gfx90a", ":sramecc+:xnack-", 0x3f, 110, 64 << 10, 64 * kGiB, 9, 0, 64},
    Arch{"gfx942", ":sramecc+:xnack-", 0x4c, 304, 64 << 10, 192 * kGiB, 9, 4, 64},
    Arch{"gfx950", ":sramecc+:xnack-", 0x4f, 256, 160 << 10, 288 * kGiB, 9, 5, 64},
    Arch{"gfx1100", "", 0x41, 48, 64 << 10, 24 * kGiB, 11, 0, 32},
    Arch{"gfx1201", "", 0x4e, 32, 64 << 10, 16 * kGiB, 12, 0, 32},
    Arch{"gfx1250", "", 0x49, 256, 320 << 10, 288 * kGiB, 12, 5, 32},
};

std::string variable(const char* name)
{
    const char* value = std::getenv(name);
    return value ? value : "";
}

int number(const std::string& text, const std::string& place)
{
    char* end        = nullptr;
    const long value = std::strtol(text.c_str(), &end, 10);
    if(text.empty() || *end != '\0' || value < 1 || value > 100000)
        refuse(place + ": \"" + text + "\" is not a number of 1 or more");
    return static_cast<int>(value);
}

Arch pretended(std::string_view name)
{
    for(Arch arch : kArchs)
    {
        if(arch.name != name)
            continue;
        if(const std::string count = variable("FAKE_HIP_CU_COUNT"); !count.empty())
            arch.cu_count = number(count, "FAKE_HIP_CU_COUNT");
        return arch;
    }
    std::string known;
    for(const Arch& arch : kArchs)
        known += (known.empty() ? "" : ", ") + std::string(arch.name);
    refuse("FAKE_HIP_ARCH: \"" + std::string(name) + "\" is none of " + known);
}

std::vector<Arch> pretended_devices()
{
    const std::string names = variable("FAKE_HIP_ARCH");
    std::vector<Arch> result;
    for(std::size_t begin = 0; begin <= names.size();)
    {
        const std::size_t end = std::min(names.find(',', begin), names.size());
        result.push_back(pretended(std::string_view(names).substr(begin, end - begin)));
        begin = end + 1;
    }
    return result;
}

// A misspelt name would never fail, and the test that relies on it would test nothing.
void check_is_exported(const std::string& function)
{
    Dl_info self{};
    dladdr(reinterpret_cast<const void*>(&settings), &self);
    void* library = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if(!library || !dlsym(library, function.c_str()))
        refuse("FAKE_HIP_FAIL: no function " + function);
    dlclose(library);
}

std::map<std::string, Failure> failures(const std::string& text)
{
    std::map<std::string, Failure> result;
    for(std::size_t begin = 0; begin < text.size();)
    {
        const std::size_t end    = std::min(text.find(',', begin), text.size());
        const std::string item   = text.substr(begin, end - begin);
        const std::size_t equals = item.find('=');
        if(equals == std::string::npos)
            refuse("FAKE_HIP_FAIL: \"" + item + "\" is not of the form hipFunction=code");
        const std::string function = item.substr(0, equals);
        check_is_exported(function);
        const std::string place = "FAKE_HIP_FAIL: " + function;
        const std::string value = item.substr(equals + 1);
        const std::size_t times = value.find('*');
        const bool every        = times == std::string::npos;
        result[function] = {number(value.substr(0, times), place), every ? 0 : number(value.substr(times + 1), place)};
        begin            = end + 1;
    }
    return result;
}

} // namespace

const Settings& settings()
{
    static const Settings read{pretended_devices(), variable("FAKE_HIP_LOG"), failures(variable("FAKE_HIP_FAIL"))};
    return read;
}

void refuse(const std::string& why)
{
    std::fprintf(stderr, "fake_hip: %s\n", why.c_str());
    std::abort();
}

hipError_t record(hipError_t error)
{
    if(error != hipSuccess)
        last_error = error;
    return error;
}

hipError_t record_fault(hipError_t error)
{
    fault.store(error);
    return record(error);
}

hipError_t record_refusal(hipError_t error)
{
    refusal = error;
    return record(error);
}

hipError_t launch_error()
{
    const hipError_t refused = std::exchange(refusal, hipSuccess);
    const hipError_t error   = fault;
    return record(error != hipSuccess ? error : refused);
}

hipError_t injected(const char* function)
{
    const auto& fail = settings().fail;
    const auto found = fail.find(function);
    if(found == fail.end())
        return hipSuccess;
    const Failure& failure = found->second;
    if(failure.calls != 0)
    {
        static std::mutex mutex;
        static std::map<std::string, int> failed;
        const std::scoped_lock lock(mutex);
        if(++failed[function] > failure.calls)
            return hipSuccess;
    }
    return static_cast<hipError_t>(failure.code);
}

} // namespace fake_hip

using fake_hip::last_error;

extern "C" {

void fake_hip_forget_faults() { fake_hip::fault.store(hipSuccess); }

hipError_t hipGetLastError()
{
    const hipError_t error = last_error;
    last_error             = hipSuccess;
    fake_hip::refusal      = hipSuccess;
    return error;
}

hipError_t hipPeekAtLastError() { return last_error; }

const char* hipGetErrorName(hipError_t error)
{
#define NAME(code) \
    case code: return #code
    switch(error)
    {
        NAME(hipSuccess);
        NAME(hipErrorInvalidValue);
        NAME(hipErrorOutOfMemory);
        NAME(hipErrorNotInitialized);
        NAME(hipErrorInvalidConfiguration);
        NAME(hipErrorInvalidDevicePointer);
        NAME(hipErrorInvalidDeviceFunction);
        NAME(hipErrorNoDevice);
        NAME(hipErrorInvalidDevice);
        NAME(hipErrorInvalidImage);
        NAME(hipErrorNoBinaryForGpu);
        NAME(hipErrorFileNotFound);
        NAME(hipErrorInvalidSymbol);
        NAME(hipErrorInvalidHandle);
        NAME(hipErrorNotFound);
        NAME(hipErrorNotReady);
        NAME(hipErrorIllegalAddress);
        NAME(hipErrorLaunchOutOfResources);
        NAME(hipErrorLaunchFailure);
        NAME(hipErrorNotSupported);
        NAME(hipErrorInvalidContext);
        NAME(hipErrorAlreadyMapped);
        NAME(hipErrorHostMemoryAlreadyRegistered);
        NAME(hipErrorHostMemoryNotRegistered);
        NAME(hipErrorPeerAccessAlreadyEnabled);
        NAME(hipErrorPeerAccessNotEnabled);
        NAME(hipErrorCooperativeLaunchTooLarge);
        NAME(hipErrorUnknown);
    default: return "hipErrorUnknown";
    }
#undef NAME
}

// The real runtime's sentences are its own; a name says the same to a test.
const char* hipGetErrorString(hipError_t error) { return hipGetErrorName(error); }

hipError_t hipExtGetLastError() { return hipGetLastError(); }

hipError_t hipDrvGetErrorName(hipError_t error, const char** name)
{
    *name = hipGetErrorName(error);
    return hipSuccess;
}

hipError_t hipDrvGetErrorString(hipError_t error, const char** text) { return hipDrvGetErrorName(error, text); }

} // extern "C"
