// Replaces PyTorch's header of this name for a PyTorch without HIP: qola_cpu_check.h.
#pragma once

#include <hip/hip_runtime.h>

#include "qola_cpu_check.h"

namespace c10::hip
{

inline hipStream_t getCurrentHIPStream()
{
    ::qola::cpu_check::refuse("getCurrentHIPStream");
}

} // namespace c10::hip

namespace at::hip
{

using c10::hip::getCurrentHIPStream;

} // namespace at::hip
