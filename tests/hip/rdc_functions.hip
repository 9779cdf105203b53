#include "rdc.h"

__device__ int offset = 7;

__device__ int twice(int value) { return 2 * value; }
