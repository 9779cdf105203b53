// Device memory and pinned memory, which are host memory here.
#include "launch.h"
#include "settings.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

using fake_hip::record;

namespace {

struct Allocation
{
    std::size_t bytes;
    hipMemoryType type;
    bool registered        = false;   ///< memory of the program, with hipHostRegister
    unsigned char* written = nullptr; ///< of device memory whose writes are followed: a byte for each byte
};

std::mutex mutex;
bool follows_writes = false;
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

// Freed allocations whose addresses stay reserved, and their bytes.
constexpr std::size_t kMostFreed      = 1024;
constexpr std::size_t kMostFreedBytes = std::size_t{1} << 40;
std::size_t freed_bytes               = 0;
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
    if(follows_writes && type == hipMemoryTypeDevice)
    {
        void* written = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if(written != MAP_FAILED)
            allocations()[*pointer].written = static_cast<unsigned char*>(written);
    }
    return hipSuccess;
}

hipError_t release(void* pointer, hipMemoryType type)
{
    if(!pointer)
        return hipSuccess;
    const std::scoped_lock lock(mutex);
    const auto found = allocations().find(pointer);
    if(found == allocations().end() || found->second.type != type || found->second.registered)
        return record(hipErrorInvalidValue);
    const std::size_t size = found->second.bytes;
    if(found->second.written)
        munmap(found->second.written, size);
    allocations().erase(found);
    // Its addresses stay reserved for some time, so that a use of freed memory is not one of other memory.
    reserve(pointer, size);
    freed().emplace_back(pointer, size);
    freed_bytes += size;
    while(freed().size() > kMostFreed || freed_bytes > kMostFreedBytes)
    {
        const auto [oldest, bytes] = freed().front();
        freed_bytes -= bytes;
        munmap(static_cast<char*>(oldest) - kGap, pages(bytes) + 2 * kGap);
        freed().pop_front();
    }
    return hipSuccess;
}

/// Returns address and facts of the allocation that has an address, if there is one.
std::optional<std::pair<void*, Allocation>> find(const void* pointer)
{
    const std::scoped_lock lock(mutex);
    auto after = allocations().upper_bound(const_cast<void*>(pointer));
    if(after == allocations().begin())
        return std::nullopt;
    const auto& [start, allocation] = *--after;
    if(static_cast<const char*>(pointer) >= static_cast<const char*>(start) + allocation.bytes)
        return std::nullopt;
    return std::pair{start, allocation};
}

/// Returns the bytes that follow the writes of a part of memory, null without them. The mutex is the caller's.
unsigned char* written_of(const void* pointer, std::size_t size)
{
    auto after = allocations().upper_bound(const_cast<void*>(pointer));
    if(after == allocations().begin())
        return nullptr;
    const auto& [start, allocation] = *--after;
    const std::size_t offset = static_cast<std::size_t>(static_cast<const char*>(pointer) - static_cast<char*>(start));
    const bool within        = offset <= allocation.bytes && size <= allocation.bytes - offset;
    return allocation.written && within ? allocation.written + offset : nullptr;
}

// Bytes between rows of hipMallocPitch, as on AMD's GPUs.
constexpr std::size_t kPitch = 256;

// Pools by handle, with the attributes that were set: memory is the same with and without a pool.
using Pool = std::map<hipMemPoolAttr, std::uint64_t>;
auto& pools() { static auto* all = new std::map<hipMemPool_t, Pool>; return *all; }
auto& current_pools() { static auto* all = new std::map<int, hipMemPool_t>; return *all; }

/// Returns the pool of a device; like other handles, an address that nothing has.
hipMemPool_t default_pool(int device)
{
    const auto pool = reinterpret_cast<hipMemPool_t>(16 * (static_cast<std::uintptr_t>(device) + 1));
    const std::scoped_lock lock(mutex);
    pools()[pool];
    return pool;
}

bool is_pool(hipMemPool_t pool)
{
    const std::scoped_lock lock(mutex);
    return pools().contains(pool);
}

std::size_t attribute_size(hipMemPoolAttr attribute)
{
    return attribute < hipMemPoolAttrReleaseThreshold ? sizeof(int) : sizeof(std::uint64_t);
}

} // namespace

void fake_hip::record_write(const void* to, std::size_t size, const void* from)
{
    if(!follows_writes)
        return;
    const std::scoped_lock lock(mutex);
    unsigned char* const target = written_of(to, size);
    if(!target)
        return;
    // Copied bytes count as unwritten if their sources do.
    if(const unsigned char* const source = from ? written_of(from, size) : nullptr)
        std::memmove(target, source, size);
    else
        std::memset(target, 1, size);
}

