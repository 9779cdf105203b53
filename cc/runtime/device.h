// The device that a thread's calls of HIP are for. Included by what is compiled as HIP, alone.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include <hip/hip_runtime_api.h>

namespace qola_runtime {

/// Arch of the current device, such as "gfx950", without what follows it, such as :sramecc+. Asked once
/// a device: its properties take the runtime a millisecond, and this is before each launch.
///
/// `check` is given each call's status and name, and throws where it failed.
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
        // Never freed, as all that may be asked for while a process ends. Of two threads that ask
        // at once, one's is kept.
        auto own = std::make_unique<const std::string>(asked());
        if(known[device].compare_exchange_strong(arch, own.get(), std::memory_order_acq_rel))
            arch = own.release();
    }
    return *arch;
}

} // namespace qola_runtime
