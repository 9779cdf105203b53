// Sums of blocks by hipCUB, and random numbers by hipRAND's functions for kernels.
#include "check.h"

#include <hip/hip_runtime.h>
#include <hipcub/block/block_reduce.hpp>
#include <hiprand/hiprand_kernel.h>

constexpr int kBlock = 128;

__global__ void sum(int* sums)
{
    using Reduce = hipcub::BlockReduce<int, kBlock>;
    __shared__ Reduce::TempStorage storage;
    const int found = Reduce(storage).Sum(static_cast<int>(threadIdx.x));
    if(threadIdx.x == 0)
        sums[blockIdx.x] = found;
}

__global__ void draw(float* values)
{
    hiprandStatePhilox4_32_10_t state;
    hiprand_init(42, threadIdx.x, 0, &state);
    values[threadIdx.x] = hiprand_uniform(&state);
}

int main()
{
    int sums[2], *sums_gpu = nullptr;
    float values[kBlock], *values_gpu = nullptr;
    CHECK(hipMalloc(reinterpret_cast<void**>(&sums_gpu), sizeof sums));
    CHECK(hipMalloc(reinterpret_cast<void**>(&values_gpu), sizeof values));
    sum<<<2, kBlock>>>(sums_gpu);
    draw<<<1, kBlock>>>(values_gpu);
    CHECK(hipGetLastError());
    CHECK(hipMemcpy(sums, sums_gpu, sizeof sums, hipMemcpyDeviceToHost));
    CHECK(hipMemcpy(values, values_gpu, sizeof values, hipMemcpyDeviceToHost));
    float total = 0;
    for(const float value : values)
    {
        if(!(value > 0 && value <= 1))
        {
            std::fprintf(stderr, "a uniform number is %f\n", value);
            return 1;
        }
        total += value;
    }
    if(sums[0] != kBlock * (kBlock - 1) / 2 || sums[1] != sums[0] || total / kBlock < 0.4f || total / kBlock > 0.6f)
    {
        std::fprintf(stderr, "sums %d, %d; mean %f\n", sums[0], sums[1], total / kBlock);
        return 1;
    }
    return 0;
}
