// Written by qola (qola/plan/wrappers.py) from mha_bwd.h of an AITER tree: the functions that leave
// the library. Make it again: qola plan; do not edit.
#include "qola_mha_bwd.h"

#include "qola_entry.h"

#ifdef QOLA_ASM
#include "qola_asm_domain.h"
#endif

QOLA_NS_BEGIN

float mha_bwd(const aiter::mha_bwd_args& args,
              const ck_tile::stream_config& stream_config,
              std::string q_dtype_str,
              bool is_group_mode,
              mask_enum mask_type,
              bias_enum bias_type,
              bool has_dbias,
              bool is_store_randval,
              bool deterministic,
              bool use_ext_asm,
              bool is_v3_atomic_fp32,
              int how_v3_bf16_cvt,
              const void* seqlen_q_padded,
              const void* seqlen_k_padded,
              bool is_v3_api_check)
{
#ifdef QOLA_ASM
    use_ext_asm = use_ext_asm &&
                  qola_asm_serves(q_dtype_str,
                                  args.hdim_q,
                                  args.hdim_v,
                                  is_group_mode,
                                  mask_type != mask_enum::no_mask,
                                  bias_type != bias_enum::no_bias,
                                  args.p_drop > 0.f,
                                  has_dbias,
                                  deterministic);
#endif
    return qola_entry::answer("mha_bwd", use_ext_asm, [&](bool use_asm) {
        return qola_entry::repeatable(args, stream_config, [&](const auto& stream_config) {
            return ::aiter::mha_bwd(args,
                                    stream_config,
                                    q_dtype_str,
                                    is_group_mode,
                                    mask_type,
                                    bias_type,
                                    has_dbias,
                                    is_store_randval,
                                    deterministic,
                                    use_asm,
                                    is_v3_atomic_fp32,
                                    how_v3_bf16_cvt,
                                    seqlen_q_padded,
                                    seqlen_k_padded,
                                    is_v3_api_check);
        });
    });
}

QOLA_NS_END
