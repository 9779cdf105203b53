// Kernels that a program or library registers when it is loaded, code objects that it loads itself, and their launch.
#include "launch.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>

using fake_hip::CallConfiguration;
using fake_hip::Kernel;
using fake_hip::record;
using fake_hip::settings;

// Opaque in HIP's headers.
struct ihipModuleSymbol_t
{
    const fake_hip::CodeObject* code_object;
    const Kernel* kernel;
    int device;
};

struct ihipModule_t
{
    fake_hip::CodeObject code_object;
    std::map<std::string, ihipModuleSymbol_t> functions;
};

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
    /// By device, on first use: loading a library needs no device.
    std::map<int, std::optional<fake_hip::CodeObject>> code_objects;
};

struct Function
{
    FatBinary* binary;
    std::string name;
    /// By device, once hipGetFuncBySymbol was asked for it.
    std::map<int, std::unique_ptr<ihipModuleSymbol_t>> handles;
};

/// A __device__ variable that a program registers.
struct RegisteredVariable
{
    FatBinary* binary;
    std::string name;
};

std::mutex mutex; // of all maps
// Not destroyed: libraries unregister from their own static destructors.
auto& functions() { static auto* all = new std::map<const void*, Function>; return *all; }
auto& variables() { static auto* all = new std::map<const void*, RegisteredVariable>; return *all; }
auto& modules() { static auto* all = new std::map<hipModule_t, std::unique_ptr<ihipModule_t>>; return *all; }
/// Where a kernel that is still loaded comes from, "fatbin" or "module".
auto& sources() { static auto* all = new std::map<hipFunction_t, const char*>; return *all; }
thread_local std::vector<CallConfiguration> configurations;

struct Found
{
    hipError_t error;
    const fake_hip::CodeObject* code_object = nullptr;
    const Kernel* kernel                    = nullptr;
};

/// The code of a binary for a device, if it has some. The mutex is the caller's.
const std::optional<fake_hip::CodeObject>& code_of(FatBinary& binary, int device)
{
    const auto [at, added] = binary.code_objects.try_emplace(device);
    if(added)
        at->second = fake_hip::load_image(binary.image, settings().archs[device]);
    return at->second;
}

Found find(const void* host_function, int device)
{
    const std::scoped_lock lock(mutex);
    const auto function = functions().find(host_function);
    if(function == functions().end())
        return {hipErrorInvalidDeviceFunction};
    const auto& code_object = code_of(*function->second.binary, device);
    if(!code_object)
        return {hipErrorNoBinaryForGpu};
    const auto kernel = code_object->kernels.find(function->second.name);
    if(kernel == code_object->kernels.end())
        return {hipErrorInvalidDeviceFunction};
    return {hipSuccess, &*code_object, &kernel->second};
}

hipError_t launch(const void* host_function, const CallConfiguration& configuration, void** arguments)
{
    const Found found = find(host_function, fake_hip::stream_device(configuration.stream));
    if(found.error != hipSuccess)
        return record(found.error);
    const fake_hip::Launch launch{configuration, *found.code_object, *found.kernel, "fatbin"};
    return fake_hip::launch(launch, fake_hip::pack_arguments(launch, arguments));
}

/// The part of a kernel's grid that a compute unit runs at once.
struct Residency
{
    int threads = 0;       ///< that its registers admit
    int blocks  = INT_MAX; ///< that its LDS admits
};

int rounded_up(int value, int to) { return std::max(1, (value + to - 1) / to) * to; }

/// The threads of a block, with those that fill up its last wave.
int whole_waves(int block) { return rounded_up(block, fake_hip::current_arch().wave_size); }

