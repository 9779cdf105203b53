// The devices and their properties.
#include "settings.h"

#include <algorithm>
#include <cstring>

using fake_hip::record;
using fake_hip::settings;

namespace {

constexpr int kThreadsPerCu = 2048;

thread_local int current = 0;

bool is_device(int device) { return device >= 0 && device < static_cast<int>(settings().archs.size()); }

hipDeviceProp_t properties(const fake_hip::Arch& arch)
{
    hipDeviceProp_t result{};
    const auto text = [](auto& field, const std::string& value) { value.copy(field, sizeof field - 1); };
    text(result.name, "fake " + std::string(arch.name));
    text(result.gcnArchName, std::string(arch.name) + std::string(arch.features));
    result.totalGlobalMem                   = arch.memory_bytes;
    result.sharedMemPerBlock                = arch.lds_bytes;
    result.maxSharedMemoryPerMultiProcessor = arch.lds_bytes;
    result.sharedMemPerMultiprocessor       = arch.lds_bytes;
    result.regsPerBlock                     = 65536;
    result.regsPerMultiprocessor            = 65536;
    result.warpSize                         = arch.wave_size;
    result.maxThreadsPerBlock               = fake_hip::kThreadsPerBlock;
    result.maxThreadsPerMultiProcessor      = kThreadsPerCu;
    std::fill_n(result.maxThreadsDim, 3, fake_hip::kThreadsPerBlock);
    result.maxGridSize[0]      = 2147483647;
    result.maxGridSize[1]      = 65535;
    result.maxGridSize[2]      = 65535;
    result.major               = arch.major;
    result.minor               = arch.minor;
    result.multiProcessorCount = arch.cu_count;
    result.concurrentKernels   = 1;
    result.cooperativeLaunch   = 1;
    return result;
}

// AITER distinguishes the two GPUs of gfx942 by it: MI300X, and MI308X with fewer compute units.
int pci_chip_id(const fake_hip::Arch& arch)
{
    if(arch.name != "gfx942")
        fake_hip::refuse("hipDeviceAttributePciChipId of " + std::string(arch.name) + " is not known");
    return arch.cu_count <= 80 ? 0x74a2 : 0x74a1;
}

} // namespace

int fake_hip::current_device() { return current; }

const fake_hip::Arch& fake_hip::current_arch() { return settings().archs[current]; }

extern "C" {

hipError_t hipGetDeviceCount(int* count)
{
    FAKE_HIP_ENTER();
    *count = static_cast<int>(settings().archs.size());
    return hipSuccess;
}

hipError_t hipGetDevice(int* device)
{
    FAKE_HIP_ENTER();
    *device = current;
    return hipSuccess;
}

hipError_t hipSetDevice(int device)
{
    FAKE_HIP_ENTER();
    if(!is_device(device))
        return record(hipErrorInvalidDevice);
    current = device;
    return hipSuccess;
}

hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* result, int device)
{
    FAKE_HIP_ENTER();
    if(!is_device(device))
        return record(hipErrorInvalidDevice);
    *result = properties(settings().archs[device]);
    return hipSuccess;
}

hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device)
{
    FAKE_HIP_ENTER();
    if(!is_device(device))
        return record(hipErrorInvalidDevice);
    if(attribute == hipDeviceAttributePciChipId)
    {
        *value = pci_chip_id(settings().archs[device]);
        return hipSuccess;
    }
    const hipDeviceProp_t found = properties(settings().archs[device]);
    switch(attribute)
    {
    case hipDeviceAttributeComputeCapabilityMajor: *value = found.major; break;
    case hipDeviceAttributeComputeCapabilityMinor: *value = found.minor; break;
    case hipDeviceAttributeCooperativeLaunch: *value = found.cooperativeLaunch; break;
    case hipDeviceAttributeMaxSharedMemoryPerBlock: *value = static_cast<int>(found.sharedMemPerBlock); break;
    case hipDeviceAttributeMaxThreadsPerBlock: *value = found.maxThreadsPerBlock; break;
    case hipDeviceAttributeMaxThreadsPerMultiProcessor: *value = found.maxThreadsPerMultiProcessor; break;
    case hipDeviceAttributeMultiprocessorCount: *value = found.multiProcessorCount; break;
    case hipDeviceAttributeWarpSize: *value = found.warpSize; break;
    default: fake_hip::refuse("hipDeviceGetAttribute: attribute " + std::to_string(attribute) + " is not supported");
    }
    return hipSuccess;
}

hipError_t hipDevicePrimaryCtxGetState(hipDevice_t device, unsigned int* flags, int* active)
{
    FAKE_HIP_ENTER();
    if(!is_device(device))
        return record(hipErrorInvalidDevice);
    *flags  = 0;
    *active = 1;
    return hipSuccess;
}

hipError_t hipDeviceSynchronize()
{
    FAKE_HIP_ENTER();
    return hipSuccess;
}

} // extern "C"
