// Replaces PyTorch's header of this name for a PyTorch without HIP: qola_cpu_check.h.
#pragma once

#include <ATen/cuda/CUDAGeneratorImpl.h>

#include "qola_cpu_check.h"

namespace at
{

inline c10::DeviceType CUDAGeneratorImpl::device_type()
{
    return c10::DeviceType::CUDA;
}

inline PhiloxCudaState CUDAGeneratorImpl::philox_cuda_state(uint64_t)
{
    ::qola::cpu_check::refuse("philox_cuda_state");
}

namespace cuda::detail
{

inline const Generator& getDefaultCUDAGenerator(c10::DeviceIndex)
{
    ::qola::cpu_check::refuse("getDefaultCUDAGenerator");
}

} // namespace cuda::detail

} // namespace at
