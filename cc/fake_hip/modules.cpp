// Code objects that a program loads itself, and the launch of their kernels.
#include "errors.h"
#include "launch.h"

#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>

using fake_hip::Kernel;
using fake_hip::record;

struct ihipModule_t
{
    fake_hip::CodeObject code_object;
    std::map<std::string, ihipModuleSymbol_t> functions;
};

namespace {

std::mutex mutex;
auto& modules() { static auto* all = new std::map<hipModule_t, std::unique_ptr<ihipModule_t>>; return *all; }

hipError_t load(hipModule_t* module, const void* image)
{
    *module = nullptr;
    if(!image)
        return record(hipErrorInvalidValue);
    auto code_object = fake_hip::load_image(image, fake_hip::settings().arch);
    if(!code_object)
        return record(hipErrorNoBinaryForGpu);
    auto loaded = std::make_unique<ihipModule_t>();
    loaded->code_object = std::move(*code_object);
    for(const auto& [name, kernel] : loaded->code_object.kernels)
        loaded->functions[name] = {&loaded->code_object, &kernel};
    const std::scoped_lock lock(mutex);
    *module            = loaded.get();
    modules()[*module] = std::move(loaded);
    return hipSuccess;
}

bool known(hipFunction_t function)
{
    const std::scoped_lock lock(mutex);
    for(const auto& [_, module] : modules())
        for(const auto& [_, one] : module->functions)
            if(&one == function)
                return true;
    return false;
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

hipError_t launch(hipFunction_t function,
                  dim3 grid,
                  dim3 block,
                  std::size_t lds,
                  hipStream_t stream,
                  void** parameters,
                  void** extra)
{
    const bool of_symbol = fake_hip::is_of_symbol(function);
    if(!of_symbol && !known(function))
        return record(hipErrorInvalidHandle);
    if(parameters && extra)
        return record(hipErrorInvalidValue);
    const fake_hip::Launch launch{
        *function->code_object, *function->kernel, of_symbol ? "fatbin" : "module", grid, block, lds,
        stream};
    if(!extra)
        return fake_hip::launch(launch, fake_hip::pack_arguments(launch, parameters));
    const auto buffer = buffer_of(extra);
    return buffer ? fake_hip::launch(launch, *buffer) : record(hipErrorInvalidValue);
}

} // namespace

extern "C" {

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

hipError_t hipModuleUnload(hipModule_t module)
{
    FAKE_HIP_ENTER();
    const std::scoped_lock lock(mutex);
    return record(modules().erase(module) ? hipSuccess : hipErrorInvalidHandle);
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
    return launch(function,
                  dim3(grid_x, grid_y, grid_z),
                  dim3(block_x, block_y, block_z),
                  lds,
                  stream,
                  parameters,
                  extra);
}

} // extern "C"
