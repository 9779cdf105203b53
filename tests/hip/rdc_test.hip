// Device code that calls a function of another library.
#include "check.h"
#include "rdc.h"

__global__ void kernel(int* values) { values[threadIdx.x] = twice(values[threadIdx.x]) + offset; }

int main()
{
    int values[64], *gpu = nullptr;
    for(int i = 0; i < 64; ++i)
        values[i] = i;
    CHECK(hipMalloc(reinterpret_cast<void**>(&gpu), sizeof values));
    CHECK(hipMemcpy(gpu, values, sizeof values, hipMemcpyHostToDevice));
    kernel<<<1, 64>>>(gpu);
    CHECK(hipGetLastError());
    CHECK(hipMemcpy(values, gpu, sizeof values, hipMemcpyDeviceToHost));
    for(int i = 0; i < 64; ++i)
    {
        if(values[i] != 2 * i + 7)
        {
            std::fprintf(stderr, "value %d is %d\n", i, values[i]);
            return 1;
        }
    }
    return 0;
}
