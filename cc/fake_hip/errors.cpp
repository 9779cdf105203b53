#include "errors.h"

#include "settings.h"

#include <mutex>

namespace fake_hip {
namespace {
thread_local hipError_t last_error = hipSuccess;
}

hipError_t record(hipError_t error)
{
    if(error != hipSuccess)
        last_error = error;
    return error;
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

hipError_t hipGetLastError()
{
    const hipError_t error = last_error;
    last_error             = hipSuccess;
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
        NAME(hipErrorInvalidHandle);
        NAME(hipErrorNotFound);
        NAME(hipErrorNotReady);
        NAME(hipErrorIllegalAddress);
        NAME(hipErrorLaunchOutOfResources);
        NAME(hipErrorLaunchFailure);
        NAME(hipErrorNotSupported);
        NAME(hipErrorUnknown);
    default: return "hipErrorUnknown";
    }
#undef NAME
}

// The real runtime's sentences are its own; a name says the same to a test.
const char* hipGetErrorString(hipError_t error) { return hipGetErrorName(error); }

} // extern "C"
