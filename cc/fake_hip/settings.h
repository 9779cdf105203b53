// The simulated device. No other file of the fake runtime reads the environment.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace fake_hip {

/// A GPU architecture as far as host code can see it.
struct Arch
{
    std::string_view name;       ///< processor, as in --offload-arch
    std::string_view features;   ///< what gcnArchName has after the processor
    std::uint32_t elf_mach;      ///< EF_AMDGPU_MACH of its code objects
    int cu_count;                ///< compute units, unless FAKE_HIP_CU_COUNT says otherwise
    std::uint32_t lds_bytes;     ///< LDS of one compute unit
    std::uint64_t memory_bytes;  ///< device memory
    int major;                   ///< of the compute capability
    int minor;
    int wave_size;
};

/// How a function fails.
struct Failure
{
    int code;   ///< the error it returns
    int calls;  ///< only its first calls, 0 for all of them
};

/// The environment of the process, checked.
struct Settings
{
    Arch arch;                        ///< FAKE_HIP_ARCH and FAKE_HIP_CU_COUNT
    std::string log;                  ///< FAKE_HIP_LOG: where launches are written, empty for nowhere
    std::map<std::string, Failure> fail;  ///< FAKE_HIP_FAIL: by name of the function
};

/// Returns the settings of this process, read once. Ends the process if they are wrong.
const Settings& settings();

/// Prints the reason to standard error and aborts: a test must not pass by accident.
[[noreturn]] void refuse(const std::string& why);

} // namespace fake_hip
