// Replaces PyTorch's header of this name for a PyTorch without HIP: qola_cpu_check.h.
#pragma once

#include <c10/core/Device.h>

#include "qola_cpu_check.h"

namespace c10::hip
{

inline DeviceIndex current_device()
{
    ::qola::cpu_check::refuse("current_device");
}

} // namespace c10::hip
