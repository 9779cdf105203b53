// Stands for PyTorch's header of this name where PyTorch has no HIP: qola_cpu_check.h.
#pragma once

#include <c10/hip/HIPStream.h>
