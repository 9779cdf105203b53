// Ends the test at the first HIP error.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstdio>
#include <cstdlib>

inline void check(hipError_t error, const char* where)
{
    if(error == hipSuccess)
        return;
    std::fprintf(stderr, "%s: %s\n", where, hipGetErrorString(error));
    std::exit(1);
}

#define CHECK(call) check(call, #call)
