// For --@qola//:torch=cpu_check: PyTorch's HIP functions that modules call, for a PyTorch without HIP. They are
// never reached, because without HIP no tensor is on a device.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <optional>

#include <hip/hip_runtime.h>

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

namespace c10::hip
{

inline DeviceIndex current_device() { ::qola::cpu_check::refuse("current_device"); }
inline hipStream_t getCurrentHIPStream() { ::qola::cpu_check::refuse("getCurrentHIPStream"); }

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

using c10::hip::getCurrentHIPStream;
using c10::hip::getCurrentHIPStreamMasqueradingAsCUDA;

struct OptionalHIPGuardMasqueradingAsCUDA
{
    explicit OptionalHIPGuardMasqueradingAsCUDA(std::optional<c10::Device>)
    {
        ::qola::cpu_check::refuse("OptionalHIPGuardMasqueradingAsCUDA");
    }
};

} // namespace at::hip
