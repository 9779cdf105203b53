#include "tests/hip/counting.h"

#include <hip/hip_runtime.h>

#include "tests/hip/counter.h"

#ifndef __HIP__
#error "not compiled as HIP"
#endif

int count_twice()
{
    int devices = 0;
    return hipGetDeviceCount(&devices) == hipSuccess ? count() + count() : 0;
}
