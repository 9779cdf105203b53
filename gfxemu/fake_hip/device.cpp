// The devices and their properties.
#include "launch.h"
#include "settings.h"

#include <hip/hip_version.h>

#include <algorithm>
#include <cstdio>
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
    case hipDeviceAttributeMaxBlockDimX: *value = found.maxThreadsDim[0]; break;
    case hipDeviceAttributeMaxBlockDimY: *value = found.maxThreadsDim[1]; break;
    case hipDeviceAttributeMaxBlockDimZ: *value = found.maxThreadsDim[2]; break;
    case hipDeviceAttributeMaxGridDimX: *value = found.maxGridSize[0]; break;
    case hipDeviceAttributeMaxGridDimY: *value = found.maxGridSize[1]; break;
    case hipDeviceAttributeMaxGridDimZ: *value = found.maxGridSize[2]; break;
    case hipDeviceAttributeConcurrentKernels: *value = found.concurrentKernels; break;
    case hipDeviceAttributeMaxRegistersPerBlock: *value = found.regsPerBlock; break;
    case hipDeviceAttributeManagedMemory: *value = 1; break;
    case hipDeviceAttributeMemoryPoolsSupported: *value = 1; break;
    case hipDeviceAttributeMaxSharedMemoryPerMultiprocessor:
        *value = static_cast<int>(found.maxSharedMemoryPerMultiProcessor);
        break;
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
    return fake_hip::launch_error();
}

// Memory and streams stay: programs call it at their end.
hipError_t hipDeviceReset()
{
    FAKE_HIP_ENTER();
    fake_hip_forget_faults();
    return hipSuccess;
}

hipError_t hipInit(unsigned int flags)
{
    FAKE_HIP_ENTER();
    return record(flags ? hipErrorInvalidValue : hipSuccess);
}

hipError_t hipDeviceGet(hipDevice_t* device, int ordinal)
{
    FAKE_HIP_ENTER();
    if(!is_device(ordinal))
        return record(hipErrorInvalidDevice);
    *device = ordinal;
    return hipSuccess;
}

hipError_t hipDeviceGetName(char* name, int size, hipDevice_t device)
{
    FAKE_HIP_ENTER();
    if(!is_device(device))
        return record(hipErrorInvalidDevice);
    if(size < 1)
        return record(hipErrorInvalidValue);
    std::strncpy(name, properties(settings().archs[device]).name, static_cast<std::size_t>(size) - 1);
    name[size - 1] = '\0';
    return hipSuccess;
}

hipError_t hipDeviceTotalMem(std::size_t* bytes, hipDevice_t device)
{
    FAKE_HIP_ENTER();
    if(!is_device(device))
        return record(hipErrorInvalidDevice);
    *bytes = settings().archs[device].memory_bytes;
    return hipSuccess;
}

hipError_t hipDeviceComputeCapability(int* major, int* minor, hipDevice_t device)
{
    FAKE_HIP_ENTER();
    if(!is_device(device))
        return record(hipErrorInvalidDevice);
    *major = settings().archs[device].major;
    *minor = settings().archs[device].minor;
    return hipSuccess;
}

hipError_t hipDriverGetVersion(int* version)
{
    FAKE_HIP_ENTER();
    *version = HIP_VERSION;
    return hipSuccess;
}

hipError_t hipRuntimeGetVersion(int* version)
{
    FAKE_HIP_ENTER();
    *version = HIP_VERSION;
    return hipSuccess;
}

// How the host waits: nothing to wait for here.
hipError_t hipSetDeviceFlags(unsigned)
{
    FAKE_HIP_ENTER();
    return hipSuccess;
}

hipError_t hipGetDeviceFlags(unsigned int* flags)
{
    FAKE_HIP_ENTER();
    *flags = hipDeviceScheduleAuto;
    return hipSuccess;
}

// Hints about caches, which AMD's GPUs ignore.
hipError_t hipDeviceSetCacheConfig(hipFuncCache_t)
{
    FAKE_HIP_ENTER();
    return hipSuccess;
}

hipError_t hipDeviceGetCacheConfig(hipFuncCache_t* config)
{
    FAKE_HIP_ENTER();
    *config = hipFuncCachePreferNone;
    return hipSuccess;
}

// All devices have the host's memory.
hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer)
{
    FAKE_HIP_ENTER();
    if(!is_device(device) || !is_device(peer))
        return record(hipErrorInvalidDevice);
    *can = device != peer;
    return hipSuccess;
}

hipError_t hipDeviceEnablePeerAccess(int peer, unsigned int)
{
    FAKE_HIP_ENTER();
    return record(is_device(peer) && peer != current ? hipSuccess : hipErrorInvalidDevice);
}

hipError_t hipDeviceDisablePeerAccess(int peer)
{
    FAKE_HIP_ENTER();
    return record(is_device(peer) && peer != current ? hipSuccess : hipErrorInvalidDevice);
}

hipError_t hipDeviceGetPCIBusId(char* name, int size, int device)
{
    FAKE_HIP_ENTER();
    if(!is_device(device))
        return record(hipErrorInvalidDevice);
    std::snprintf(name, static_cast<std::size_t>(size), "0000:%02x:00.0", device + 1);
    return hipSuccess;
}

hipError_t hipProfilerStart()
{
    FAKE_HIP_ENTER();
    return hipSuccess;
}

hipError_t hipProfilerStop()
{
    FAKE_HIP_ENTER();
    return hipSuccess;
}

} // extern "C"