/// Computes it as the real runtime does for CDNA (hip_platform.cpp of ROCm's clr).
hipError_t residency(const void* host_function, std::size_t dynamic_lds, Residency& result)
{
    const fake_hip::Arch& arch = fake_hip::current_arch();
    if(arch.wave_size != 64)
        fake_hip::refuse("occupancy on " + std::string(arch.name));
    const Found found = find(host_function, fake_hip::current_device());
    if(found.error != hipSuccess)
        return found.error;
    const Kernel& kernel = *found.kernel;
    // Registers of a SIMD, in the granules of their allocation; a SIMD has 8 waves at most, a compute unit 4 SIMDs.
    const int waves = std::min({8, 512 / rounded_up(kernel.vgprs, 8), 800 / rounded_up(kernel.sgprs, 16)});
    if(waves == 0)
        return hipErrorUnknown;
    result.threads = 4 * waves * arch.wave_size;
    if(const std::size_t lds = kernel.lds_bytes + dynamic_lds; lds != 0)
        result.blocks = static_cast<int>(arch.lds_bytes / lds);
    return hipSuccess;
}

/// Finds a registered variable on the current device.
hipError_t find_variable(const void* symbol, fake_hip::Variable& found)
{
    const fake_hip::CodeObject* code_object = nullptr;
    std::string name;
    {
        const std::scoped_lock lock(mutex);
        const auto variable = variables().find(symbol);
        if(variable == variables().end())
            return record(hipErrorInvalidSymbol);
        const auto& code = code_of(*variable->second.binary, fake_hip::current_device());
        if(!code)
            return record(hipErrorNoBinaryForGpu);
        code_object = &*code;
        name        = variable->second.name;
    }
    found = fake_hip::find_variable(*code_object, name);
    return record(found.address ? hipSuccess : hipErrorInvalidSymbol);
}

/// Copies from or to a part of a variable.
hipError_t copy_variable(const void* symbol, std::size_t offset, std::size_t size, void* to, const void* from)
{
    fake_hip::Variable found;
    if(const hipError_t error = find_variable(symbol, found); error != hipSuccess)
        return error;
    if(offset > found.size || size > found.size - offset)
        return record(hipErrorInvalidValue);
    char* const part = static_cast<char*>(found.address) + offset;
    std::memcpy(to ? to : part, from ? from : part, size);
    return hipSuccess;
}

hipError_t load(hipModule_t* module, const void* image)
{
    *module = nullptr;
    if(!image)
        return record(hipErrorInvalidValue);
    auto code_object = fake_hip::load_image(image, fake_hip::current_arch());
    if(!code_object)
        return record(hipErrorNoBinaryForGpu);
    auto loaded = std::make_unique<ihipModule_t>();
    loaded->code_object = std::move(*code_object);
    for(const auto& [name, kernel] : loaded->code_object.kernels)
        loaded->functions[name] = {&loaded->code_object, &kernel, fake_hip::current_device()};
    const std::scoped_lock lock(mutex);
    for(auto& [_, symbol] : loaded->functions)
        sources()[&symbol] = "module";
    *module            = loaded.get();
    modules()[*module] = std::move(loaded);
    return hipSuccess;
}

/// Returns the entry of sources(), null for a kernel that is not loaded.
const char* source_of(hipFunction_t function)
{
    const std::scoped_lock lock(mutex);
    const auto found = sources().find(function);
    return found == sources().end() ? nullptr : found->second;
}

