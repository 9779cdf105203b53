// Wraps this library's calls of HIP functions, by the linker's --wrap. While a call is recorded, the wrappers
// record kernels and do nothing else. Kernel libraries of a lazy library call HIP directly.
#include "qola_call.h"

#include <hip/hip_runtime_api.h>

using qola_entry::Noted;
using qola_entry::thread_call;

// The linker needs a wrapper for each wrapped function, even if a library does not call it.
__attribute__((used)) static const void* const wrapped[] = {
    reinterpret_cast<const void*>(&hipLaunchHostFunc),
    reinterpret_cast<const void*>(&hipLaunchKernel),
    reinterpret_cast<const void*>(&hipMemcpyAsync),
    reinterpret_cast<const void*>(&hipMemsetAsync),
    reinterpret_cast<const void*>(&hipModuleLaunchKernel),
};

extern "C" {

decltype(hipModuleLaunchKernel) __real_hipModuleLaunchKernel;
hipError_t __wrap_hipModuleLaunchKernel(hipFunction_t function,
                                        unsigned grid_x,
                                        unsigned grid_y,
                                        unsigned grid_z,
                                        unsigned block_x,
                                        unsigned block_y,
                                        unsigned block_z,
                                        unsigned shared_bytes,
                                        hipStream_t stream,
                                        void** parameters,
                                        void** extra)
{
    if(thread_call.noted != nullptr)
    {
        thread_call.noted->push_back(Noted::of_module(function));
        return hipSuccess;
    }
    return __real_hipModuleLaunchKernel(
        function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, extra);
}

decltype(hipLaunchKernel) __real_hipLaunchKernel;
hipError_t __wrap_hipLaunchKernel(
    const void* function, dim3 grid, dim3 block, void** parameters, std::size_t shared_bytes, hipStream_t stream)
{
    if(thread_call.noted != nullptr)
    {
        thread_call.noted->push_back(Noted::of_program(function));
        return hipSuccess;
    }
    return __real_hipLaunchKernel(function, grid, block, parameters, shared_bytes, stream);
}

// Memory functions that later AITERs call around kernels, for memory that a recorded call lacks.
decltype(hipMemcpyAsync) __real_hipMemcpyAsync;
hipError_t __wrap_hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind, hipStream_t stream)
{
    return thread_call.noted != nullptr ? hipSuccess : __real_hipMemcpyAsync(to, from, bytes, kind, stream);
}

decltype(hipMemsetAsync) __real_hipMemsetAsync;
hipError_t __wrap_hipMemsetAsync(void* to, int value, std::size_t bytes, hipStream_t stream)
{
    return thread_call.noted != nullptr ? hipSuccess : __real_hipMemsetAsync(to, value, bytes, stream);
}

decltype(hipLaunchHostFunc) __real_hipLaunchHostFunc;
hipError_t __wrap_hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void* of)
{
    if(thread_call.noted == nullptr)
        return __real_hipLaunchHostFunc(stream, function, of);
    // It only frees memory and does not read the device.
    function(of);
    return hipSuccess;
}

} // extern "C"
