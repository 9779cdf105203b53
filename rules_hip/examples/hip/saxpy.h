// y = a * x + y on a GPU.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstddef>

hipError_t saxpy(float a, const float* x, float* y, std::size_t n, hipStream_t stream);
