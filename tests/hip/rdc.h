#pragma once

#include <hip/hip_runtime.h>

// Of another translation unit and another library.
__device__ int twice(int value);
extern __device__ int offset;
