// Device memory, which is host memory here.
#include "launch.h"
#include "settings.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

using fake_hip::record;

namespace {

std::mutex mutex;
std::map<void*, std::size_t>& allocations()
{
    static auto* all = new std::map<void*, std::size_t>; // outlives static destructors that free
    return *all;
}

// Bytes in use. The mutex is the caller's.
std::size_t allocated()
{
    std::size_t used = 0;
    for(const auto& [_, bytes] : allocations())
        used += bytes;
    return used;
}

} // namespace

extern "C" {

std::size_t fake_hip_allocations(std::uintptr_t* addresses, std::size_t* sizes, std::size_t capacity)
{
    const std::scoped_lock lock(mutex);
    std::size_t count = 0;
    for(const auto& [pointer, size] : allocations())
    {
        if(count < capacity)
        {
            addresses[count] = reinterpret_cast<std::uintptr_t>(pointer);
            sizes[count]     = size;
        }
        ++count;
    }
    return count;
}

hipError_t hipMalloc(void** pointer, std::size_t size)
{
    FAKE_HIP_ENTER();
    *pointer = nullptr;
    if(size == 0)
        return hipSuccess;
    const std::scoped_lock lock(mutex);
    if(allocated() + size > fake_hip::current_arch().memory_bytes)
        return record(hipErrorOutOfMemory);
    // Shared: an emulator may run workgroups in processes of its own.
    void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if(mapped == MAP_FAILED)
        return record(hipErrorOutOfMemory);
    *pointer                = mapped;
    allocations()[*pointer] = size;
    return hipSuccess;
}

hipError_t hipFree(void* pointer)
{
    FAKE_HIP_ENTER();
    if(!pointer)
        return hipSuccess;
    const std::scoped_lock lock(mutex);
    const auto found = allocations().find(pointer);
    if(found == allocations().end())
        return record(hipErrorInvalidValue);
    munmap(pointer, found->second);
    allocations().erase(found);
    return hipSuccess;
}

hipError_t hipMemcpy(void* to, const void* from, std::size_t size, hipMemcpyKind)
{
    FAKE_HIP_ENTER();
    std::memmove(to, from, size);
    return hipSuccess;
}

hipError_t hipMemcpyWithStream(void* to, const void* from, std::size_t size, hipMemcpyKind kind, hipStream_t stream)
{
    FAKE_HIP_ENTER();
    if(fake_hip::stream_number(stream) < 0)
        return record(hipErrorInvalidHandle);
    return hipMemcpy(to, from, size, kind);
}

hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t size, hipMemcpyKind kind, hipStream_t stream)
{
    FAKE_HIP_ENTER();
    return hipMemcpyWithStream(to, from, size, kind, stream);
}

hipError_t hipMemGetInfo(std::size_t* free, std::size_t* total)
{
    FAKE_HIP_ENTER();
    const std::scoped_lock lock(mutex);
    *total = fake_hip::current_arch().memory_bytes;
    *free  = *total - allocated();
    return hipSuccess;
}

hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer)
{
    FAKE_HIP_ENTER();
    const std::scoped_lock lock(mutex);
    auto after = allocations().upper_bound(const_cast<void*>(pointer));
    if(after == allocations().begin())
        return record(hipErrorInvalidValue);
    const auto& [start, size] = *--after;
    if(static_cast<const char*>(pointer) >= static_cast<const char*>(start) + size)
        return record(hipErrorInvalidValue);
    *attributes               = {};
    attributes->type          = hipMemoryTypeDevice;
    attributes->devicePointer = const_cast<void*>(pointer);
    return hipSuccess;
}

hipError_t hipMemset(void* to, int value, std::size_t size)
{
    FAKE_HIP_ENTER();
    std::memset(to, value, size);
    return hipSuccess;
}

hipError_t hipMemsetAsync(void* to, int value, std::size_t size, hipStream_t stream)
{
    FAKE_HIP_ENTER();
    if(fake_hip::stream_number(stream) < 0)
        return record(hipErrorInvalidHandle);
    std::memset(to, value, size);
    return hipSuccess;
}

hipError_t hipMemsetD32(hipDeviceptr_t to, int value, std::size_t count)
{
    FAKE_HIP_ENTER();
    std::fill_n(static_cast<int*>(to), count, value);
    return hipSuccess;
}

} // extern "C"
