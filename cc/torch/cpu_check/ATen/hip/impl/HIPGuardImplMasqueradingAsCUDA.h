// Replaces PyTorch's header of this name for a PyTorch without HIP: qola_cpu_check.h.
#pragma once

#include <c10/core/Device.h>
#include <c10/hip/HIPStream.h>

#include <optional>

#include "qola_cpu_check.h"

namespace at::hip
{

struct OptionalHIPGuardMasqueradingAsCUDA
{
    explicit OptionalHIPGuardMasqueradingAsCUDA(std::optional<c10::Device>)
    {
        ::qola::cpu_check::refuse("OptionalHIPGuardMasqueradingAsCUDA");
    }
};

} // namespace at::hip
