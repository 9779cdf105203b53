// Device memory and pinned memory, which are host memory here.
#include "launch.h"
#include "settings.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

using fake_hip::record;

namespace {

struct Allocation
{
    std::size_t bytes;
    hipMemoryType type;
};

std::mutex mutex;
std::map<void*, Allocation>& allocations()
{
    static auto* all = new std::map<void*, Allocation>; // outlives static destructors that free
    return *all;
}

// Bytes of the device in use. The mutex is the caller's.
std::size_t allocated()
{
    std::size_t used = 0;
    for(const auto& [_, allocation] : allocations())
        used += allocation.type == hipMemoryTypeDevice ? allocation.bytes : 0;
    return used;
}

// Contents of new memory: a NaN for every float, so that a forgotten initialisation shows. Only the first bytes of large
// allocations, of which programs use a part: the rest stays 0, and takes no memory of the machine.
constexpr unsigned char unwritten     = 0xff;
constexpr std::size_t most_unwritten = std::size_t{1} << 30;

// Addresses before and behind each allocation that no allocation has, so that an access that misses one hits no other.
constexpr std::size_t kGap = std::size_t{1} << 20;

// Freed allocations whose addresses stay reserved.
constexpr std::size_t kMostFreed = 1024;
auto& freed() { static auto* all = new std::deque<std::pair<void*, std::size_t>>; return *all; }

std::size_t pages(std::size_t size)
{
    constexpr std::size_t page = 4096;
    return (size + page - 1) / page * page;
}

/// Reserves addresses without memory: at a place, whose memory is given back, or anywhere.
void* reserve(void* place, std::size_t size)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (place ? MAP_FIXED : 0);
    return mmap(place, size, PROT_NONE, flags, -1, 0);
}

// The mutex is the caller's.
hipError_t allocate(void** pointer, std::size_t size, hipMemoryType type)
{
    // Shared: an emulator may run workgroups in processes of its own.
    char* const reserved = static_cast<char*>(reserve(nullptr, pages(size) + 2 * kGap));
    if(reserved == MAP_FAILED)
        return record(hipErrorOutOfMemory);
    void* mapped = mmap(reserved + kGap, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if(mapped == MAP_FAILED)
    {
        munmap(reserved, pages(size) + 2 * kGap);
        return record(hipErrorOutOfMemory);
    }
    std::memset(mapped, unwritten, std::min(size, most_unwritten));
    *pointer                = mapped;
    allocations()[*pointer] = {size, type};
    return hipSuccess;
}

hipError_t release(void* pointer, hipMemoryType type)
{
    if(!pointer)
        return hipSuccess;
    const std::scoped_lock lock(mutex);
    const auto found = allocations().find(pointer);
    if(found == allocations().end() || found->second.type != type)
        return record(hipErrorInvalidValue);
    const std::size_t size = found->second.bytes;
    allocations().erase(found);
    // Its addresses stay reserved for some time, so that a use of freed memory is not one of other memory.
    reserve(pointer, size);
    freed().emplace_back(pointer, size);
    if(freed().size() > kMostFreed)
    {
        const auto [oldest, bytes] = freed().front();
        munmap(static_cast<char*>(oldest) - kGap, pages(bytes) + 2 * kGap);
        freed().pop_front();
    }
    return hipSuccess;
}

} // namespace

extern "C" {

std::size_t fake_hip_allocations(std::uintptr_t* addresses, std::size_t* sizes, std::size_t capacity)
{
    const std::scoped_lock lock(mutex);
    std::size_t count = 0;
    for(const auto& [pointer, allocation] : allocations())
    {
        if(count < capacity)
        {
            addresses[count] = reinterpret_cast<std::uintptr_t>(pointer);
            sizes[count]     = allocation.bytes;
        }
        ++count;
    }
    return count;
}

std::size_t fake_hip_freed(std::uintptr_t* addresses, std::size_t* sizes, std::size_t capacity)
{
    const std::scoped_lock lock(mutex);
    std::size_t count = 0;
    for(const auto& [pointer, bytes] : freed())
    {
        if(count < capacity)
        {
            addresses[count] = reinterpret_cast<std::uintptr_t>(pointer);
            sizes[count]     = bytes;
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
    return allocate(pointer, size, hipMemoryTypeDevice);
}

// Kernels reach all memory here.
hipError_t hipMallocManaged(void** pointer, std::size_t size, unsigned int)
{
    FAKE_HIP_ENTER();
    return hipMalloc(pointer, size);
}

hipError_t hipFree(void* pointer)
{
    FAKE_HIP_ENTER();
    return release(pointer, hipMemoryTypeDevice);
}

hipError_t hipHostMalloc(void** pointer, std::size_t size, unsigned)
{
    FAKE_HIP_ENTER();
    *pointer = nullptr;
    if(size == 0)
        return hipSuccess;
    const std::scoped_lock lock(mutex);
    return allocate(pointer, size, hipMemoryTypeHost);
}

hipError_t hipHostFree(void* pointer)
{
    FAKE_HIP_ENTER();
    return release(pointer, hipMemoryTypeHost);
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
    const auto& [start, allocation] = *--after;
    if(static_cast<const char*>(pointer) >= static_cast<const char*>(start) + allocation.bytes)
        return record(hipErrorInvalidValue);
    *attributes               = {};
    attributes->type          = allocation.type;
    attributes->devicePointer = const_cast<void*>(pointer);
    if(allocation.type == hipMemoryTypeHost)
        attributes->hostPointer = const_cast<void*>(pointer);
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
