// Error handling of all functions of the fake runtime.
#pragma once

#include <hip/hip_runtime_api.h>

namespace fake_hip {

/// Remembers an error as the thread's last one, and returns it.
hipError_t record(hipError_t error);

/// Returns the error that FAKE_HIP_FAIL sets for a function, hipSuccess for none.
hipError_t injected(const char* function);

} // namespace fake_hip

/// The first line of every function that may fail.
#define FAKE_HIP_ENTER()                                                         \
    do                                                                           \
    {                                                                            \
        if(const hipError_t error = fake_hip::injected(__func__); error != hipSuccess) \
            return fake_hip::record(error);                                      \
    } while(false)
