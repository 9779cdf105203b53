// Passes a C caller's fields to AITER, or to Composable Kernel's append-KV, member by member; not installed.
//
// The members of AITER's arguments differ between trees. This file names the members of all known trees, and
// the compiler omits those that the current tree lacks. A set field that no member took is refused by name.
#pragma once

#include "qola_c_members.h"
#include "qola_c_problem.h"
#include "qola_c_workspace.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

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

    QOLA_C_SAME(batch) QOLA_C_SAME(nhead_q) QOLA_C_SAME(nhead_k) QOLA_C_SAME(seqlen_q)
    QOLA_C_SAME(hdim_q) QOLA_C_SAME(hdim_v) QOLA_C_TAKE(seqlen_knew, seqlen_new)
    QOLA_C_TENSOR(q, q)
    QOLA_C_TENSOR(k, k)
    QOLA_C_TENSOR(v, v)
    QOLA_C_TENSOR(knew, k_new)
    QOLA_C_TENSOR(vnew, v_new)
    QOLA_C_TAKE(seqlen_k_ptr, seqlens_k)
    QOLA_C_TAKE(rotary_cos_ptr, rotary_cos)
    QOLA_C_TAKE(rotary_sin_ptr, rotary_sin)
    QOLA_C_SAME(rotary_dim)
    args.block_table_ptr = const_cast<void*>(fields.take(&A::block_table));
    QOLA_C_TAKE(batch_stride_block_table, block_table_stride)
    QOLA_C_TAKE(page_block_size, page_size)
    QOLA_C_SAME(cache_batch_idx)
    fields.check_left(Entry::name);
}

/// Returns whether AITER's function has a parameter of a name.
template <class Entry>
constexpr bool takes(std::string_view name)
{
    return std::find(std::begin(Entry::parameters), std::end(Entry::parameters), name) != std::end(Entry::parameters);
}

