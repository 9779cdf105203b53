// Replaces PyTorch's header of this name for a PyTorch without HIP: qola_cpu_check.h.
#pragma once

#include <hip/hip_runtime.h>

#include "qola_cpu_check.h"

namespace c10::hip
{

struct HIPStreamMasqueradingAsCUDA
{
    hipStream_t stream() const { ::qola::cpu_check::refuse("HIPStreamMasqueradingAsCUDA"); }
};

inline HIPStreamMasqueradingAsCUDA getCurrentHIPStreamMasqueradingAsCUDA()
{
    ::qola::cpu_check::refuse("getCurrentHIPStreamMasqueradingAsCUDA");
}

} // namespace c10::hip

namespace at::hip
{

using c10::hip::getCurrentHIPStreamMasqueradingAsCUDA;

} // namespace at::hip
