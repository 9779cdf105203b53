// For --@qola//:torch=cpu_check: PyTorch's HIP functions that modules call, for a PyTorch without HIP. They are
// never reached, because without HIP no tensor is on a device.
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
