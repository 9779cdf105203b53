// Places the accumulators of kernels in the workspace of a C caller; not installed.
#pragma once

#include "qola_c_kernels.h"
#include "qola_c_members.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include <hip/hip_runtime_api.h>

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
    std::uintptr_t base_ = 1;
    std::uint64_t size_  = 0;
    std::uint64_t used_  = 0;
    hipStream_t stream_  = nullptr;
    bool real_           = false;
    int status_          = QOLA_OK;
    std::string what_;
};

/// A pool of free pieces of pinned host memory, which some AITERs copy from in group mode of the backward.
///
/// AITER returns a piece from a host function on the stream. Such a function must not call HIP: hipHostFree
/// would wait for the stream, which waits for the function.
class Pinned
{
    public:
    static std::shared_ptr<void> piece(std::size_t bytes)
    {
        Pinned& all  = instance();
        Piece* piece = all.taken(bytes);
        // The destructor also frees it if allocating the shared_ptr fails.
        return std::shared_ptr<void>(piece->memory, [&all, piece](void*) { all.give(piece); });
    }

    private:
    struct Piece
    {
        void* memory     = nullptr;
        std::size_t size = 0;
        Piece* next      = nullptr;
    };

    static Pinned& instance()
    {
        // Never destroyed, because streams may use pieces when the process ends.
        static auto& all = *new Pinned;
        return all;
    }

    Piece* taken(std::size_t bytes)
    {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            for(Piece** at = &free_; *at != nullptr; at = &(*at)->next)
                if((*at)->size >= bytes)
                {
                    Piece* found = *at;
                    *at          = found->next;
                    return found;
                }
        }
        auto made = std::make_unique<Piece>();
        // Round sizes up, so that most calls find a piece.
        for(made->size = 4096; made->size < bytes;)
            made->size *= 2;
        if(hipHostMalloc(&made->memory, made->size, hipHostMallocPortable) != hipSuccess)
        {
            static_cast<void>(hipGetLastError());
            throw std::bad_alloc();
        }
        return made.release();
    }

    void give(Piece* piece)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        piece->next = free_;
        free_       = piece;
    }

    std::mutex mutex_;
    Piece* free_ = nullptr;
};

/// Smallest number of rows of K per accumulator of a deterministic kernel: none has fewer than 16.
template <class Entry>
std::int64_t rows_of_split(std::int64_t hdim)
{
    int fewest = 0;
    for(const Kernel& kernel : Entry::kernels())
        if(kernel.split != 0 && kernel.hdim >= hdim && (fewest == 0 || kernel.split < fewest))
            fewest = kernel.split;
    return fewest == 0 ? 16 : fewest;
}

/// Returns the bytes of `count` floats.
inline std::int64_t floats(std::initializer_list<std::int64_t> sizes)
{
    std::int64_t bytes = sizeof(float);
    for(const std::int64_t size : sizes)
        if(__builtin_mul_overflow(bytes, size, &bytes))
            invalid("batch, nhead_q, seqlen_q: accumulators are beyond 64 bits");
    return bytes;
}

/// Sets AITER's arguments to memory for data that its kernels pass to each other.
template <class Entry, class Args>
void scratch(Args& args, const qola_mha_args& given, bool assembly, Workspace& workspace)
{
    // The rows of all sequences, and the accumulators per head.
    const std::int64_t rows  = given.seqlen_q * (given.group ? 1 : given.batch);
    const std::int64_t heads = given.nhead_q;
    const std::int64_t own   = given.group ? rows : given.seqlen_q;
    if constexpr(requires { args.o_acc_ptr; })
    {
        const std::int64_t outside = given.group ? 0 : heads * own;
        QOLA_C_SET(num_splits, given.num_splits, "num_splits")
        args.lse_acc_ptr = workspace(floats({given.num_splits, rows, heads}), false);
        QOLA_C_SET(nhead_stride_lse_acc, own, "seqlen_q")
        QOLA_C_SET(batch_stride_lse_acc, outside, "seqlen_q")
        QOLA_C_SET(split_stride_lse_acc, rows * heads, "seqlen_q")
        args.o_acc_ptr = workspace(floats({given.num_splits, rows, heads, given.hdim_v}), false);
        QOLA_C_SET(stride_o_acc, given.hdim_v, "hdim_v")
        QOLA_C_SET(nhead_stride_o_acc, own * given.hdim_v, "seqlen_q")
        QOLA_C_SET(batch_stride_o_acc, outside * given.hdim_v, "seqlen_q")
        QOLA_C_SET(split_stride_o_acc, rows * heads * given.hdim_v, "seqlen_q")
    }
    if constexpr(requires { args.d_ptr; })
    {
        // It shares the strides of lse.
        const std::int64_t last = (given.batch - 1) * given.lse.stride_batch + (heads - 1) * given.lse.stride_head;
        args.d_ptr              = workspace(floats({last + own}), false);
    }
    if constexpr(requires { args.dq_acc_ptr; })
    {
        // Heads are the outer dimension: assembly kernels require it, Composable Kernel accepts any order.
        // 16-bit accumulators have whole blocks of rows and of head dimensions for each sequence.
        const bool padded = given.atomic16 != 0 && assembly;
        // In group mode no order suits both these and Composable Kernel, which may serve instead.
        if(padded && given.group)
            throw Refused(QOLA_UNSUPPORTED, "atomic16: set, with group and assembly kernels");
        const std::int64_t length = padded ? (own + 15) / 16 * 16 : own;
        const std::int64_t width  = !padded              ? given.hdim_q
                                    : given.hdim_q > 128 ? std::max<std::int64_t>(given.hdim_q, 192)
                                                         : 128;
        const std::int64_t keys   = given.group ? given.max_seqlen_k : given.seqlen_k;
        const std::int64_t tile   = rows_of_split<Entry>(given.hdim_q);
        const std::int64_t parts  = given.deterministic ? (keys + tile - 1) / tile : 1;
        const std::int64_t each   = floats({given.group ? 1 : given.batch, heads, length, width});
        args.dq_acc_ptr           = workspace(floats({each / 4, parts}), true);
        QOLA_C_SET(stride_dq_acc, width, "hdim_q")
        QOLA_C_SET(nhead_stride_dq_acc, length * width, "seqlen_q")
        QOLA_C_SET(batch_stride_dq_acc, given.group ? 0 : heads * length * width, "seqlen_q")
        // One accumulator may exceed the range of AITER's strides.
        QOLA_C_SET(split_stride_dq_acc, parts > 1 ? each / 4 : 0, "seqlen_q")
    }
    if constexpr(requires { args.workspace_alloc; })
        args.workspace_alloc = [&workspace](std::size_t bytes, bool zeroed) { return workspace(bytes, zeroed); };
    if constexpr(requires { args.pinned_host_alloc; })
        args.pinned_host_alloc = [real = workspace.real()](std::size_t bytes) {
            // A query copies nothing to it; AITER reads it as sequences without rows.
            return real ? Pinned::piece(bytes) : std::shared_ptr<void>(std::calloc(1, bytes), std::free);
        };
}

} // namespace qola_c_entry
