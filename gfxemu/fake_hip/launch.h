// Checks and logs the launch of a kernel, and passes it to the program's emulator (gfxemu), if there is one.
#pragma once

#include "code_object.h"

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

extern "C" {

/// A launch for an emulator. The grid is in blocks, the block in work-items.
struct fake_hip_launch
{
    const char* kernel; ///< mangled name
    const void* code;   ///< the code object, an ELF file
    std::size_t code_bytes;
    std::uint32_t grid[3];
    std::uint32_t block[3];
    std::uint32_t dynamic_lds_bytes;
    const void* kernarg; ///< memory image of the arguments
    std::size_t kernarg_bytes;
};

/// Runs a kernel; returns 0 or the HIP error of the launch.
using fake_hip_emulator = int (*)(const fake_hip_launch*);

/// Sets the emulator that each launch calls; null removes it.
void fake_hip_emulate(fake_hip_emulator emulator);

/// Finds a __device__ variable: returns its address and writes its size, or returns null.
using fake_hip_variables = void* (*)(const void* code, std::size_t code_bytes, const char* name, std::size_t* size);

/// Sets the emulator's function that finds variables; null removes it.
void fake_hip_find_variables(fake_hip_variables find);

/// Device memory: writes address and size of up to `capacity` allocations, returns how many there are.
std::size_t fake_hip_allocations(std::uintptr_t* addresses, std::size_t* sizes, std::size_t capacity);

/// Follows from now on which bytes of new device memory are written.
void fake_hip_follow_writes();

/// Returns a byte for each one of an allocation, 1 if the host or, by the emulator, a kernel wrote it; or null.
unsigned char* fake_hip_written(const void* allocation);

/// Forgets the faults of kernels, which functions that wait for kernels return.
void fake_hip_forget_faults();

/// Freed device memory whose addresses have not been used again, as fake_hip_allocations.
std::size_t fake_hip_freed(std::uintptr_t* addresses, std::size_t* sizes, std::size_t capacity);

} // extern "C"

namespace fake_hip {

/// Parameters of a launch. The grid is in blocks, the block in work-items.
struct CallConfiguration
{
    dim3 grid;
    dim3 block;
    std::size_t dynamic_lds_bytes;
    hipStream_t stream;
};

/// A launch of a kernel.
struct Launch : CallConfiguration
{
    const CodeObject& code_object;
    const Kernel& kernel;
    const char* source; ///< "fatbin" or "module"
};

/// The kernarg segment of a launch whose arguments are given one pointer each: the explicit ones as
/// given, the hidden ones as the real runtime would fill them in, as far as they tell sizes.
std::string pack_arguments(const Launch& launch, void** arguments);

/// A __device__ variable in memory.
struct Variable
{
    void* address = nullptr;
    std::size_t size = 0;
};

/// Finds a variable of a code object; without an emulator it has no memory, and the process ends.
Variable find_variable(const CodeObject& code_object, const std::string& name);

/// Checks a launch, logs it as one line of JSON, and runs it if an emulator is set.
hipError_t launch(const Launch& launch, const std::string& kernarg);

} // namespace fake_hip
