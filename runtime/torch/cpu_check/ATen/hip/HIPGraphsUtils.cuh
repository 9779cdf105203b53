// Replaces PyTorch's header of this name for a PyTorch without HIP: qola_cpu_check.h.
#pragma once

#include <hip/hip_runtime.h>

// PyTorch's header, which is CUDA's here, names it.
using cudaStream_t = hipStream_t;

#include <ATen/cuda/PhiloxUtils.cuh>
#include <ATen/hip/HIPGeneratorImpl.h>