// The form AITER uses: {POINTER, buffer, SIZE, &size, END}.
std::optional<std::string> buffer_of(void** extra)
{
    const void* buffer      = nullptr;
    const std::size_t* size = nullptr;
    for(; *extra != HIP_LAUNCH_PARAM_END; extra += 2)
    {
        if(*extra == HIP_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if(*extra == HIP_LAUNCH_PARAM_BUFFER_SIZE)
            size = static_cast<const std::size_t*>(extra[1]);
        else
            return std::nullopt;
    }
    if(!buffer || !size)
        return std::nullopt;
    return std::string(static_cast<const char*>(buffer), *size);
}

hipError_t launch(hipFunction_t function, const CallConfiguration& configuration, void** parameters, void** extra)
{
    const char* const source = source_of(function);
    if(!source)
        return record(hipErrorInvalidHandle);
    // HIP loads a module for one device.
    if(function->device != fake_hip::stream_device(configuration.stream))
        return record(hipErrorInvalidDevice);
    if(parameters && extra)
        return record(hipErrorInvalidValue);
    const fake_hip::Launch launch{configuration, *function->code_object, *function->kernel, source};
    if(!extra)
        return fake_hip::launch(launch, fake_hip::pack_arguments(launch, parameters));
    const auto buffer = buffer_of(extra);
    return buffer ? fake_hip::launch(launch, *buffer) : record(hipErrorInvalidValue);
}

} // namespace

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
    return reinterpret_cast<void**>(new FatBinary{wrapper->binary, {}});
}

void __hipUnregisterFatBinary(void** handle)
{
    const std::scoped_lock lock(mutex);
    auto* binary = reinterpret_cast<FatBinary*>(handle);
    std::erase_if(functions(), [&](const auto& item) {
        if(item.second.binary != binary)
            return false;
        for(const auto& [_, handle] : item.second.handles)
            sources().erase(handle.get());
        return true;
    });
    std::erase_if(variables(), [&](const auto& item) { return item.second.binary == binary; });
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
    functions()[host_function] = {reinterpret_cast<FatBinary*>(handle), device_name, {}};
}

void __hipRegisterVar(void** handle, void* host_variable, char*, const char* name, int, std::size_t, int, int)
{
    const std::scoped_lock lock(mutex);
    variables()[host_variable] = {reinterpret_cast<FatBinary*>(handle), name};
}

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
    *lds    = top.dynamic_lds_bytes;
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
    const hipError_t error = launch(function, {grid, block, lds, stream}, arguments);
    // A launch with <<<...>>> has no result.
    return error == hipSuccess ? error : fake_hip::record_refusal(error);
}

hipError_t hipGetFuncBySymbol(hipFunction_t* function, const void* symbol)
{
    FAKE_HIP_ENTER();
    *function         = nullptr;
    const int device  = fake_hip::current_device();
    const Found found = find(symbol, device);
    if(found.error != hipSuccess)
        return record(found.error);
    const std::scoped_lock lock(mutex);
    auto& handle = functions().at(symbol).handles[device];
    if(!handle)
        handle = std::make_unique<ihipModuleSymbol_t>(ihipModuleSymbol_t{found.code_object, found.kernel, device});
    *function            = handle.get();
    sources()[*function] = "fatbin";
    return hipSuccess;
}

hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int block, std::size_t lds)
{
    FAKE_HIP_ENTER();
    Residency found;
    if(!blocks)
        return record(hipErrorInvalidValue);
    if(const hipError_t error = residency(function, lds, found); error != hipSuccess)
        return record(error);
    if(block <= 0)
        return record(hipErrorInvalidValue);
    *blocks = block > fake_hip::kThreadsPerBlock ? 0 : std::min(found.threads / whole_waves(block), found.blocks);
    return hipSuccess;
}

hipError_t hipOccupancyMaxPotentialBlockSize(int* grid, int* block, const void* function, std::size_t lds, int limit)
{
    FAKE_HIP_ENTER();
    Residency found;
    if(!grid || !block)
        return record(hipErrorInvalidValue);
    if(const hipError_t error = residency(function, lds, found); error != hipSuccess)
        return record(error);
    const int most = limit <= 0 ? fake_hip::kThreadsPerBlock : std::min(limit, fake_hip::kThreadsPerBlock);
    *block = std::min(found.threads, whole_waves(most));
    *grid  = fake_hip::current_arch().cu_count * std::min(found.threads / *block, found.blocks);
    return hipSuccess;
}

