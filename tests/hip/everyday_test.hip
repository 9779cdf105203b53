// Functions of the runtime that programs use every day: streams, pools, pinned memory, copies, attributes, devices.
#include <hip/hip_ext.h>
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define EXPECT(condition)                                             \
    do                                                                \
    {                                                                 \
        if(!(condition))                                              \
        {                                                             \
            std::fprintf(stderr, "%d: %s\n", __LINE__, #condition); \
            std::exit(1);                                             \
        }                                                             \
    } while(false)

__device__ int variable;

__global__ void add(int* values, int value)
{
    __shared__ int room[64];
    room[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = room[threadIdx.x] + value + variable;
}

static void streams_and_pools()
{
    hipStream_t stream = nullptr;
    EXPECT(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking) == hipSuccess);
    unsigned flags = 0;
    int priority   = 1;
    EXPECT(hipStreamGetFlags(stream, &flags) == hipSuccess && flags == hipStreamNonBlocking);
    EXPECT(hipStreamGetPriority(stream, &priority) == hipSuccess && priority == 0);

    int* values = nullptr;
    EXPECT(hipMallocAsync(reinterpret_cast<void**>(&values), 256, stream) == hipSuccess);
    EXPECT(hipMemsetD32Async(values, 5, 64, stream) == hipSuccess);
    const int one = 1;
    EXPECT(hipMemcpyToSymbolAsync(HIP_SYMBOL(variable), &one, 4, 0, hipMemcpyHostToDevice, stream) == hipSuccess);
    add<<<1, 64, 0, stream>>>(values, 10);
    int back[64] = {};
    EXPECT(hipMemcpyDtoHAsync(back, values, 256, stream) == hipSuccess);
    bool called = false;
    EXPECT(hipLaunchHostFunc(stream, [](void* data) { *static_cast<bool*>(data) = true; }, &called) == hipSuccess);
    EXPECT(hipStreamSynchronize(stream) == hipSuccess && called);
    EXPECT(back[0] == 16 && back[63] == 16);
    EXPECT(hipFreeAsync(values, stream) == hipSuccess);
    EXPECT(hipFreeAsync(values, stream) == hipErrorInvalidValue);
    (void)hipGetLastError();

    hipMemPool_t pool = nullptr, own = nullptr, current = nullptr;
    EXPECT(hipDeviceGetDefaultMemPool(&pool, 0) == hipSuccess);
    unsigned long long threshold = ~0ull, found = 0;
    EXPECT(hipMemPoolSetAttribute(pool, hipMemPoolAttrReleaseThreshold, &threshold) == hipSuccess);
    EXPECT(hipMemPoolGetAttribute(pool, hipMemPoolAttrReleaseThreshold, &found) == hipSuccess && found == threshold);
    hipMemPoolProps properties{};
    properties.allocType = hipMemAllocationTypePinned;
    properties.location  = {hipMemLocationTypeDevice, 0};
    EXPECT(hipMemPoolCreate(&own, &properties) == hipSuccess && own != pool);
    EXPECT(hipDeviceSetMemPool(0, own) == hipSuccess);
    EXPECT(hipDeviceGetMemPool(&current, 0) == hipSuccess && current == own);
    EXPECT(hipMallocFromPoolAsync(reinterpret_cast<void**>(&values), 100, own, stream) == hipSuccess);
    EXPECT(hipMemPoolGetAttribute(own, hipMemPoolAttrUsedMemCurrent, &found) == hipSuccess && found == 100);
    EXPECT(hipFreeAsync(values, stream) == hipSuccess);
    EXPECT(hipMemPoolTrimTo(own, 0) == hipSuccess && hipMemPoolDestroy(own) == hipSuccess);
    EXPECT(hipMallocFromPoolAsync(reinterpret_cast<void**>(&values), 100, own, stream) == hipErrorInvalidValue);
    (void)hipGetLastError();
    EXPECT(hipStreamDestroy(stream) == hipSuccess);
}

static void host_memory()
{
    int *pinned = nullptr, *device = nullptr;
    EXPECT(hipHostAlloc(reinterpret_cast<void**>(&pinned), 256, hipHostMallocMapped) == hipSuccess);
    EXPECT(hipHostGetDevicePointer(reinterpret_cast<void**>(&device), pinned, 0) == hipSuccess);
    pinned[7] = 1;
    const int zero = 0;
    EXPECT(hipMemcpyToSymbol(HIP_SYMBOL(variable), &zero, 4) == hipSuccess);
    add<<<1, 64>>>(device, 2);
    EXPECT(hipDeviceSynchronize() == hipSuccess && pinned[7] == 3);
    EXPECT(hipFreeHost(pinned) == hipSuccess);

    std::vector<int> own(64, 4);
    EXPECT(hipHostRegister(own.data(), 256, hipHostRegisterDefault) == hipSuccess);
    EXPECT(hipHostRegister(own.data(), 256, hipHostRegisterDefault) == hipErrorHostMemoryAlreadyRegistered);
    (void)hipGetLastError();
    add<<<1, 64>>>(own.data(), 3);
    EXPECT(hipDeviceSynchronize() == hipSuccess && own[63] == 7);
    EXPECT(hipHostFree(own.data()) == hipErrorInvalidValue);
    EXPECT(hipHostUnregister(own.data()) == hipSuccess);
    EXPECT(hipHostUnregister(own.data()) == hipErrorHostMemoryNotRegistered);
    (void)hipGetLastError();
}

static void copies()
{
    char* rows        = nullptr;
    std::size_t pitch = 0, size = 0;
    EXPECT(hipMallocPitch(reinterpret_cast<void**>(&rows), &pitch, 10, 3) == hipSuccess && pitch >= 10);
    const char from[] = "abcdefghijABCDEFGHIJ0123456789";
    char to[30]       = {};
    EXPECT(hipMemcpy2D(rows, pitch, from, 10, 10, 3, hipMemcpyHostToDevice) == hipSuccess);
    EXPECT(hipMemset2D(rows + 1, pitch, 'x', 1, 2) == hipSuccess);
    EXPECT(hipMemcpy2DAsync(to, 10, rows, pitch, 10, 3, hipMemcpyDeviceToHost, nullptr) == hipSuccess);
    EXPECT(std::string(to, 30) == "axcdefghijAxCDEFGHIJ0123456789");
    EXPECT(hipMemcpy2D(rows, 5, from, 10, 10, 3, hipMemcpyHostToDevice) == hipErrorInvalidValue);
    (void)hipGetLastError();
    hipDeviceptr_t start = nullptr;
    EXPECT(hipMemGetAddressRange(&start, &size, rows + 17) == hipSuccess && start == rows && size == 3 * pitch);
    EXPECT(hipMemsetD16(rows, 0x6162, 2) == hipSuccess && hipMemsetD8(rows + 4, 'z', 1) == hipSuccess);
    EXPECT(hipMemcpyDtoH(to, rows, 5) == hipSuccess && std::string(to, 5) == "babaz");
    EXPECT(hipMemcpyHtoD(rows, "q", 1) == hipSuccess && hipMemcpyDtoD(rows + 1, rows, 1) == hipSuccess);
    EXPECT(hipMemcpyPeer(to, 0, rows, 0, 2) == hipSuccess && std::string(to, 2) == "qq");
    EXPECT(hipFree(rows) == hipSuccess);
}

static void facts()
{
    hipFuncAttributes attributes{};
    EXPECT(hipFuncGetAttributes(&attributes, reinterpret_cast<const void*>(add)) == hipSuccess);
    EXPECT(attributes.sharedSizeBytes == 256 && attributes.maxThreadsPerBlock == 1024 && attributes.numRegs > 0);
    EXPECT(hipFuncSetAttribute(reinterpret_cast<const void*>(add), hipFuncAttributeMaxDynamicSharedMemorySize, 1024) == hipSuccess);
    EXPECT(hipFuncSetCacheConfig(reinterpret_cast<const void*>(add), hipFuncCachePreferShared) == hipSuccess);
    int version = 0, driver = 0, can = 1;
    EXPECT(hipRuntimeGetVersion(&version) == hipSuccess && hipDriverGetVersion(&driver) == hipSuccess && version > 50000000);
    EXPECT(hipInit(0) == hipSuccess && hipSetDeviceFlags(hipDeviceScheduleSpin) == hipSuccess);
    EXPECT(hipDeviceCanAccessPeer(&can, 0, 0) == hipSuccess && can == 0);
    hipDevice_t device = -1;
    char name[64]      = {};
    std::size_t bytes  = 0;
    EXPECT(hipDeviceGet(&device, 0) == hipSuccess && device == 0 && hipDeviceGet(&device, 1) == hipErrorInvalidDevice);
    EXPECT(hipDeviceGetName(name, sizeof name, 0) == hipSuccess && std::strstr(name, "gfx"));
    EXPECT(hipDeviceTotalMem(&bytes, 0) == hipSuccess && bytes > 0);
    EXPECT(hipDeviceGetPCIBusId(name, sizeof name, 0) == hipSuccess && std::string(name) == "0000:01:00.0");
    EXPECT(hipDeviceGetAttribute(&version, hipDeviceAttributeMemoryPoolsSupported, 0) == hipSuccess && version == 1);
    (void)hipGetLastError();

    // Timed by events of the launch.
    hipEvent_t begin = nullptr, end = nullptr;
    EXPECT(hipEventCreate(&begin) == hipSuccess && hipEventCreate(&end) == hipSuccess);
    int* values = nullptr;
    EXPECT(hipMalloc(reinterpret_cast<void**>(&values), 256) == hipSuccess && hipMemset(values, 0, 256) == hipSuccess);
    hipExtLaunchKernelGGL(add, dim3(1), dim3(64), 0, nullptr, begin, end, 0, values, 1);
    float milliseconds = -1;
    EXPECT(hipEventSynchronize(end) == hipSuccess);
    EXPECT(hipEventElapsedTime(&milliseconds, begin, end) == hipSuccess && milliseconds >= 0);
    EXPECT(hipFree(values) == hipSuccess);
}

static void refused_launches()
{
    add<<<1, 2048>>>(nullptr, 0);
    EXPECT(hipDeviceSynchronize() == hipErrorInvalidConfiguration);
    EXPECT(hipDeviceSynchronize() == hipSuccess);
    EXPECT(hipGetLastError() == hipErrorInvalidConfiguration);
    add<<<1, 2048>>>(nullptr, 0);
    EXPECT(hipGetLastError() == hipErrorInvalidConfiguration);
    EXPECT(hipDeviceSynchronize() == hipSuccess);
}

int main()
{
    streams_and_pools();
    host_memory();
    copies();
    facts();
    refused_launches();
    EXPECT(hipDeviceReset() == hipSuccess);
    return 0;
}
