// A HIP program as anybody would write it: the tests run it against the fake runtime.
//
//   probe launch            both kernels, on two streams
//   probe attributes        what the device is
//   probe module FILE NAME  a kernel out of a code object, loaded from the file and from memory
//   probe symbol            a registered kernel, launched as a module's is
//   probe memory            allocate, copy, set, free
//   probe pytorch           what PyTorch asks beside that
//   probe unsupported       a function the fake runtime does not have
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

__global__ void scale(float* data, int count, double factor)
{
    __shared__ float lines[64];
    const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    lines[threadIdx.x] = at < count ? data[at] : 0.f;
    __syncthreads();
    if(at < count)
        data[at] = static_cast<float>(lines[threadIdx.x ^ 1] * factor);
}

template <int N>
__global__ void fill(int* data)
{
    data[blockIdx.y * blockDim.x + threadIdx.x] = N;
}

namespace {

void say(const char* what, hipError_t error)
{
    std::printf("%s %d\n", what, static_cast<int>(error));
}

void launch()
{
    hipStream_t stream = nullptr;
    say("hipStreamCreate", hipStreamCreate(&stream));
    auto* data = reinterpret_cast<float*>(0x1122334455667788);
    scale<<<dim3(3, 2, 1), dim3(64, 1, 1), 1024, stream>>>(data, 7, 0.5);
    say("scale", hipGetLastError());
    fill<4><<<2, 128>>>(reinterpret_cast<int*>(data));
    say("fill", hipGetLastError());
    fill<4><<<2, 4096>>>(reinterpret_cast<int*>(data));
    say("fill too large", hipGetLastError());

    hipEvent_t start = nullptr, stop = nullptr;
    say("hipEventCreate", hipEventCreate(&start));
    say("hipEventCreate", hipEventCreate(&stop));
    say("hipEventRecord", hipEventRecord(start, stream));
    scale<<<1, 64, 0, stream>>>(data, 8, 0.25);
    say("hipEventRecord", hipEventRecord(stop, stream));
    float milliseconds = -1;
    say("hipEventElapsedTime", hipEventElapsedTime(&milliseconds, start, stop));
    std::printf("elapsed %d\n", milliseconds >= 0);
    say("hipStreamDestroy", hipStreamDestroy(stream));
    say("hipStreamDestroy again", hipStreamDestroy(stream));
}

void attributes()
{
    hipDeviceProp_t properties{};
    say("hipGetDeviceProperties", hipGetDeviceProperties(&properties, 0));
    std::printf("gcnArchName %s\n", properties.gcnArchName);
    std::printf("multiProcessorCount %d\n", properties.multiProcessorCount);
    std::printf("sharedMemPerBlock %zu\n", properties.sharedMemPerBlock);
    say("hipSetDevice 1", hipSetDevice(1));
}

void module(const char* path, const char* name)
{
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> image{std::istreambuf_iterator<char>(file), {}};
    for(const bool from_memory : {false, true})
    {
        hipModule_t module   = nullptr;
        hipFunction_t kernel = nullptr;
        const hipError_t loaded =
            from_memory ? hipModuleLoadData(&module, image.data()) : hipModuleLoad(&module, path);
        say(from_memory ? "hipModuleLoadData" : "hipModuleLoad", loaded);
        if(loaded != hipSuccess)
            continue;
        say("hipModuleGetFunction", hipModuleGetFunction(&kernel, module, name));
        say("hipModuleGetFunction nobody", hipModuleGetFunction(&kernel, module, "nobody"));
        say("hipModuleLaunchKernel null",
            hipModuleLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, nullptr, nullptr, nullptr));
        say("hipModuleGetFunction", hipModuleGetFunction(&kernel, module, name));
        unsigned char arguments[]{1, 2, 3, 4, 5, 6, 7, 8};
        std::size_t size = sizeof arguments;
        void* extra[]{HIP_LAUNCH_PARAM_BUFFER_POINTER,
                      arguments,
                      HIP_LAUNCH_PARAM_BUFFER_SIZE,
                      &size,
                      HIP_LAUNCH_PARAM_END};
        say("hipModuleLaunchKernel",
            hipModuleLaunchKernel(kernel, 4, 5, 6, 256, 1, 1, 0, nullptr, nullptr, extra));
        say("hipModuleUnload", hipModuleUnload(module));
    }
}

void symbol()
{
    hipFunction_t kernel = nullptr;
    say("hipGetFuncBySymbol nobody", hipGetFuncBySymbol(&kernel, "nobody"));
    say("hipGetFuncBySymbol",
        hipGetFuncBySymbol(&kernel, reinterpret_cast<const void*>(scale)));
    unsigned char arguments[]{1, 2, 3, 4};
    std::size_t size = sizeof arguments;
    void* extra[]{HIP_LAUNCH_PARAM_BUFFER_POINTER,
                  arguments,
                  HIP_LAUNCH_PARAM_BUFFER_SIZE,
                  &size,
                  HIP_LAUNCH_PARAM_END};
    say("hipModuleLaunchKernel",
        hipModuleLaunchKernel(kernel, 2, 3, 1, 64, 1, 1, 0, nullptr, nullptr, extra));
    int chip = 0;
    say("hipDeviceGetAttribute", hipDeviceGetAttribute(&chip, hipDeviceAttributePciChipId, 0));
    std::printf("chip %x\n", chip);
}

