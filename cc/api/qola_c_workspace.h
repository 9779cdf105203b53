// Allocates from the device memory that a C caller passes; not installed.
#pragma once

#include "qola_c_refused.h"

#include <hip/hip_runtime_api.h>

#include <cstdint>
#include <string>

namespace qola_c_entry {

/// Allocates pieces of the caller's workspace; without one, computes the required size.
class Workspace
{
    public:
    Workspace() = default;
    Workspace(void* memory, std::uint64_t size, hipStream_t stream)
        : base_(reinterpret_cast<std::uintptr_t>(memory)), size_(size), stream_(stream), real_(true)
    {
    }

    void* operator()(std::uint64_t bytes, bool zeroed)
    {
        // Align address and size of each piece like hipMalloc.
        const std::uintptr_t start = (base_ + used_ + 255) / 256 * 256;
        used_                      = start - base_ + bytes;
        void* piece                = reinterpret_cast<void*>(start);
        if(!real_)
            return piece;
        if(base_ == 0 || used_ > size_)
            refuse(QOLA_INVALID,
                   (base_ == 0 ? "workspace: null" : "workspace_size: " + std::to_string(size_)) +
                       ", and the problem needs " + std::to_string(needed()) + " bytes or more");
        if(zeroed)
            if(const hipError_t error = hipMemsetAsync(piece, 0, bytes, stream_); error != hipSuccess)
            {
                static_cast<void>(hipGetLastError());
                refuse(QOLA_FAILED, std::string("hipMemsetAsync: ") + hipGetErrorString(error));
            }
        return piece;
    }

    /// Throws the exception of an earlier allocation. AITER may have swallowed it and returned a status.
    void check() const
    {
        if(status_ != QOLA_OK)
            throw Refused(status_, what_);
    }

    /// Returns the allocated bytes, independent of the workspace's address.
    std::uint64_t needed() const { return used_ == 0 ? 0 : used_ + (real_ ? 255 : 0); }

    bool real() const { return real_; }
    hipStream_t stream() const { return stream_; }

    private:
    [[noreturn]] void refuse(int status, const std::string& what)
    {
        // Not an exception_ptr: older systems lack symbols that a static archive would need for it.
        status_ = status;
        what_   = what;
        throw Refused(status, what);
    }

    // Without a workspace: a non-null address one byte after an aligned one, so that the size suffices for
    // every alignment.
    std::uintptr_t base_  = 1;
    std::uint64_t size_   = 0;
    std::uint64_t used_   = 0;
    hipStream_t stream_   = nullptr;
    bool real_            = false;
    int status_           = QOLA_OK;
    std::string what_;
};

} // namespace qola_c_entry
