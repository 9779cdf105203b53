// Streams and events. All work is complete when a call returns.
#include "settings.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

using fake_hip::record;
using fake_hip::stream_number;

namespace {

using Clock = std::chrono::steady_clock;

struct Stream
{
    int number         = 0;
    int device         = 0;
    unsigned int flags = hipStreamDefault;
    int priority       = 0;
};

std::mutex mutex;
std::uintptr_t created = 0; // handles made; each is its own number, and never used again

// Not destroyed: other static destructors may still destroy streams.
auto& streams() { static auto* all = new std::map<hipStream_t, Stream>; return *all; }
auto& events() { static auto* all = new std::map<hipEvent_t, std::optional<Clock::time_point>>; return *all; }
int stream_count = 0;

template <class Handle>
Handle new_handle()
{
    // Far from what could be dereferenced by accident, and not the special handles 1 and 2.
    return reinterpret_cast<Handle>(++created * 16);
}

bool is_event(hipEvent_t event)
{
    const std::scoped_lock lock(mutex);
    return events().contains(event);
}

Stream properties_of(hipStream_t stream)
{
    const std::scoped_lock lock(mutex);
    const auto found = streams().find(stream);
    return found == streams().end() ? Stream{} : found->second;
}

hipError_t check_stream(hipStream_t stream)
{
    return record(stream_number(stream) < 0 ? hipErrorInvalidHandle : hipSuccess);
}

} // namespace

namespace fake_hip {

int stream_number(hipStream_t stream)
{
    if(stream == nullptr || stream == hipStreamPerThread)
        return 0;
    const std::scoped_lock lock(mutex);
    const auto found = streams().find(stream);
    return found == streams().end() ? -1 : found->second.number;
}

int stream_device(hipStream_t stream)
{
    const std::scoped_lock lock(mutex);
    const auto found = streams().find(stream);
    return found == streams().end() ? current_device() : found->second.device;
}

} // namespace fake_hip

extern "C" {

hipError_t hipStreamCreate(hipStream_t* stream)
{
    FAKE_HIP_ENTER();
    const std::scoped_lock lock(mutex);
    *stream            = new_handle<hipStream_t>();
    streams()[*stream] = {++stream_count, fake_hip::current_device(), hipStreamDefault, 0};
    return hipSuccess;
}

hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned int flags, int priority)
{
    FAKE_HIP_ENTER();
    const hipError_t error = hipStreamCreate(stream);
    const std::scoped_lock lock(mutex);
    if(error == hipSuccess)
    {
        streams()[*stream].flags    = flags;
        streams()[*stream].priority = std::clamp(priority, -1, 1);
    }
    return error;
}

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned int flags)
{
    FAKE_HIP_ENTER();
    return hipStreamCreateWithPriority(stream, flags, 0);
}

hipError_t hipStreamGetFlags(hipStream_t stream, unsigned int* flags)
{
    FAKE_HIP_ENTER();
    *flags = properties_of(stream).flags;
    return check_stream(stream);
}

hipError_t hipStreamGetPriority(hipStream_t stream, int* priority)
{
    FAKE_HIP_ENTER();
    *priority = properties_of(stream).priority;
    return check_stream(stream);
}

hipError_t hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t callback, void* data, unsigned int)
{
    FAKE_HIP_ENTER();
    if(const hipError_t error = check_stream(stream); error != hipSuccess)
        return error;
    callback(stream, hipSuccess, data);
    return hipSuccess;
}

hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void* data)
{
    FAKE_HIP_ENTER();
    if(const hipError_t error = check_stream(stream); error != hipSuccess)
        return error;
    function(data);
    return hipSuccess;
}

hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest)
{
    FAKE_HIP_ENTER();
    // Those of AMD's GPUs.
    *least    = 1;
    *greatest = -1;
    return hipSuccess;
}

hipError_t hipStreamDestroy(hipStream_t stream)
{
    FAKE_HIP_ENTER();
    const std::scoped_lock lock(mutex);
    return record(streams().erase(stream) ? hipSuccess : hipErrorInvalidHandle);
}

hipError_t hipStreamGetDevice(hipStream_t stream, hipDevice_t* device)
{
    FAKE_HIP_ENTER();
    *device = fake_hip::stream_device(stream);
    return check_stream(stream);
}

// An extension of AMD's, without an error: -1 for a handle that is not a stream.
int hipGetStreamDeviceId(hipStream_t stream)
{
    return stream_number(stream) < 0 ? -1 : fake_hip::stream_device(stream);
}

hipError_t hipStreamSynchronize(hipStream_t stream)
{
    FAKE_HIP_ENTER();
    const hipError_t error = check_stream(stream);
    return error == hipSuccess ? fake_hip::launch_error() : error;
}

hipError_t hipStreamQuery(hipStream_t stream)
{
    FAKE_HIP_ENTER();
    const hipError_t error = check_stream(stream);
    return error == hipSuccess ? fake_hip::launch_error() : error;
}

hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int)
{
    FAKE_HIP_ENTER();
    if(!is_event(event))
        return record(hipErrorInvalidHandle);
    return check_stream(stream);
}

hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status)
{
    FAKE_HIP_ENTER();
    *status = hipStreamCaptureStatusNone;
    return check_stream(stream);
}

hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode)
{
    FAKE_HIP_ENTER();
    // No capture is ever active.
    thread_local hipStreamCaptureMode current = hipStreamCaptureModeGlobal;
    std::swap(*mode, current);
    return hipSuccess;
}

hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned int)
{
    FAKE_HIP_ENTER();
    return hipEventCreate(event);
}

hipError_t hipEventCreate(hipEvent_t* event)
{
    FAKE_HIP_ENTER();
    const std::scoped_lock lock(mutex);
    *event           = new_handle<hipEvent_t>();
    events()[*event] = std::nullopt;
    return hipSuccess;
}

hipError_t hipEventDestroy(hipEvent_t event)
{
    FAKE_HIP_ENTER();
    const std::scoped_lock lock(mutex);
    return record(events().erase(event) ? hipSuccess : hipErrorInvalidHandle);
}

hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream)
{
    FAKE_HIP_ENTER();
    if(const hipError_t error = check_stream(stream); error != hipSuccess)
        return error;
    if(!is_event(event))
        return record(hipErrorInvalidHandle);
    const std::scoped_lock lock(mutex);
    events()[event] = Clock::now();
    return hipSuccess;
}

hipError_t hipEventRecordWithFlags(hipEvent_t event, hipStream_t stream, unsigned int)
{
    FAKE_HIP_ENTER();
    return hipEventRecord(event, stream);
}

hipError_t hipEventSynchronize(hipEvent_t event)
{
    FAKE_HIP_ENTER();
    return is_event(event) ? fake_hip::launch_error() : record(hipErrorInvalidHandle);
}

hipError_t hipEventQuery(hipEvent_t event)
{
    FAKE_HIP_ENTER();
    return is_event(event) ? fake_hip::launch_error() : record(hipErrorInvalidHandle);
}

hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t stop)
{
    FAKE_HIP_ENTER();
    const std::scoped_lock lock(mutex);
    const auto from = events().find(start);
    const auto to   = events().find(stop);
    if(from == events().end() || to == events().end() || !from->second || !to->second)
        return record(hipErrorInvalidHandle);
    *milliseconds = std::chrono::duration<float, std::milli>(*to->second - *from->second).count();
    return hipSuccess;
}

} // extern "C"
