// Writes beyond an allocation, ignores each error, and ends with 0.
#include <hip/hip_runtime.h>

__global__ void beyond(int* values) { values[4096 + threadIdx.x] = 1; }

int main()
{
    int* gpu = nullptr;
    (void)hipMalloc(reinterpret_cast<void**>(&gpu), 64);
    beyond<<<1, 64>>>(gpu);
    return 0;
}
