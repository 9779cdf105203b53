// Stands for PyTorch's header of this name where PyTorch has no HIP: qola_cpu_check.h.
#pragma once

#include <hip/hip_runtime.h>

#include "qola_cpu_check.h"

namespace at::hip
{

inline hipStream_t getCurrentHIPStream()
{
    ::qola::cpu_check::refuse("getCurrentHIPStream");
}

} // namespace at::hip
