// For --@qola//:torch=cpu_check: what modules call of HIP in PyTorch, where PyTorch has no HIP.
// Nothing of it is reached: without HIP there is no tensor that is on a device.
#pragma once

#include <c10/util/Exception.h>

namespace qola::cpu_check
{

/// Ends a call that only a PyTorch for ROCm can serve.
[[noreturn]] inline void refuse(const char* what)
{
    TORCH_CHECK(false,
                what,
                ": this module was built with --@qola//:torch=cpu_check, to be imported and not to run");
    __builtin_unreachable();
}

} // namespace qola::cpu_check
