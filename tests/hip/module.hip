// Loaded from a file.
#include <hip/hip_runtime.h>

extern "C" __global__ void fill(int* values, int value) { values[threadIdx.x] = value + VALUE; }
