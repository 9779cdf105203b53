// Replaces PyTorch's header of this name for a PyTorch without HIP.
#pragma once

#include "qola_cpu_check.h"
