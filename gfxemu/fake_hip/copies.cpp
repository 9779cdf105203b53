// Copies and fills of memory, complete when they return. Synchronous copies wait for kernels, and return their error.
#include "settings.h"

#include <algorithm>
#include <cstring>

using fake_hip::record;

namespace {

hipError_t check_stream(hipStream_t stream)
{
    return record(fake_hip::stream_number(stream) < 0 ? hipErrorInvalidHandle : hipSuccess);
}

void copy(void* to, const void* from, std::size_t size)
{
    std::memmove(to, from, size);
    fake_hip::record_write(to, size, from);
}

/// Copies rows of `width` bytes.
hipError_t copy_rows(void* to,
                     std::size_t to_pitch,
                     const void* from,
                     std::size_t from_pitch,
                     std::size_t width,
                     std::size_t height)
{
    if(width > to_pitch || width > from_pitch)
        return record(hipErrorInvalidValue);
    for(std::size_t row = 0; row < height; ++row)
        copy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
    return hipSuccess;
}

template <class T>
hipError_t fill(hipDeviceptr_t to, T value, std::size_t count, hipStream_t stream = nullptr)
{
    if(const hipError_t error = check_stream(stream); error != hipSuccess)
        return error;
    std::fill_n(static_cast<T*>(to), count, value);
    fake_hip::record_write(to, count * sizeof(T));
    return hipSuccess;
}

} // namespace

extern "C" {

hipError_t hipMemcpy(void* to, const void* from, std::size_t size, hipMemcpyKind)
{
    FAKE_HIP_ENTER();
    copy(to, from, size);
    return fake_hip::launch_error();
}

hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t size, hipMemcpyKind, hipStream_t stream)
{
    FAKE_HIP_ENTER();
    if(const hipError_t error = check_stream(stream); error != hipSuccess)
        return error;
    copy(to, from, size);
    return hipSuccess;
}

hipError_t hipMemcpyWithStream(void* to, const void* from, std::size_t size, hipMemcpyKind kind, hipStream_t stream)
{
    FAKE_HIP_ENTER();
    const hipError_t error = hipMemcpyAsync(to, from, size, kind, stream);
    return error == hipSuccess ? fake_hip::launch_error() : error;
}

hipError_t hipMemcpyHtoD(hipDeviceptr_t to, const void* from, std::size_t size)
{
    FAKE_HIP_ENTER();
    return hipMemcpy(to, from, size, hipMemcpyHostToDevice);
}

hipError_t hipMemcpyDtoH(void* to, hipDeviceptr_t from, std::size_t size)
{
    FAKE_HIP_ENTER();
    return hipMemcpy(to, from, size, hipMemcpyDeviceToHost);
}

hipError_t hipMemcpyDtoD(hipDeviceptr_t to, hipDeviceptr_t from, std::size_t size)
{
    FAKE_HIP_ENTER();
    return hipMemcpy(to, from, size, hipMemcpyDeviceToDevice);
}

hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t to, const void* from, std::size_t size, hipStream_t stream)
{
    FAKE_HIP_ENTER();
    return hipMemcpyAsync(to, from, size, hipMemcpyHostToDevice, stream);
}

hipError_t hipMemcpyDtoHAsync(void* to, hipDeviceptr_t from, std::size_t size, hipStream_t stream)
{
    FAKE_HIP_ENTER();
    return hipMemcpyAsync(to, from, size, hipMemcpyDeviceToHost, stream);
}

hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t to, hipDeviceptr_t from, std::size_t size, hipStream_t stream)
{
    FAKE_HIP_ENTER();
    return hipMemcpyAsync(to, from, size, hipMemcpyDeviceToDevice, stream);
}

hipError_t hipMemcpyPeer(void* to, int, const void* from, int, std::size_t size)
{
    FAKE_HIP_ENTER();
    return hipMemcpy(to, from, size, hipMemcpyDeviceToDevice);
}

hipError_t hipMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t size, hipStream_t stream)
{
    FAKE_HIP_ENTER();
    return hipMemcpyAsync(to, from, size, hipMemcpyDeviceToDevice, stream);
}

hipError_t hipMemcpy2D(void* to,
                       std::size_t to_pitch,
                       const void* from,
                       std::size_t from_pitch,
                       std::size_t width,
                       std::size_t height,
                       hipMemcpyKind)
{
    FAKE_HIP_ENTER();
    const hipError_t error = copy_rows(to, to_pitch, from, from_pitch, width, height);
    return error == hipSuccess ? fake_hip::launch_error() : error;
}

hipError_t hipMemcpy2DAsync(void* to,
                            std::size_t to_pitch,
                            const void* from,
                            std::size_t from_pitch,
                            std::size_t width,
                            std::size_t height,
                            hipMemcpyKind,
                            hipStream_t stream)
{
    FAKE_HIP_ENTER();
    const hipError_t error = check_stream(stream);
    return error == hipSuccess ? copy_rows(to, to_pitch, from, from_pitch, width, height) : error;
}

hipError_t hipMemset(void* to, int value, std::size_t size)
{
    FAKE_HIP_ENTER();
    return fill(to, static_cast<unsigned char>(value), size);
}

hipError_t hipMemsetAsync(void* to, int value, std::size_t size, hipStream_t stream)
{
    FAKE_HIP_ENTER();
    return fill(to, static_cast<unsigned char>(value), size, stream);
}

hipError_t hipMemsetD8(hipDeviceptr_t to, unsigned char value, std::size_t count)
{
    FAKE_HIP_ENTER();
    return fill(to, value, count);
}

hipError_t hipMemsetD8Async(hipDeviceptr_t to, unsigned char value, std::size_t count, hipStream_t stream)
{
    FAKE_HIP_ENTER();
    return fill(to, value, count, stream);
}

hipError_t hipMemsetD16(hipDeviceptr_t to, unsigned short value, std::size_t count)
{
    FAKE_HIP_ENTER();
    return fill(to, value, count);
}

hipError_t hipMemsetD16Async(hipDeviceptr_t to, unsigned short value, std::size_t count, hipStream_t stream)
{
    FAKE_HIP_ENTER();
    return fill(to, value, count, stream);
}

hipError_t hipMemsetD32(hipDeviceptr_t to, int value, std::size_t count)
{
    FAKE_HIP_ENTER();
    return fill(to, value, count);
}

hipError_t hipMemsetD32Async(hipDeviceptr_t to, int value, std::size_t count, hipStream_t stream)
{
    FAKE_HIP_ENTER();
    return fill(to, value, count, stream);
}

hipError_t hipMemset2D(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height)
{
    FAKE_HIP_ENTER();
    return hipMemset2DAsync(to, pitch, value, width, height, nullptr);
}

hipError_t hipMemset2DAsync(
    void* to, std::size_t pitch, int value, std::size_t width, std::size_t height, hipStream_t stream)
{
    FAKE_HIP_ENTER();
    if(width > pitch)
        return record(hipErrorInvalidValue);
    const hipError_t error = check_stream(stream);
    for(std::size_t row = 0; error == hipSuccess && row < height; ++row)
        (void)fill(static_cast<char*>(to) + row * pitch, static_cast<unsigned char>(value), width);
    return error;
}

} // extern "C"