// A kernel that waits for its whole grid fails on the emulator: it reads the grid's barrier at a null address.
hipError_t hipLaunchCooperativeKernel(const void* function,
                                      dim3 grid,
                                      dim3 block,
                                      void** arguments,
                                      unsigned lds,
                                      hipStream_t stream)
{
    FAKE_HIP_ENTER();
    int blocks             = 0;
    const int threads      = static_cast<int>(block.x * block.y * block.z);
    const hipError_t error = hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, lds);
    if(error != hipSuccess)
        return error;
    if(std::size_t{grid.x} * grid.y * grid.z > std::size_t(blocks) * std::size_t(fake_hip::current_arch().cu_count))
        return record(hipErrorCooperativeLaunchTooLarge);
    return launch(function, {grid, block, lds, stream}, arguments);
}

hipError_t hipExtLaunchKernel(const void* function,
                              dim3 grid,
                              dim3 block,
                              void** arguments,
                              std::size_t lds,
                              hipStream_t stream,
                              hipEvent_t start,
                              hipEvent_t stop,
                              int)
{
    FAKE_HIP_ENTER();
    if(start)
        (void)hipEventRecord(start, stream);
    const hipError_t error = launch(function, {grid, block, lds, stream}, arguments);
    if(stop)
        (void)hipEventRecord(stop, stream);
    return error;
}

hipError_t hipFuncGetAttributes(hipFuncAttributes* attributes, const void* function)
{
    FAKE_HIP_ENTER();
    const Found found = find(function, fake_hip::current_device());
    if(found.error != hipSuccess)
        return record(found.error);
    *attributes                           = {};
    attributes->binaryVersion             = 10 * fake_hip::current_arch().major + fake_hip::current_arch().minor;
    attributes->ptxVersion                = attributes->binaryVersion;
    attributes->localSizeBytes            = found.kernel->scratch_bytes;
    const std::size_t lds                 = fake_hip::current_arch().lds_bytes - found.kernel->lds_bytes;
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(lds);
    attributes->maxThreadsPerBlock        = static_cast<int>(found.kernel->max_block);
    attributes->numRegs                   = static_cast<int>(found.kernel->vgprs);
    attributes->sharedSizeBytes           = found.kernel->lds_bytes;
    return hipSuccess;
}

// Hints, and a limit of the LDS that a launch has anyway.
hipError_t hipFuncSetAttribute(const void* function, hipFuncAttribute, int)
{
    FAKE_HIP_ENTER();
    return record(find(function, fake_hip::current_device()).error);
}

hipError_t hipFuncSetCacheConfig(const void*, hipFuncCache_t)
{
    FAKE_HIP_ENTER();
    return hipSuccess;
}

hipError_t hipFuncSetSharedMemConfig(const void*, hipSharedMemConfig)
{
    FAKE_HIP_ENTER();
    return hipSuccess;
}

hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* function, int block, std::size_t lds, unsigned)
{
    FAKE_HIP_ENTER();
    return hipOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block, lds);
}

hipError_t hipGetSymbolAddress(void** address, const void* symbol)
{
    FAKE_HIP_ENTER();
    fake_hip::Variable found;
    const hipError_t error = find_variable(symbol, found);
    *address               = found.address;
    return error;
}

hipError_t hipGetSymbolSize(std::size_t* size, const void* symbol)
{
    FAKE_HIP_ENTER();
    fake_hip::Variable found;
    const hipError_t error = find_variable(symbol, found);
    *size                  = found.size;
    return error;
}

hipError_t hipMemcpyToSymbol(const void* symbol, const void* from, std::size_t size, std::size_t offset, hipMemcpyKind)
{
    FAKE_HIP_ENTER();
    return copy_variable(symbol, offset, size, nullptr, from);
}

hipError_t hipMemcpyFromSymbol(void* to, const void* symbol, std::size_t size, std::size_t offset, hipMemcpyKind)
{
    FAKE_HIP_ENTER();
    return copy_variable(symbol, offset, size, to, nullptr);
}