void memory()
{
    char* data = nullptr;
    char back[8]{};
    say("hipMalloc", hipMalloc(&data, 8));
    say("hipMemset", hipMemset(data, 'x', 8));
    say("hipMemcpy", hipMemcpy(data, "ab", 2, hipMemcpyHostToDevice));
    say("hipMemcpy", hipMemcpy(back, data, 7, hipMemcpyDeviceToHost));
    std::printf("bytes %s\n", back);
    say("hipMemsetAsync", hipMemsetAsync(data, 'y', 3, nullptr));
    say("hipMemsetD32", hipMemsetD32(data + 4, 0x7a7a7a7a, 1));
    say("hipMemcpy", hipMemcpy(back, data, 7, hipMemcpyDeviceToHost));
    std::printf("bytes %s\n", back);
    say("hipFree", hipFree(data));
    say("hipFree again", hipFree(data));
    std::printf("name %s\n", hipGetErrorName(hipGetLastError()));
    say("hipMalloc too much", hipMalloc(&data, std::size_t{1} << 40));
}

void pytorch()
{
    int least = 0, greatest = 0;
    say("hipDeviceGetStreamPriorityRange", hipDeviceGetStreamPriorityRange(&least, &greatest));
    hipStream_t stream = nullptr;
    say("hipStreamCreateWithPriority",
        hipStreamCreateWithPriority(&stream, hipStreamNonBlocking, greatest));
    hipStreamCaptureStatus status{};
    say("hipStreamIsCapturing", hipStreamIsCapturing(stream, &status));
    hipStreamCaptureMode mode = hipStreamCaptureModeRelaxed;
    say("hipThreadExchangeStreamCaptureMode", hipThreadExchangeStreamCaptureMode(&mode));
    say("hipThreadExchangeStreamCaptureMode", hipThreadExchangeStreamCaptureMode(&mode));
    std::printf("capture %d %d\n", status, mode == hipStreamCaptureModeRelaxed);

    hipEvent_t event = nullptr;
    say("hipEventCreateWithFlags", hipEventCreateWithFlags(&event, hipEventDisableTiming));
    say("hipStreamWaitEvent", hipStreamWaitEvent(stream, event, 0));
    say("hipEventQuery", hipEventQuery(event));
    say("hipStreamQuery", hipStreamQuery(stream));

    unsigned flags = 0;
    int active     = 0;
    say("hipDevicePrimaryCtxGetState", hipDevicePrimaryCtxGetState(0, &flags, &active));
    std::size_t before = 0, after = 0, total = 0;
    char* data = nullptr;
    say("hipMemGetInfo", hipMemGetInfo(&before, &total));
    say("hipMalloc", hipMalloc(&data, 8));
    say("hipMemGetInfo", hipMemGetInfo(&after, &total));
    std::printf("used %zu\n", before - after);
    char back[3]{};
    say("hipMemcpyAsync", hipMemcpyAsync(data, "ab", 2, hipMemcpyHostToDevice, stream));
    say("hipMemcpyWithStream", hipMemcpyWithStream(back, data, 2, hipMemcpyDeviceToHost, stream));
    std::printf("bytes %s\n", back);
    hipPointerAttribute_t attributes{};
    say("hipPointerGetAttributes", hipPointerGetAttributes(&attributes, data + 7));
    std::printf("type %d\n", attributes.type);
    say("hipPointerGetAttributes host", hipPointerGetAttributes(&attributes, back));
    void* pinned = nullptr;
    say("hipHostMalloc", hipHostMalloc(&pinned, 8, hipHostMallocDefault));
    say("hipPointerGetAttributes pinned", hipPointerGetAttributes(&attributes, pinned));
    std::printf("type pinned %d\n", attributes.type);
    say("hipMemGetInfo", hipMemGetInfo(&before, &total));
    std::printf("used pinned %zu\n", after - before);
    say("hipFree pinned", hipFree(pinned));
    say("hipHostFree", hipHostFree(pinned));
    say("hipStreamDestroy", hipStreamDestroy(stream));
    say("hipStreamQuery destroyed", hipStreamQuery(stream));
}

} // namespace

int main(int argc, char** argv)
{
    std::setvbuf(stdout, nullptr, _IONBF, 0); // the last lines before an abort count
    const std::string what = argc > 1 ? argv[1] : "";
    if(what == "launch")
        launch();
    else if(what == "attributes")
        attributes();
    else if(what == "module" && argc == 4)
        module(argv[2], argv[3]);
    else if(what == "symbol")
        symbol();
    else if(what == "memory")
        memory();
    else if(what == "pytorch")
        pytorch();
    else if(what == "unsupported")
        say("hipGraphCreate", hipGraphCreate(nullptr, 0));
    else
        return 2;
    return 0;
}
