#include "tests/hip/scale.h"

#include "check.h"
#include "factor.h"

#include <hip/hip_runtime.h>

__global__ void scale_kernel(int* values, int count)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if(i < count)
        values[i] *= SCALE * FACTOR;
}

void scale(int* values, int count)
{
    scale_kernel<<<(count + 63) / 64, 64>>>(values, count);
    CHECK(hipGetLastError());
}