hipError_t hipMemcpyToSymbolAsync(const void* symbol,
                                  const void* from,
                                  std::size_t size,
                                  std::size_t offset,
                                  hipMemcpyKind kind,
                                  hipStream_t stream)
{
    FAKE_HIP_ENTER();
    if(fake_hip::stream_number(stream) < 0)
        return record(hipErrorInvalidHandle);
    return hipMemcpyToSymbol(symbol, from, size, offset, kind);
}

hipError_t hipMemcpyFromSymbolAsync(void* to,
                                    const void* symbol,
                                    std::size_t size,
                                    std::size_t offset,
                                    hipMemcpyKind kind,
                                    hipStream_t stream)
{
    FAKE_HIP_ENTER();
    if(fake_hip::stream_number(stream) < 0)
        return record(hipErrorInvalidHandle);
    return hipMemcpyFromSymbol(to, symbol, size, offset, kind);
}

const char* hipKernelNameRefByPtr(const void* host_function, hipStream_t)
{
    const std::scoped_lock lock(mutex);
    const auto function = functions().find(host_function);
    return function == functions().end() ? nullptr : function->second.name.c_str();
}

hipError_t hipModuleLoad(hipModule_t* module, const char* path)
{
    FAKE_HIP_ENTER();
    std::ifstream file(path, std::ios::binary);
    if(!file)
        return record(hipErrorFileNotFound);
    const std::string image{std::istreambuf_iterator<char>(file), {}};
    return load(module, image.data());
}

hipError_t hipModuleLoadData(hipModule_t* module, const void* image)
{
    FAKE_HIP_ENTER();
    return load(module, image);
}

hipError_t hipModuleLoadDataEx(hipModule_t* module, const void* image, unsigned int, hipJitOption*, void**)
{
    FAKE_HIP_ENTER();
    return load(module, image);
}

hipError_t hipModuleUnload(hipModule_t module)
{
    FAKE_HIP_ENTER();
    const std::scoped_lock lock(mutex);
    const auto found = modules().find(module);
    if(found == modules().end())
        return record(hipErrorInvalidHandle);
    for(auto& [_, symbol] : found->second->functions)
        sources().erase(&symbol);
    modules().erase(found);
    return hipSuccess;
}

hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name)
{
    FAKE_HIP_ENTER();
    *function = nullptr;
    const std::scoped_lock lock(mutex);
    const auto loaded = modules().find(module);
    if(loaded == modules().end())
        return record(hipErrorInvalidHandle);
    const auto found = loaded->second->functions.find(name);
    if(found == loaded->second->functions.end())
        return record(hipErrorNotFound);
    *function = &found->second;
    return hipSuccess;
}

hipError_t hipModuleGetGlobal(hipDeviceptr_t* address, std::size_t* size, hipModule_t module, const char* name)
{
    FAKE_HIP_ENTER();
    const fake_hip::CodeObject* code_object = nullptr;
    {
        const std::scoped_lock lock(mutex);
        const auto loaded = modules().find(module);
        if(loaded == modules().end())
            return record(hipErrorInvalidHandle);
        code_object = &loaded->second->code_object;
    }
    const fake_hip::Variable found = fake_hip::find_variable(*code_object, name);
    *address                       = found.address;
    *size                          = found.size;
    return record(found.address ? hipSuccess : hipErrorNotFound);
}

const char* hipKernelNameRef(const hipFunction_t function) { return function->kernel->symbol.c_str(); }

hipError_t hipModuleLaunchKernel(hipFunction_t function,
                                 unsigned grid_x,
                                 unsigned grid_y,
                                 unsigned grid_z,
                                 unsigned block_x,
                                 unsigned block_y,
                                 unsigned block_z,
                                 unsigned lds,
                                 hipStream_t stream,
                                 void** parameters,
                                 void** extra)
{
    FAKE_HIP_ENTER();
    const CallConfiguration configuration{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, lds, stream};
    return launch(function, configuration, parameters, extra);
}

} // extern "C"
