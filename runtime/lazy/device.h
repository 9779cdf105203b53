// The current HIP device of a thread. Only for files that are compiled as HIP.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include <hip/hip_runtime_api.h>

namespace qola_runtime {

/// Returns the arch of the current device, such as "gfx950", without suffixes such as :sramecc+. Every
/// launch needs it and HIP takes a millisecond for it, so it is cached per device.
///
/// `check` gets the status and name of each HIP call, and throws if the call failed.
template <class Check>
const std::string& arch_of_current_device(Check check)
{
    // Of more devices than any machine has, the last is asked about each time.
    static std::array<std::atomic<const std::string*>, 64> known{};
    int device = 0;
    check(hipGetDevice(&device), "hipGetDevice");
    const auto asked = [&] {
        hipDeviceProp_t properties;
        check(hipGetDeviceProperties(&properties, device), "hipGetDeviceProperties");
        const std::string name = properties.gcnArchName;
        return name.substr(0, name.find(':'));
    };
    if(device < 0 || device >= static_cast<int>(known.size()))
    {
        thread_local std::string other;
        return other = asked();
    }
    const std::string* arch = known[device].load(std::memory_order_acquire);
    if(arch == nullptr)
    {
        // Never freed, because it may be used while the process ends. If two threads ask at the
        // same time, one result is kept.
        auto own = std::make_unique<const std::string>(asked());
        if(known[device].compare_exchange_strong(arch, own.get(), std::memory_order_acq_rel))
            arch = own.release();
    }
    return *arch;
}

} // namespace qola_runtime