/// Sets AITER's arguments and parameters.
template <class Entry, class Args>
void fill(Args& args, Parameters& more, Fields& fields, Workspace& workspace)
{
    if constexpr(requires { args.knew_ptr; })
        return append<Entry>(args, more, fields, workspace);
    using A                   = qola_mha_args;
    const qola_mha_args given = fields.values;
    // Only the backward has `deterministic`, and only split-KV has splits.
    constexpr bool backward = requires { args.do_ptr; };
    constexpr bool splits   = requires { args.o_acc_ptr; };
    constexpr bool paged    = splits || requires { args.kv_indptr; } || requires { args.block_table_ptr; };
    check(given, {backward, requires { args.seqstart_k_ptr; }, paged, workspace.real()});
    // Paged prefill; batch prefill accepts other page sizes.
    if constexpr(!splits && !requires { args.kv_indptr; } && requires { args.block_table_ptr; })
        check_pages(given);
    fields.take(&A::workspace);
    fields.take(&A::workspace_size);

    more.q_dtype_str   = dtype_of(fields.take(&A::dtype));
    QOLA_C_SET(data_type, more.q_dtype_str, "dtype")
    QOLA_C_BOTH(is_group_mode, fields.take(&A::group), "group")
    QOLA_C_BOTH(bias_type, fields.take(&A::bias_type), "bias_type")
    QOLA_C_BOTH(has_lse, given.lse.data != nullptr, "lse")
    QOLA_C_BOTH(has_dbias, given.d_bias.data != nullptr, "d_bias")
    QOLA_C_BOTH(has_sink, given.sink != nullptr || given.sink_size != 0, "sink")
    QOLA_C_SET(has_dropout, given.dropout > 0.f, "dropout")

    const Mask mask = mask_of(fields);
    QOLA_C_BOTH(mask_type, mask.kind, "mask")
    QOLA_C_SET(window_size_left, mask.left, "window_left")
    QOLA_C_SET(window_size_right, mask.right, "window_right")

    // The dispatches of split-KV and paged prefill have no assembly kernels.
    bool assembly = fields.take(&A::kernels) == QOLA_KERNELS_ANY;
    // These read no lengths without padding; sums of them in group mode, those of the wheels never.
    assembly = assembly && given.seqlens_q == nullptr && given.seqlens_k == nullptr && assembly_reaches(given);
    if(!requires { args.use_asm_v3; } || !given.group)
        assembly = assembly && given.cu_seqlens_q == nullptr && given.cu_seqlens_k == nullptr;
    more.use_ext_asm = {assembly};
    QOLA_C_SET(use_asm_v3, assembly, "kernels")
    const int rounding = fields.take(&A::rounding);
    const int of_v3    = rounding == QOLA_ROUND_DEFAULT ? 1 : rounding - 1;
    QOLA_C_BOTH(how_v3_bf16_cvt, of_v3, "rounding")
    QOLA_C_SET(v3_bf16_cvt, of_v3, "rounding")
    if constexpr(backward)
    {
        more.is_v3_atomic_fp32 = {fields.take(&A::atomic16) == 0};
        QOLA_C_SET(v3_atomic_fp32, given.atomic16 == 0, "atomic16")
    }
    // The forward is always deterministic.
    more.deterministic = {fields.take(&A::deterministic)};
    QOLA_C_SET(is_deterministic, given.deterministic != 0, "deterministic")
    if constexpr(requires { args.qscale_type; } || takes<Entry>("qscale_type"))
        fields.take(&A::quantization);
    QOLA_C_BOTH(qscale_type, given.quantization, "quantization")

    QOLA_C_SAME(batch) QOLA_C_SAME(nhead_q) QOLA_C_SAME(nhead_k) QOLA_C_SAME(seqlen_q) QOLA_C_SAME(seqlen_k)
    QOLA_C_SAME(hdim_q) QOLA_C_SAME(hdim_v) QOLA_C_SAME(sink_size) QOLA_C_SAME(min_seqlen_q)
    // Not asked for by every direction, and of each true.
    fields.take(&A::max_seqlen_q);
    fields.take(&A::max_seqlen_k);
    QOLA_C_SET(max_seqlen_q, given.group ? given.max_seqlen_q : given.seqlen_q, "max_seqlen_q")
    QOLA_C_SET(max_seqlen_k, given.group ? given.max_seqlen_k : given.seqlen_k, "max_seqlen_k")

    const float scale = fields.take(&A::scale);
    const float usual = 1.f / std::sqrt(static_cast<float>(given.hdim_q));
    const float scores = scale == 0.f ? usual : scale;
    QOLA_C_SET(scale, scores, "scale")
    QOLA_C_SET(scale_s, scores, "scale")
    QOLA_C_SAME(logits_soft_cap) QOLA_C_SAME(scale_p) QOLA_C_SAME(scale_o)
    if constexpr(requires { args.scale_p; })
        args.scale_p = given.scale_p == 0.f ? 1.f : given.scale_p;
    if constexpr(requires { args.scale_o; })
        args.scale_o = given.scale_o == 0.f ? 1.f : given.scale_o;

    QOLA_C_TENSOR(q, q)
    QOLA_C_TENSOR(k, k)
    QOLA_C_TENSOR(v, v)
    QOLA_C_TENSOR(o, o)
    QOLA_C_TENSOR(do, d_o)
    QOLA_C_TENSOR(dq, dq)
    QOLA_C_TENSOR(dk, dk)
    QOLA_C_TENSOR(dv, dv)
    QOLA_C_TENSOR(dbias, d_bias)
    QOLA_C_TENSOR(q_descale, q_descale)
    QOLA_C_TENSOR(k_descale, k_descale)
    QOLA_C_TENSOR(v_descale, v_descale)
    if constexpr(requires { args.bias_ptr; })
    {
        qola_tensor bias = fields.take(&A::bias);
        if(given.bias_type == QOLA_BIAS_ALIBI)
            // AITER expects the stride between the slopes of two sequences here.
            bias = {bias.data, 0, 0, bias.stride_batch};
        args.bias_ptr = bias.data;
        QOLA_C_SET(stride_bias, bias.stride_row, "bias.stride_row")
        QOLA_C_SET(nhead_stride_bias, bias.stride_head, "bias.stride_head")
        QOLA_C_SET(batch_stride_bias, bias.stride_batch, "bias.stride_batch")
    }
    if constexpr(requires { args.lse_ptr; })
    {
        const qola_tensor lse = fields.take(&A::lse);
        if(lse.stride_row != 0 && lse.stride_row != 1)
            invalid("lse.stride_row: " + std::to_string(lse.stride_row) + ", expected 0 or 1");
        args.lse_ptr = lse.data;
        QOLA_C_SET(nhead_stride_lse, lse.stride_head, "lse.stride_head")
        QOLA_C_SET(batch_stride_lse, lse.stride_batch, "lse.stride_batch")
        QOLA_C_SET(nhead_stride_lsed, lse.stride_head, "lse.stride_head")
        QOLA_C_SET(batch_stride_lsed, lse.stride_batch, "lse.stride_batch")
    }

    QOLA_C_BOTH(is_store_randval, given.randval.data != nullptr, "randval")
    if constexpr(requires { args.rand_val_ptr; })
    {
        const qola_tensor randval = fields.take(&A::randval);
        args.rand_val_ptr         = randval.data;
        QOLA_C_SET(s_randval, randval.data != nullptr, "randval")
        QOLA_C_SET(stride_randval, randval.stride_row, "randval.stride_row")
        QOLA_C_SET(nhead_stride_randval, randval.stride_head, "randval.stride_head")
        QOLA_C_SET(batch_stride_randval, randval.stride_batch, "randval.stride_batch")
    }
    QOLA_C_TAKE(p_drop, dropout)
    QOLA_C_SET(p_undrop, 1.f - given.dropout, "dropout")
    if constexpr(requires { args.drop_seed_offset; })
    {
        const auto seed   = fields.take(&A::drop_seed);
        const auto offset = fields.take(&A::drop_offset);
        fields.take(&A::drop_seed_ptr);
        fields.take(&A::drop_offset_ptr);
        if(given.drop_seed_ptr != nullptr)
            args.drop_seed_offset =
                std::pair<const void*, const void*>(given.drop_seed_ptr, given.drop_offset_ptr);
        else
            args.drop_seed_offset = std::pair<std::uint64_t, std::uint64_t>(seed, offset);
    }

    QOLA_C_TAKE(seqstart_q_ptr, seqstart_q)
    QOLA_C_TAKE(seqstart_k_ptr, seqstart_k)
    // Later trees need them for every kernel in group mode; a query reads none.
    if(given.group && !workspace.real())
    {
        QOLA_C_SET(seqstart_q_ptr, &given, "seqstart_q")
        QOLA_C_SET(seqstart_k_ptr, &given, "seqstart_k")
    }
    QOLA_C_TAKE(seqlen_q_ptr, seqlens_q)
    QOLA_C_TAKE(seqlen_k_ptr, seqlens_k)
    QOLA_C_TAKE(cu_seqlen_q_ptr, cu_seqlens_q)
    QOLA_C_TAKE(cu_seqlen_k_ptr, cu_seqlens_k)
    QOLA_C_TAKE(sink_ptr, sink)
    QOLA_C_TAKE(d_sink_ptr, d_sink)
    QOLA_C_TAKE(block_scale_seqstart_q_ptr, block_scale_seqstart_q)
    QOLA_C_TAKE(block_scale_seqstart_k_ptr, block_scale_seqstart_k)
    QOLA_C_SAME(block_scale_size_q)
    QOLA_C_TAKE(block_scale_size_kv, block_scale_size_k)

    if constexpr(requires { args.block_table_ptr; })
        args.block_table_ptr = const_cast<void*>(fields.take(&A::block_table));
    QOLA_C_TAKE(batch_stride_block_table, block_table_stride)
    QOLA_C_TAKE(page_block_size, page_size)
    QOLA_C_TAKE(is_gappy, gappy)
    QOLA_C_SAME(cache_batch_idx)
    QOLA_C_TAKE(num_total_pages, num_pages)
    QOLA_C_SAME(kv_indptr) QOLA_C_SAME(kv_page_indices) QOLA_C_SAME(kv_last_page_lens)
    QOLA_C_TAKE(kv_memory_layout, kv_layout)
    QOLA_C_TAKE(kv_lookup_table, kv_lookup)

    if constexpr(splits)
        at_least_1(fields.take(&A::num_splits), "num_splits");
    // The forward does not need the longest sequence of K.
    std::int64_t rows_k = given.group && given.max_seqlen_k > 0 ? given.max_seqlen_k : given.seqlen_k;
    if constexpr(requires { args.kv_indptr; })
        rows_k = given.num_pages * std::max<std::int64_t>(given.page_size, 1);
    else if(given.block_table != nullptr)
        rows_k = given.page_size;
    check_strides(given, backward, rows_k);
    fields.check_left(Entry::name);
    scratch<Entry>(args, given, assembly, workspace);
}

} // namespace qola_c_entry

#undef QOLA_C_TENSOR
#undef QOLA_C_STRIDE
#undef QOLA_C_SAME
#undef QOLA_C_TAKE
#undef QOLA_C_BOTH
#undef QOLA_C_SET
