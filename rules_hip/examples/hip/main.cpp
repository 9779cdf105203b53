// Calls the kernel and compares its result: exit code 0 if all values are right.
#include "saxpy.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void check(hipError_t error)
{
    if(error == hipSuccess)
        return;
    std::fprintf(stderr, "HIP: %s\n", hipGetErrorString(error));
    std::exit(1);
}

} // namespace

int main()
{
    const std::size_t n = 1000; // not a multiple of the block
    std::vector<float> x(n), y(n);
    for(std::size_t i = 0; i < n; ++i)
    {
        x[i] = static_cast<float>(i);
        y[i] = 1;
    }
    float *x_gpu = nullptr, *y_gpu = nullptr;
    check(hipMalloc(reinterpret_cast<void**>(&x_gpu), n * sizeof(float)));
    check(hipMalloc(reinterpret_cast<void**>(&y_gpu), n * sizeof(float)));
    check(hipMemcpy(x_gpu, x.data(), n * sizeof(float), hipMemcpyHostToDevice));
    check(hipMemcpy(y_gpu, y.data(), n * sizeof(float), hipMemcpyHostToDevice));
    check(saxpy(2, x_gpu, y_gpu, n, nullptr));
    check(hipMemcpy(y.data(), y_gpu, n * sizeof(float), hipMemcpyDeviceToHost));
    check(hipFree(x_gpu));
    check(hipFree(y_gpu));
    for(std::size_t i = 0; i < n; ++i)
    {
        if(y[i] != 2 * static_cast<float>(i) + 1)
        {
            std::fprintf(stderr, "y[%zu] is %f\n", i, y[i]);
            return 1;
        }
    }
    std::printf("saxpy: %zu values are right\n", n);
}