extern "C" {

void fake_hip_follow_writes() { follows_writes = true; }

unsigned char* fake_hip_written(const void* allocation)
{
    const std::scoped_lock lock(mutex);
    return written_of(allocation, 0);
}

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
    const hipError_t error = hipMalloc(pointer, size);
    // The host writes it without the runtime.
    if(error == hipSuccess && *pointer)
        fake_hip::record_write(*pointer, size);
    return error;
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
    const auto found = find(pointer);
    if(!found)
        return record(hipErrorInvalidValue);
    *attributes               = {};
    attributes->type          = found->second.type;
    attributes->devicePointer = const_cast<void*>(pointer);
    if(found->second.type == hipMemoryTypeHost)
        attributes->hostPointer = const_cast<void*>(pointer);
    return hipSuccess;
}

hipError_t hipMallocHost(void** pointer, std::size_t size)
{
    FAKE_HIP_ENTER();
    return hipHostMalloc(pointer, size, 0);
}

hipError_t hipMemAllocHost(void** pointer, std::size_t size)
{
    FAKE_HIP_ENTER();
    return hipHostMalloc(pointer, size, 0);
}

hipError_t hipHostAlloc(void** pointer, std::size_t size, unsigned int flags)
{
    FAKE_HIP_ENTER();
    return hipHostMalloc(pointer, size, flags);
}

hipError_t hipFreeHost(void* pointer)
{
    FAKE_HIP_ENTER();
    return hipHostFree(pointer);
}

hipError_t hipHostRegister(void* pointer, std::size_t size, unsigned int)
{
    FAKE_HIP_ENTER();
    if(!pointer || size == 0)
        return record(hipErrorInvalidValue);
    const std::scoped_lock lock(mutex);
    const auto [_, added] = allocations().try_emplace(pointer, Allocation{size, hipMemoryTypeHost, true});
    return record(added ? hipSuccess : hipErrorHostMemoryAlreadyRegistered);
}

hipError_t hipHostUnregister(void* pointer)
{
    FAKE_HIP_ENTER();
    const std::scoped_lock lock(mutex);
    const auto found = allocations().find(pointer);
    if(found == allocations().end() || !found->second.registered)
        return record(hipErrorHostMemoryNotRegistered);
    allocations().erase(found);
    return hipSuccess;
}

hipError_t hipHostGetDevicePointer(void** device, void* host, unsigned int)
{
    FAKE_HIP_ENTER();
    *device = nullptr;
    const auto found = find(host);
    if(!found || found->second.type != hipMemoryTypeHost)
        return record(hipErrorInvalidValue);
    *device = host;
    return hipSuccess;
}

hipError_t hipHostGetFlags(unsigned int* flags, void* host)
{
    FAKE_HIP_ENTER();
    const auto found = find(host);
    *flags           = hipHostMallocDefault;
    return record(found && found->second.type == hipMemoryTypeHost ? hipSuccess : hipErrorInvalidValue);
}

hipError_t hipExtMallocWithFlags(void** pointer, std::size_t size, unsigned int)
{
    FAKE_HIP_ENTER();
    return hipMalloc(pointer, size);
}

hipError_t hipMallocPitch(void** pointer, std::size_t* pitch, std::size_t width, std::size_t height)
{
    FAKE_HIP_ENTER();
    *pitch = (width + kPitch - 1) / kPitch * kPitch;
    return hipMalloc(pointer, *pitch * height);
}

hipError_t hipMemAllocPitch(
    hipDeviceptr_t* pointer, std::size_t* pitch, std::size_t width, std::size_t height, unsigned int)
{
    FAKE_HIP_ENTER();
    return hipMallocPitch(pointer, pitch, width, height);
}

hipError_t hipMemGetAddressRange(hipDeviceptr_t* start, std::size_t* size, hipDeviceptr_t pointer)
{
    FAKE_HIP_ENTER();
    const auto found = find(pointer);
    if(!found)
        return record(hipErrorNotFound);
    *start = found->first;
    *size  = found->second.bytes;
    return hipSuccess;
}

hipError_t hipMemPtrGetInfo(void* pointer, std::size_t* size)
{
    FAKE_HIP_ENTER();
    const auto found = find(pointer);
    if(!found || found->first != pointer)
        return record(hipErrorInvalidValue);
    *size = found->second.bytes;
    return hipSuccess;
}

// Managed memory is where host and device find it.
hipError_t hipMemPrefetchAsync(const void* pointer, std::size_t, int, hipStream_t stream)
{
    FAKE_HIP_ENTER();
    return record(find(pointer) && fake_hip::stream_number(stream) >= 0 ? hipSuccess : hipErrorInvalidValue);
}

