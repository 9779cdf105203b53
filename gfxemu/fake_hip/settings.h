// The simulated devices, and the functions that all parts of the fake runtime share. Only settings.cpp reads the
// environment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <hip/hip_runtime_api.h>

namespace fake_hip {

/// A GPU architecture as far as host code can see it.
struct Arch
{
    std::string_view name;      ///< processor, as in --offload-arch
    std::string_view features;  ///< what gcnArchName has after the processor
    std::uint32_t elf_mach;     ///< EF_AMDGPU_MACH of its code objects
    int cu_count;               ///< compute units, unless FAKE_HIP_CU_COUNT says otherwise
    std::uint32_t lds_bytes;    ///< LDS of one compute unit
    std::uint64_t memory_bytes; ///< device memory
    int major;                  ///< of the compute capability
    int minor;
    int wave_size;
};

/// Threads of a block at most, on every arch.
constexpr int kThreadsPerBlock = 1024;

/// How a function fails.
struct Failure
{
    int code;  ///< the error it returns
    int calls; ///< only its first calls, 0 for all of them
};

/// The environment of the process, checked.
struct Settings
{
    std::vector<Arch> archs;             ///< FAKE_HIP_ARCH and FAKE_HIP_CU_COUNT: of each device
    std::string log;                     ///< FAKE_HIP_LOG: where launches are written, empty for nowhere
    std::map<std::string, Failure> fail; ///< FAKE_HIP_FAIL: by name of the function
};

/// Returns the settings of this process, read once. Ends the process if they are wrong.
const Settings& settings();

/// Returns the thread's current device, and its arch.
int current_device();
const Arch& current_arch();

/// Prints the reason to standard error and aborts: a test must not pass by accident.
[[noreturn]] void refuse(const std::string& why);

/// Remembers an error as the thread's last one, and returns it.
hipError_t record(hipError_t error);

/// Records the fault of a kernel, which all later functions that wait for kernels return, on every thread.
hipError_t record_fault(hipError_t error);

/// Records a refused launch with <<<...>>>: the thread's next hipGetLastError or function that waits returns its error.
hipError_t record_refusal(hipError_t error);

/// Returns the error of a function that waits for kernels.
hipError_t launch_error();

/// Returns the error that FAKE_HIP_FAIL sets for a function, hipSuccess for none.
hipError_t injected(const char* function);

/// Ordinal of a stream: 0 for the default stream, then 1, 2, ... in order of creation; -1 for a
/// handle that is not a stream of this process.
int stream_number(hipStream_t stream);

/// The device of a stream that stream_number knows.
int stream_device(hipStream_t stream);

/// Records a write of the host to memory, if writes are followed; `from` is the source of a copy, or null.
void record_write(const void* to, std::size_t size, const void* from = nullptr);

} // namespace fake_hip

/// The first line of every function that may fail.
#define FAKE_HIP_ENTER()                                                               \
    do                                                                                 \
    {                                                                                  \
        if(const hipError_t error = fake_hip::injected(__func__); error != hipSuccess) \
            return fake_hip::record(error);                                            \
    } while(false)
