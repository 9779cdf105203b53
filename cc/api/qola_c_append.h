// Passes the fields of a C caller that appends to K and V to Composable Kernel; not installed.
#pragma once

#include "qola_c_members.h"
#include "qola_c_problem.h"
#include "qola_c_workspace.h"

#include <cstdint>
#include <string>

namespace qola_c_entry {

/// Refuses an invalid rotation of rows, independent of the kernel.
inline void check_rope(const qola_mha_args& args, bool launched)
{
    if(args.rope < QOLA_ROPE_NONE || args.rope > QOLA_ROPE_HALF)
        invalid("rope: " + std::to_string(args.rope) + ", expected a qola_rope");
    if(args.rope == QOLA_ROPE_NONE)
    {
        if(args.rotary_dim != 0 || args.rotary_cos != nullptr || args.rotary_sin != nullptr)
            invalid("rotary_dim, rotary_cos, rotary_sin: set, and rope is QOLA_ROPE_NONE");
        return;
    }
    if(args.rotary_dim < 16 || args.rotary_dim % 16 != 0 || args.rotary_dim > args.hdim_q)
        invalid("rotary_dim: " + std::to_string(args.rotary_dim) +
                ", expected a multiple of 16, hdim_q at most");
    if(launched && (args.rotary_cos == nullptr || args.rotary_sin == nullptr))
        invalid("rotary_cos, rotary_sin: null, and rope is set");
}

/// Refuses an invalid problem, independent of the kernel.
inline void check_append(const qola_mha_args& args, bool launched)
{
    check_heads(args);
    check_rope(args, launched);
    if(args.seqlen_q < 0 || (args.rope == QOLA_ROPE_NONE && args.q.data != nullptr))
        invalid("seqlen_q, q: below 0, or set and rope is QOLA_ROPE_NONE: nothing would be done to Q");
    const bool rotates = args.rope != QOLA_ROPE_NONE && args.seqlen_q > 0;
    if(args.seqlen_new < 0 || (args.seqlen_new == 0 && !rotates))
        invalid("seqlen_new: " + std::to_string(args.seqlen_new) + ", expected rows to append");
    check_pages(args);
    if(args.block_table != nullptr && args.cache_batch_idx != nullptr)
        invalid("cache_batch_idx: set together with block_table");
    if(!launched)
        return;
    const auto needs = [](const void* field, const char* name) {
        if(field == nullptr)
            invalid(std::string(name) + ": null");
    };
    needs(args.seqlens_k, "seqlens_k");
    needs(args.k.data, "k");
    needs(args.v.data, "v");
    if(args.seqlen_new > 0)
    {
        needs(args.k_new.data, "k_new");
        needs(args.v_new.data, "v_new");
    }
    if(rotates)
        needs(args.q.data, "q");
}

/// Sets Composable Kernel's arguments and the additional parameters.
template <class Entry, class Args>
void append(Args& args, Parameters& more, Fields& fields, const Workspace& workspace)
{
    using A                   = qola_mha_args;
    const qola_mha_args given = fields.values;
    check_append(given, workspace.real());
    more.q_dtype_str = dtype_of(fields.take(&A::dtype));
    more.rope_type   = {fields.take(&A::rope)};
    // With a mask, row n of Q has the position of the n-th new row of K, else that of the first.
    args.has_mask = mask_of(fields).kind != QOLA_MASK_NONE;
    // No kernel depends on these; they describe the problem.
    fields.take(&A::kernels);
    fields.take(&A::seqlen_k);
    fields.take(&A::max_seqlen_q);
    fields.take(&A::max_seqlen_k);
    fields.take(&A::workspace);
    fields.take(&A::workspace_size);

    QOLA_C_TAKE(batch, batch)
    QOLA_C_TAKE(nhead_q, nhead_q)
    QOLA_C_TAKE(nhead_k, nhead_k)
    QOLA_C_TAKE(seqlen_q, seqlen_q)
    QOLA_C_TAKE(seqlen_knew, seqlen_new)
    QOLA_C_TAKE(hdim_q, hdim_q)
    QOLA_C_TAKE(hdim_v, hdim_v)
    QOLA_C_TENSOR(q, q)
    QOLA_C_TENSOR(k, k)
    QOLA_C_TENSOR(v, v)
    QOLA_C_TENSOR(knew, k_new)
    QOLA_C_TENSOR(vnew, v_new)
    QOLA_C_TAKE(seqlen_k_ptr, seqlens_k)
    QOLA_C_TAKE(rotary_cos_ptr, rotary_cos)
    QOLA_C_TAKE(rotary_sin_ptr, rotary_sin)
    QOLA_C_TAKE(rotary_dim, rotary_dim)
    args.block_table_ptr = const_cast<void*>(fields.take(&A::block_table));
    QOLA_C_TAKE(batch_stride_block_table, block_table_stride)
    QOLA_C_TAKE(page_block_size, page_size)
    QOLA_C_TAKE(cache_batch_idx, cache_batch_idx)
    fields.check_left(Entry::name);
}

} // namespace qola_c_entry
