// Makes the faults that its arguments name, ignores each error, and ends with 0.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cases {
__global__ void copy(const int* in, int* out) { out[threadIdx.x + blockIdx.x * blockDim.x] = in[threadIdx.x + blockIdx.x * blockDim.x]; }
}

template <class T>
__global__ void put(T* out, int at)
{
    if(threadIdx.y == 2 && threadIdx.x == 3)
        out[at] = 1;
}

__global__ void count(int* out) { atomicAdd(out + threadIdx.x, 1); }

__global__ void spread(int* out, int step)
{
    extern __shared__ int room[];
    room[threadIdx.x * step] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = room[threadIdx.x];
}

__global__ void reverse(int* out)
{
    __shared__ int room[256];
    room[threadIdx.x] = out[0];
    out[threadIdx.x]  = room[255 - threadIdx.x];
}

__global__ void crooked(char* out) { atomicAdd(reinterpret_cast<int*>(out + 1), 1); }

int main(int argc, char** argv)
{
    int *small = nullptr, *large = nullptr, *freed = nullptr, *pinned = nullptr;
    (void)hipMalloc(reinterpret_cast<void**>(&small), 800);
    (void)hipMalloc(reinterpret_cast<void**>(&large), 4096);
    (void)hipMalloc(reinterpret_cast<void**>(&freed), 4096);
    (void)hipHostMalloc(reinterpret_cast<void**>(&pinned), 4096, 0);
    (void)hipMemset(small, 0, 800);
    (void)hipMemset(large, 0, 4096);
    (void)hipFree(freed);
    int local[4] = {};
    for(int i = 1; i < argc; ++i)
    {
        const auto is = [&](const char* name) { return std::strcmp(argv[i], name) == 0; };
        const dim3 block(8, 8);
        if(is("read"))
            cases::copy<<<2, 128>>>(small, large);
        if(is("write"))
            put<<<1, block>>>(reinterpret_cast<char*>(large), -5);
        if(is("page"))
            put<<<1, block>>>(large, 1024);
        if(is("atomic"))
            count<<<1, 256>>>(small);
        if(is("null"))
            put<<<1, block>>>(static_cast<double*>(nullptr), 4);
        if(is("heap"))
            put<<<1, block>>>(static_cast<int*>(std::malloc(64)), 4);
        if(is("stack"))
            put<<<1, block>>>(local, 1);
        if(is("freed"))
            put<<<1, block>>>(freed, 10);
        if(is("pinned"))
            put<<<1, block>>>(pinned, 1023);
        if(is("lds"))
            spread<<<1, 128, 512>>>(large, 2);
        if(is("refused"))
            count<<<1, 2048>>>(large);
        if(is("crooked"))
            crooked<<<1, 1>>>(reinterpret_cast<char*>(large));
        if(is("race"))
            reverse<<<1, 256>>>(large);
        std::printf("%s: %s\n", argv[i], hipGetErrorName(hipDeviceSynchronize()));
    }
    return 0;
}