hipError_t hipMemAdvise(const void* pointer, std::size_t, hipMemoryAdvise, int)
{
    FAKE_HIP_ENTER();
    return record(find(pointer) ? hipSuccess : hipErrorInvalidValue);
}

hipError_t hipMallocAsync(void** pointer, std::size_t size, hipStream_t stream)
{
    FAKE_HIP_ENTER();
    if(fake_hip::stream_number(stream) < 0)
        return record(hipErrorInvalidHandle);
    return hipMalloc(pointer, size);
}

hipError_t hipFreeAsync(void* pointer, hipStream_t stream)
{
    FAKE_HIP_ENTER();
    if(fake_hip::stream_number(stream) < 0)
        return record(hipErrorInvalidHandle);
    return hipFree(pointer);
}

hipError_t hipMallocFromPoolAsync(void** pointer, std::size_t size, hipMemPool_t pool, hipStream_t stream)
{
    FAKE_HIP_ENTER();
    return is_pool(pool) ? hipMallocAsync(pointer, size, stream) : record(hipErrorInvalidValue);
}

hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t* pool, int device)
{
    FAKE_HIP_ENTER();
    if(device < 0 || device >= static_cast<int>(fake_hip::settings().archs.size()))
        return record(hipErrorInvalidDevice);
    *pool = default_pool(device);
    return hipSuccess;
}

hipError_t hipDeviceGetMemPool(hipMemPool_t* pool, int device)
{
    FAKE_HIP_ENTER();
    if(const hipError_t error = hipDeviceGetDefaultMemPool(pool, device); error != hipSuccess)
        return error;
    const std::scoped_lock lock(mutex);
    if(const auto found = current_pools().find(device); found != current_pools().end())
        *pool = found->second;
    return hipSuccess;
}

hipError_t hipDeviceSetMemPool(int device, hipMemPool_t pool)
{
    FAKE_HIP_ENTER();
    hipMemPool_t present = nullptr;
    if(const hipError_t error = hipDeviceGetDefaultMemPool(&present, device); error != hipSuccess)
        return error;
    if(!is_pool(pool))
        return record(hipErrorInvalidValue);
    const std::scoped_lock lock(mutex);
    current_pools()[device] = pool;
    return hipSuccess;
}

hipError_t hipMemPoolCreate(hipMemPool_t* pool, const hipMemPoolProps* properties)
{
    FAKE_HIP_ENTER();
    if(!pool || !properties)
        return record(hipErrorInvalidValue);
    const std::scoped_lock lock(mutex);
    *pool = reinterpret_cast<hipMemPool_t>(new char);
    pools()[*pool];
    return hipSuccess;
}

hipError_t hipMemPoolDestroy(hipMemPool_t pool)
{
    FAKE_HIP_ENTER();
    if(!is_pool(pool) || pool == default_pool(fake_hip::current_device()))
        return record(hipErrorInvalidValue);
    const std::scoped_lock lock(mutex);
    pools().erase(pool);
    std::erase_if(current_pools(), [&](const auto& item) { return item.second == pool; });
    return hipSuccess;
}

hipError_t hipMemPoolTrimTo(hipMemPool_t pool, std::size_t)
{
    FAKE_HIP_ENTER();
    return record(is_pool(pool) ? hipSuccess : hipErrorInvalidValue);
}

hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value)
{
    FAKE_HIP_ENTER();
    if(!is_pool(pool) || !value)
        return record(hipErrorInvalidValue);
    const std::scoped_lock lock(mutex);
    std::memcpy(&pools()[pool][attribute], value, attribute_size(attribute));
    return hipSuccess;
}

// A pool keeps no pages, so its reserved memory is its memory in use.
hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value)
{
    FAKE_HIP_ENTER();
    if(!is_pool(pool) || !value)
        return record(hipErrorInvalidValue);
    const std::scoped_lock lock(mutex);
    const std::uint64_t used = allocated();
    const bool counts        = attribute >= hipMemPoolAttrReservedMemCurrent;
    std::memcpy(value, counts ? &used : &pools()[pool][attribute], attribute_size(attribute));
    return hipSuccess;
}

hipError_t hipMemPoolSetAccess(hipMemPool_t pool, const hipMemAccessDesc*, std::size_t)
{
    FAKE_HIP_ENTER();
    return record(is_pool(pool) ? hipSuccess : hipErrorInvalidValue);
}

hipError_t hipMemPoolGetAccess(hipMemAccessFlags* flags, hipMemPool_t pool, hipMemLocation*)
{
    FAKE_HIP_ENTER();
    *flags = hipMemAccessFlagsProtReadWrite;
    return record(is_pool(pool) ? hipSuccess : hipErrorInvalidValue);
}

} // extern "C"
