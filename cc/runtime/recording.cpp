#include "recording.h"

#include "qola_call.h"

#include <algorithm>
#include <exception>

#include <hip/hip_runtime_api.h>

namespace qola_lazy {
namespace {

using qola_entry::thread_call;

thread_local std::vector<unsigned>* noted = nullptr;

} // namespace

std::vector<unsigned> rows_of_call(unsigned first)
{
    std::vector<unsigned> rows{first};
    // Composable Kernel takes an old error for that of its launch, and forgets it: the call itself
    // has to meet it.
    if(thread_call.again == nullptr || thread_call.recording || hipPeekAtLastError() != hipSuccess)
        return rows;
    const qola_entry::Call recorded({thread_call.again, thread_call.call, true});
    noted = &rows;
    try
    {
        thread_call.again(thread_call.call);
    }
    catch(const std::exception&)
    {
        // The call itself comes to it.
    }
    noted = nullptr;
    return rows;
}

void note_row(unsigned row)
{
    if(std::find(noted->begin(), noted->end(), row) == noted->end())
        noted->push_back(row);
}

} // namespace qola_lazy

// What the library's own code launches beside the stubs, such as AITER's assembly kernels: by the
// linker's --wrap these stand before HIP's functions, in this library alone. Kernel libraries call
// HIP's.
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
    if(qola_entry::thread_call.recording)
        return hipSuccess;
    return __real_hipModuleLaunchKernel(function,
                                        grid_x,
                                        grid_y,
                                        grid_z,
                                        block_x,
                                        block_y,
                                        block_z,
                                        shared_bytes,
                                        stream,
                                        parameters,
                                        extra);
}

decltype(hipLaunchKernel) __real_hipLaunchKernel;
hipError_t __wrap_hipLaunchKernel(const void* function,
                                  dim3 grid,
                                  dim3 block,
                                  void** parameters,
                                  std::size_t shared_bytes,
                                  hipStream_t stream)
{
    if(qola_entry::thread_call.recording)
        return hipSuccess;
    return __real_hipLaunchKernel(function, grid, block, parameters, shared_bytes, stream);
}

} // extern "C"
