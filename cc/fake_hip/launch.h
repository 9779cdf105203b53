// A kernel launch up to the point where a GPU would start it.
#pragma once

#include "code_object.h"

#include <hip/hip_runtime_api.h>

#include <string>

// Opaque in HIP's headers.
struct ihipModuleSymbol_t
{
    const fake_hip::CodeObject* code_object;
    const fake_hip::Kernel* kernel;
};

namespace fake_hip {

/// Returns whether hipGetFuncBySymbol returned this function and its kernel is still registered.
bool is_of_symbol(hipFunction_t function);

/// The launch parameters and the origin of the kernel. The grid is in blocks, the block in work-items.
struct Launch
{
    const CodeObject& code_object;
    const Kernel& kernel;
    const char* source; ///< "fatbin" or "module"
    dim3 grid;
    dim3 block;
    std::size_t dynamic_lds_bytes;
    hipStream_t stream;
};

/// The kernarg segment of a launch whose arguments are given one pointer each: the explicit ones as
/// given, the hidden ones as the real runtime would fill them in, as far as they tell sizes.
std::string pack_arguments(const Launch& launch, void** arguments);

/// Checks a launch, logs it as one line of JSON, and runs it if an emulator is set.
hipError_t launch(const Launch& launch, const std::string& kernarg);

} // namespace fake_hip
