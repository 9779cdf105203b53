// Places accumulators in the caller's workspace; not installed.
#pragma once

#include "qola_c_kernels.h"
#include "qola_c_members.h"
#include "qola_c_pinned.h"
#include "qola_c_workspace.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <memory>

namespace qola_c_entry {

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
        const std::int64_t width =
            !padded ? given.hdim_q : given.hdim_q > 128 ? std::max<std::int64_t>(given.hdim_q, 192) : 128;
        const std::int64_t keys  = given.group ? given.max_seqlen_k : given.seqlen_k;
        const std::int64_t tile  = rows_of_split<Entry>(given.hdim_q);
        const std::int64_t parts = given.deterministic ? (keys + tile - 1) / tile : 1;
        const std::int64_t each  = floats({given.group ? 1 : given.batch, heads, length, width});
        args.dq_acc_ptr          = workspace(floats({each / 4, parts}), true);
        QOLA_C_SET(stride_dq_acc, width, "hdim_q")
        QOLA_C_SET(nhead_stride_dq_acc, length * width, "seqlen_q")
        QOLA_C_SET(batch_stride_dq_acc, given.group ? 0 : heads * length * width, "seqlen_q")
        // One accumulator may exceed the range of AITER's strides.
        QOLA_C_SET(split_stride_dq_acc, parts > 1 ? each / 4 : 0, "seqlen_q")
    }
    if constexpr(requires { args.workspace_alloc; })
        args.workspace_alloc = [&workspace](std::size_t bytes, bool zeroed) {
            return workspace(bytes, zeroed);
        };
    if constexpr(requires { args.pinned_host_alloc; })
        args.pinned_host_alloc = [real = workspace.real()](std::size_t bytes) {
            // A query copies nothing to it; AITER reads it as sequences without rows.
            return real ? Pinned::piece(bytes) : std::shared_ptr<void>(std::calloc(1, bytes), std::free);
        };
}

} // namespace qola_c_entry
