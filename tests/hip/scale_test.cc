// A kernel of a .cu file, called by a program that a host compiler compiles.
#include "tests/hip/scale.h"

#include "check.h"
#include "factor.h"

#include <cstring>

int main(int argc, char** argv)
{
    if(argc != 2 || std::strcmp(argv[1], "an argument") != 0 || !std::getenv("FROM_ENV"))
    {
        std::fprintf(stderr, "arguments or environment are missing\n");
        return 1;
    }
    int values[100], *gpu = nullptr;
    for(int i = 0; i < 100; ++i)
        values[i] = i;
    CHECK(hipMalloc(reinterpret_cast<void**>(&gpu), sizeof values));
    CHECK(hipMemcpy(gpu, values, sizeof values, hipMemcpyHostToDevice));
    scale(gpu, 100);
    CHECK(hipMemcpy(values, gpu, sizeof values, hipMemcpyDeviceToHost));
    CHECK(hipFree(gpu));
    for(int i = 0; i < 100; ++i)
    {
        if(values[i] != 3 * FACTOR * i)
        {
            std::fprintf(stderr, "value %d is %d\n", i, values[i]);
            return 1;
        }
    }
    return 0;
}
