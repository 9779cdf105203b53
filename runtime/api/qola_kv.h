// Calls Composable Kernel's functions of directions without an AITER function; not installed.
//
// Like AITER's functions, they derive traits from the arguments and from additional values. Members of later
// trees are set if the compiler finds them.
#pragma once

#include "fmha_fwd.hpp"

#include <string>

namespace qola_kv {

/// Traits of both kinds of problem.
template <class Traits, class Args>
void say(Traits& traits, const Args& args, const std::string& dtype)
{
    traits.hdim_q        = args.hdim_q;
    traits.hdim_v        = args.hdim_v;
    traits.data_type     = dtype;
    traits.is_v_rowmajor = true;
}

template <class Args, class Stream>
float mha_fwd_pagedkv(const Args& args,
                      const Stream& stream,
                      const std::string& dtype,
                      bool is_group_mode,
                      mask_enum mask_type,
                      bias_enum bias_type,
                      bool has_lse)
{
    fmha_fwd_pagedkv_traits traits{};
    say(traits, args, dtype);
    traits.is_group_mode       = is_group_mode;
    traits.has_logits_soft_cap = args.logits_soft_cap > 0.f;
    traits.mask_type           = mask_type;
    traits.bias_type           = bias_type;
    traits.has_lse             = has_lse;
    traits.use_pagedkv         = args.block_table_ptr != nullptr;
    traits.skip_min_seqlen_q   = args.min_seqlen_q != 0;
    // Scales of the caller, only for fp8 kernels.
    traits.do_fp8_static_quant = dtype == "fp8";
    [](auto& of, const auto& from) {
        if constexpr(requires { of.has_sink; from.sink_ptr; })
            of.has_sink = from.sink_ptr != nullptr;
    }(traits, args);
    Args own = args;
    return ::fmha_fwd_pagedkv(traits, own, stream);
}

template <class Args, class Stream>
float mha_fwd_appendkv(const Args& args, const Stream& stream, const std::string& dtype, rope_enum rope_type)
{
    fmha_fwd_appendkv_traits traits{};
    say(traits, args, dtype);
    traits.rope_type = rope_type;
    return ::fmha_fwd_appendkv(traits, args, stream);
}

} // namespace qola_kv
