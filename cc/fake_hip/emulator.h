// What a program that runs kernels itself asks of the fake runtime: see qola/emulate.
#pragma once

#include "launch.h"

#include <cstddef>
#include <cstdint>
#include <string>

extern "C" {

/// A launch as an emulator sees it. Grid in blocks, block in work-items.
struct fake_hip_launch
{
    const char* kernel; ///< mangled name
    const void* code;   ///< the code object, an ELF file
    std::size_t code_bytes;
    std::uint32_t grid[3];
    std::uint32_t block[3];
    std::uint32_t dynamic_lds_bytes;
    const void* kernarg; ///< the arguments as they lie in memory
    std::size_t kernarg_bytes;
};

/// Runs a kernel; 0, or the HIP error that the launch returns.
using fake_hip_emulator = int (*)(const fake_hip_launch*);

/// From now on kernels run: the emulator is called at each launch. Null ends that.
void fake_hip_emulate(fake_hip_emulator emulator);

/// Device memory: writes address and size of up to `capacity` allocations, returns how many there are.
std::size_t fake_hip_allocations(std::uintptr_t* addresses, std::size_t* sizes, std::size_t capacity);

} // extern "C"

namespace fake_hip {

/// Runs a launch where an emulator is there.
hipError_t emulate(const Launch& launch, const std::string& kernarg);

} // namespace fake_hip
