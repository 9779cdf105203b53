// Kernels that a program or library registers when it is loaded, and their launch.
#include "errors.h"
#include "launch.h"

#include <algorithm>
#include <memory>
#include <mutex>

using fake_hip::Kernel;
using fake_hip::record;
using fake_hip::settings;

namespace {

// The structure that clang emits; hip/amd_detail has no header for it.
struct FatBinaryWrapper
{
    std::uint32_t magic;
    std::uint32_t version;
    const void* binary;
    void* unused;
};
constexpr std::uint32_t kWrapperMagic = 0x48495046; // "HIPF"

struct FatBinary
{
    const void* image;
    bool read = false; // on first use: loading a library needs no device
    std::optional<fake_hip::CodeObject> code_object;
};

struct Function
{
    FatBinary* binary;
    std::string name;
    std::unique_ptr<ihipModuleSymbol_t> handle; ///< once hipGetFuncBySymbol was asked for it
};

struct CallConfiguration
{
    dim3 grid;
    dim3 block;
    std::size_t lds_bytes;
    hipStream_t stream;
};

std::mutex mutex;
// Not destroyed: libraries unregister from their own static destructors.
auto& functions() { static auto* all = new std::map<const void*, Function>; return *all; }
thread_local std::vector<CallConfiguration> configurations;

struct Found
{
    hipError_t error;
    const fake_hip::CodeObject* code_object = nullptr;
    const Kernel* kernel                    = nullptr;
};

Found find(const void* host_function)
{
    const std::scoped_lock lock(mutex);
    const auto function = functions().find(host_function);
    if(function == functions().end())
        return {hipErrorInvalidDeviceFunction};
    FatBinary& binary = *function->second.binary;
    if(!binary.read)
        binary.code_object = fake_hip::load_image(binary.image, settings().arch);
    binary.read = true;
    if(!binary.code_object)
        return {hipErrorNoBinaryForGpu};
    const auto kernel = binary.code_object->kernels.find(function->second.name);
    if(kernel == binary.code_object->kernels.end())
        return {hipErrorInvalidDeviceFunction};
    return {hipSuccess, &*binary.code_object, &kernel->second};
}

hipError_t launch(const void* host_function, const CallConfiguration& configuration, void** arguments)
{
    const Found found = find(host_function);
    if(found.error != hipSuccess)
        return record(found.error);
    const fake_hip::Launch launch{*found.code_object,
                                  *found.kernel,
                                  "fatbin",
                                  configuration.grid,
                                  configuration.block,
                                  configuration.lds_bytes,
                                  configuration.stream};
    return fake_hip::launch(launch, fake_hip::pack_arguments(launch, arguments));
}

} // namespace

bool fake_hip::is_of_symbol(hipFunction_t function)
{
    const std::scoped_lock lock(mutex);
    return std::ranges::any_of(functions(),
                               [&](const auto& item) { return function && item.second.handle.get() == function; });
}

extern "C" {

// No header declares what clang calls.
void** __hipRegisterFatBinary(const void* data);
void __hipUnregisterFatBinary(void** handle);
void __hipRegisterFunction(void**, const void*, char*, const char*, unsigned, void*, void*, void*, void*, int*);
void __hipRegisterVar(void**, void*, char*, const char*, int, std::size_t, int, int);
hipError_t __hipPushCallConfiguration(dim3, dim3, std::size_t, hipStream_t);
hipError_t __hipPopCallConfiguration(dim3*, dim3*, std::size_t*, hipStream_t*);

void** __hipRegisterFatBinary(const void* data)
{
    const auto* wrapper = static_cast<const FatBinaryWrapper*>(data);
    if(wrapper->magic != kWrapperMagic || wrapper->version != 1)
        fake_hip::refuse("__hipRegisterFatBinary: not a fat binary of version 1");
    return reinterpret_cast<void**>(new FatBinary{wrapper->binary, false, {}});
}

void __hipUnregisterFatBinary(void** handle)
{
    const std::scoped_lock lock(mutex);
    auto* binary = reinterpret_cast<FatBinary*>(handle);
    std::erase_if(functions(), [&](const auto& item) { return item.second.binary == binary; });
    delete binary;
}

void __hipRegisterFunction(void** handle,
                           const void* host_function,
                           char*,
                           const char* device_name,
                           unsigned,
                           void*,
                           void*,
                           void*,
                           void*,
                           int*)
{
    const std::scoped_lock lock(mutex);
    functions()[host_function] = {reinterpret_cast<FatBinary*>(handle), device_name, nullptr};
}

// A __device__ variable: only functions that this runtime refuses could read or write it.
void __hipRegisterVar(void**, void*, char*, const char*, int, std::size_t, int, int) {}

hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, std::size_t lds, hipStream_t stream)
{
    configurations.push_back({grid, block, lds, stream});
    return hipSuccess;
}

hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, std::size_t* lds, hipStream_t* stream)
{
    if(configurations.empty())
        return record(hipErrorInvalidConfiguration);
    const CallConfiguration top = configurations.back();
    configurations.pop_back();
    *grid   = top.grid;
    *block  = top.block;
    *lds    = top.lds_bytes;
    *stream = top.stream;
    return hipSuccess;
}

hipError_t hipLaunchKernel(const void* function,
                           dim3 grid,
                           dim3 block,
                           void** arguments,
                           std::size_t lds,
                           hipStream_t stream)
{
    FAKE_HIP_ENTER();
    return launch(function, {grid, block, lds, stream}, arguments);
}


hipError_t hipGetFuncBySymbol(hipFunction_t* function, const void* symbol)
{
    FAKE_HIP_ENTER();
    *function         = nullptr;
    const Found found = find(symbol);
    if(found.error != hipSuccess)
        return record(found.error);
    const std::scoped_lock lock(mutex);
    auto& handle = functions().at(symbol).handle;
    if(!handle)
        handle = std::make_unique<ihipModuleSymbol_t>(ihipModuleSymbol_t{found.code_object, found.kernel});
    *function = handle.get();
    return hipSuccess;
}

const char* hipKernelNameRefByPtr(const void* host_function, hipStream_t)
{
    const std::scoped_lock lock(mutex);
    const auto function = functions().find(host_function);
    return function == functions().end() ? nullptr : function->second.name.c_str();
}

} // extern "C"
