// Checks a C caller's problem independent of the kernel, and translates it to AITER's values; not installed.
#pragma once

#include "qola_c_fields.h"

#include <cstdint>
#include <string>

namespace qola_c_entry {

inline const char* dtype_of(int dtype)
{
    switch(dtype)
    {
    case QOLA_FP16: return "fp16";
    case QOLA_BF16: return "bf16";
    case QOLA_FP32: return "fp32";
    case QOLA_FP8: return "fp8";
    case QOLA_BF8: return "bf8";
    case QOLA_FP8_FP16: return "fp8fp16";
    case QOLA_FP8_BF16: return "fp8bf16";
    case QOLA_FP8_FP32: return "fp8fp32";
    default: invalid("dtype: " + std::to_string(dtype) + ", expected a qola_dtype");
    }
}

/// AITER's values of a mask: its kind and the window.
struct Mask
{
    int kind;
    std::int64_t left, right;
};

inline Mask mask_of(Fields& fields)
{
    const int mask   = fields.take(&qola_mha_args::mask);
    const auto left  = fields.take(&qola_mha_args::window_left);
    const auto right = fields.take(&qola_mha_args::window_right);
    // Also accepts AITER's own values: -1, and 0 on the right of a causal mask.
    const bool unset = (left == 0 || left == -1) && (right == 0 || right == -1);
    switch(mask)
    {
    case QOLA_MASK_NONE:
    case QOLA_MASK_CAUSAL_TOP_LEFT:
    case QOLA_MASK_CAUSAL_BOTTOM_RIGHT:
        if(!unset)
            invalid("window_left, window_right: set, and the mask is not a window");
        return {mask, -1, mask == QOLA_MASK_NONE ? -1 : 0};
    case QOLA_MASK_WINDOW_BOTTOM_RIGHT:
    case QOLA_MASK_WINDOW_TOP_LEFT:
        if(left < -1 || right < -1)
            invalid("window_left, window_right: below -1");
        // Windows are causal masks with limits: AITER's kind for windows is bottom-right for Composable
        // Kernel, but top-left for assembly kernels.
        return {mask == QOLA_MASK_WINDOW_TOP_LEFT ? 1 : 2, left, right};
    default: invalid("mask: " + std::to_string(mask) + ", expected a qola_mask");
    }
}

inline void at_least_1(std::int64_t value, const char* name)
{
    if(value < 1)
        invalid(std::string(name) + ": " + std::to_string(value) + ", expected 1 or more");
}

/// Divisor of the page size in paged prefill and append-KV.
inline constexpr std::int64_t PAGE_ROWS = 128;

/// Differences between the entry points' problems.
struct Asking
{
    bool backward;
    bool seqstart_k; ///< group mode takes seqstart_k
    bool paged;      ///< pages or splits: takes lengths of K without group mode
    bool launched;   ///< a launch, not a query
};

/// Refuses lengths that kernels would ignore or misinterpret.
inline void check_lengths(const qola_mha_args& args, const Asking& asking)
{
    const auto without_group = [&](const void* field, const char* name) {
        if(field != nullptr && args.group == 0)
            invalid(std::string(name) + ": set, without group");
    };
    if(args.seqlens_q != nullptr && args.cu_seqlens_q != nullptr)
        invalid("cu_seqlens_q: set together with seqlens_q");
    if(args.seqlens_k != nullptr && args.cu_seqlens_k != nullptr)
        invalid("cu_seqlens_k: set together with seqlens_k");
    if(asking.paged)
        return;
    without_group(args.seqstart_q, "seqstart_q");
    without_group(args.seqstart_k, "seqstart_k");
    without_group(args.seqlens_q, "seqlens_q");
    without_group(args.seqlens_k, "seqlens_k");
    if(!asking.backward)
        return;
    without_group(args.cu_seqlens_q, "cu_seqlens_q");
    without_group(args.cu_seqlens_k, "cu_seqlens_k");
}

/// Refuses invalid sequences, heads and choices of kernels.
inline void check_heads(const qola_mha_args& args)
{
    at_least_1(args.batch, "batch");
    at_least_1(args.nhead_q, "nhead_q");
    at_least_1(args.nhead_k, "nhead_k");
    at_least_1(args.hdim_q, "hdim_q");
    at_least_1(args.hdim_v, "hdim_v");
    if(args.nhead_q % args.nhead_k != 0)
        invalid("nhead_k: " + std::to_string(args.nhead_k) + " does not divide nhead_q");
    if(args.kernels != QOLA_KERNELS_ANY && args.kernels != QOLA_KERNELS_CK)
        invalid("kernels: " + std::to_string(args.kernels) + ", expected a qola_kernels");
}

/// Refuses page sizes with which a tile of K or V would span two pages, like Composable Kernel's runner.
inline void check_pages(const qola_mha_args& args)
{
    if(args.block_table != nullptr && (args.page_size < PAGE_ROWS || args.page_size % PAGE_ROWS != 0))
        invalid("page_size: " + std::to_string(args.page_size) + ", expected a multiple of " +
                std::to_string(PAGE_ROWS));
}

/// Refuses an invalid problem, independent of the kernel.
inline void check(const qola_mha_args& args, const Asking& asking)
{
    const bool backward = asking.backward, launched = asking.launched;
    check_heads(args);
    at_least_1(args.seqlen_q, "seqlen_q");
    at_least_1(args.seqlen_k, "seqlen_k");
    if(args.group != 0 && args.group != 1)
        invalid("group: " + std::to_string(args.group) + ", expected 0 or 1");
    if(args.group == 1)
        at_least_1(args.max_seqlen_q, "max_seqlen_q, with group");
    if(args.group == 1 && backward)
        at_least_1(args.max_seqlen_k, "max_seqlen_k, with group");
    if(args.group == 1 && launched && args.seqstart_q == nullptr)
        invalid("seqstart_q: null, with group");
    if(args.group == 1 && launched && asking.seqstart_k && args.seqstart_k == nullptr)
        invalid("seqstart_k: null, with group");
    check_lengths(args, asking);
    if(!(args.dropout >= 0.f && args.dropout < 1.f))
        invalid("dropout: expected a number of at least 0, and below 1");
    if((args.drop_seed_ptr == nullptr) != (args.drop_offset_ptr == nullptr))
        invalid("drop_seed_ptr, drop_offset_ptr: only one of them is set");
    if(args.drop_seed_ptr != nullptr && (args.drop_seed != 0 || args.drop_offset != 0))
        invalid("drop_seed, drop_offset: set together with drop_seed_ptr");
    if(args.bias_type < QOLA_BIAS_NONE || args.bias_type > QOLA_BIAS_ALIBI)
        invalid("bias_type: " + std::to_string(args.bias_type) + ", expected a qola_bias");
    if(args.bias_type == QOLA_BIAS_NONE && (args.bias.data != nullptr || args.d_bias.data != nullptr))
        invalid("bias: set, and bias_type is QOLA_BIAS_NONE");
    if(args.bias_type != QOLA_BIAS_NONE && launched && args.bias.data == nullptr)
        invalid("bias: null, and bias_type is set");
    if(args.bias_type == QOLA_BIAS_ALIBI &&
       (args.bias.stride_row != 0 || args.bias.stride_head < 0 || args.bias.stride_head > 1))
        invalid("bias.stride_row, bias.stride_head: slopes lie without gaps, expected 0 and 0 or 1");
    if(args.rounding < QOLA_ROUND_DEFAULT || args.rounding > QOLA_ROUND_TO_ZERO)
        invalid("rounding: " + std::to_string(args.rounding) + ", expected a qola_rounding");
    const auto needs = [&](const qola_tensor& tensor, const char* name) {
        if(launched && tensor.data == nullptr)
            invalid(std::string(name) + ": null");
    };
    needs(args.q, "q");
    needs(args.k, "k");
    needs(args.v, "v");
    needs(args.o, "o");
    if(backward)
    {
        needs(args.lse, "lse");
        if(args.lse.stride_head < 0 || args.lse.stride_batch < 0)
            invalid("lse.stride_head, lse.stride_batch: below 0");
        needs(args.d_o, "d_o");
        needs(args.dq, "dq");
        needs(args.dk, "dk");
        needs(args.dv, "dv");
    }
}

} // namespace qola_c_entry
