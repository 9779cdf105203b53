// __device__ variables that host code reads and writes, and memory of the host that kernels write.
#include "check.h"

#include <hip/hip_runtime.h>

__device__ int counts[4] = {1, 2, 3, 4};
__constant__ int factor  = 0;

__global__ void multiply(int* copy)
{
    counts[threadIdx.x] *= factor;
    copy[threadIdx.x] = counts[threadIdx.x];
}

int main()
{
    const int five = 5, hundred = 100;
    int *copy = nullptr, *address = nullptr, last = 0;
    std::size_t size = 0;
    CHECK(hipMemcpyToSymbol(HIP_SYMBOL(factor), &five, sizeof five));
    CHECK(hipMemcpyToSymbol(HIP_SYMBOL(counts), &hundred, sizeof hundred, sizeof(int)));
    CHECK(hipGetSymbolAddress(reinterpret_cast<void**>(&address), HIP_SYMBOL(counts)));
    CHECK(hipGetSymbolSize(&size, HIP_SYMBOL(counts)));
    CHECK(hipHostMalloc(reinterpret_cast<void**>(&copy), sizeof counts, 0));
    multiply<<<1, 4>>>(copy);
    CHECK(hipGetLastError());
    CHECK(hipDeviceSynchronize());
    CHECK(hipMemcpyFromSymbol(&last, HIP_SYMBOL(counts), sizeof last, 3 * sizeof(int)));
    int third = 0;
    CHECK(hipMemcpy(&third, address + 2, sizeof third, hipMemcpyDeviceToHost));
    if(size != sizeof counts || copy[0] != 5 || copy[1] != 500 || third != 15 || last != 20)
    {
        std::fprintf(stderr, "%zu bytes: %d, %d, %d, %d\n", size, copy[0], copy[1], third, last);
        return 1;
    }
    if(hipMemcpyToSymbol(HIP_SYMBOL(factor), &five, sizeof five, 1) != hipErrorInvalidValue)
    {
        std::fprintf(stderr, "a copy beyond a variable\n");
        return 1;
    }
    CHECK(hipHostFree(copy));
    int lanes = 0;
    CHECK(hipDeviceGetAttribute(&lanes, hipDeviceAttributeWarpSize, 0));
    if(lanes != 64)
    {
        std::fprintf(stderr, "a wave has %d lanes\n", lanes);
        return 1;
    }
    return 0;
}
