// Replaces PyTorch's header of this name for a PyTorch without HIP: qola_cpu_check.h.
#pragma once

#include <c10/hip/HIPStream.h>
