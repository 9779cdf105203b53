// printf in kernels, or with an argument an assert that fails in lane 1.
#include <hip/hip_runtime.h>

#include <cassert>
#include <cstdio>

// A function of its own, in front of the kernel that calls it.
__device__ __noinline__ void name(const char* what)
{
    printf("%-3s is a text that one packet of seven words with eight bytes each does not hold: %%|%5d|%#x|%.2f|%lld|%c\n",
           what, -3, 255u, 2.5, 1ll << 40, 'c');
}

__global__ void speak(int lanes)
{
    printf("block %u lane %u of %d\n", blockIdx.x, threadIdx.x, lanes);
    if(blockIdx.x == 1 && threadIdx.x == 65)
        name(lanes > 3 ? "it" : nullptr);
}

__global__ void check(int limit) { assert(threadIdx.x < limit); }

int main(int argc, char**)
{
    std::printf("before\n");
    if(argc == 1)
        speak<<<2, 66>>>(66);
    else
        check<<<1, 2>>>(1);
    std::printf("after\n");
    return hipDeviceSynchronize() == hipSuccess ? 0 : 2;
}
