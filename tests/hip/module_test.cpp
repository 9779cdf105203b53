// Loads a code object of hip_code_object by its path in the runfiles.
#include "check.h"

int main()
{
    hipModule_t module   = nullptr;
    hipFunction_t kernel = nullptr;
    CHECK(hipModuleLoad(&module, std::getenv("MODULE")));
    CHECK(hipModuleGetFunction(&kernel, module, "fill"));
    int values[64]{}, *gpu = nullptr, value = 40;
    CHECK(hipMalloc(reinterpret_cast<void**>(&gpu), sizeof values));
    void* arguments[]{&gpu, &value};
    CHECK(hipModuleLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
    CHECK(hipMemcpy(values, gpu, sizeof values, hipMemcpyDeviceToHost));
    CHECK(hipModuleUnload(module));
    for(const int found : values)
    {
        if(found != 42)
        {
            std::fprintf(stderr, "a value is %d\n", found);
            return 1;
        }
    }
    return 0;
}
