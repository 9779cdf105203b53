#include "saxpy.h"

#include <hip/hip_runtime.h>

namespace {

constexpr unsigned kBlock = 256;

__global__ void saxpy_kernel(float a, const float* x, float* y, std::size_t n)
{
    const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if(i < n)
        y[i] = a * x[i] + y[i];
}

} // namespace

hipError_t saxpy(float a, const float* x, float* y, std::size_t n, hipStream_t stream)
{
    const dim3 grid((n + kBlock - 1) / kBlock);
    saxpy_kernel<<<grid, kBlock, 0, stream>>>(a, x, y, n);
    return hipGetLastError();
}
