// Written by qola (qola/plan/wrappers.py) from mha_bwd.h of an AITER tree: the functions that leave
// the library. Make it again: qola plan; do not edit.
#include "qola_mha_bwd.h"

#include "qola_c_entry.h"
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

namespace {

struct mha_bwd_of_c
{
    using Args = std::decay_t<const aiter::mha_bwd_args&>;
    static constexpr const char* name              = "mha_bwd";
    static constexpr std::string_view parameters[] = {"args", "stream_config", "q_dtype_str", "is_group_mode", "mask_type", "bias_type", "has_dbias", "is_store_randval", "deterministic", "use_ext_asm", "is_v3_atomic_fp32", "how_v3_bf16_cvt", "seqlen_q_padded", "seqlen_k_padded", "is_v3_api_check"};
    static constexpr qola_c_entry::Kernel kernels[] = {
        {"fmha_bwd_dot_do_o_d128_bf16_b64_group_o2_ps_gfx950", "gfx950"},
        {"fmha_bwd_d128_bf16_group_b32x128x128x32x128x32x32x128x128_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x32_o1_maxq0_npad_nbias_ndbias_mask_ndropout_ndeterministic_trload_gfx950", "gfx950"},
        {"fmha_bwd_convert_dq_d128_bf16_b64x0_group_o2_ps_ndeterministic_gfx950", "gfx950"},
        {"fmha_bwd_dot_do_o_d128_bf16_b64_group_o2_psdv_gfx950", "gfx950"},
        {"fmha_bwd_d128_bf16_group_b32x128x128x32x128x32x32x128x128_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x32_o1_maxq0_pd8dv8_nbias_ndbias_mask_ndropout_ndeterministic_trload_gfx950", "gfx950"},
        {"fmha_bwd_convert_dq_d128_bf16_b64x0_group_o2_psd_ndeterministic_gfx950", "gfx950"},
        {"fmha_bwd_d128_bf16_group_b16x192x128x16x128x16x32x128x128_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x16_o1_maxq0_npad_nbias_ndbias_mask_ndropout_ndeterministic_trload_gfx950", "gfx950"},
        {"fmha_bwd_d128_bf16_group_b16x192x128x16x128x16x32x128x128_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x16_o1_maxq0_pd8dv8_nbias_ndbias_mask_ndropout_ndeterministic_trload_gfx950", "gfx950"},
        {"fmha_bwd_d128_bf16_group_b16x128x128x16x128x16x32x128x128_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x16_o1_maxq0_pdv1_nbias_ndbias_mask_ndropout_ndeterministic_ntrload_gfx950", "gfx950"},
        {"fmha_bwd_d128_bf16_group_b16x128x128x16x128x16x32x128x128_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x16_o1_maxq0_pd1_nbias_ndbias_mask_ndropout_ndeterministic_ntrload_gfx950", "gfx950"},
        {"fmha_bwd_d128_bf16_group_b16x128x128x16x128x16x32x128x128_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x16_o1_maxq0_pd1dv8_nbias_ndbias_mask_ndropout_ndeterministic_ntrload_gfx950", "gfx950"},
        {"fmha_bwd_d128_bf16_group_b16x128x128x16x128x16x32x128x128_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x16_o1_maxq0_pd1dv1_nbias_ndbias_mask_ndropout_ndeterministic_ntrload_gfx950", "gfx950"},
        {"fmha_bwd_dot_do_o_d128_bf16_b64_group_o2_ps_gfx9", "gfx942"},
        {"fmha_bwd_d128_bf16_group_b16x128x128x16x128x16x32x128x128_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x16_o1_maxq0_npad_nbias_ndbias_mask_ndropout_ndeterministic_ntrload_gfx9", "gfx942"},
        {"fmha_bwd_convert_dq_d128_bf16_b64x0_group_o2_ps_ndeterministic_gfx9", "gfx942"},
        {"fmha_bwd_dot_do_o_d128_bf16_b64_group_o2_psdv_gfx9", "gfx942"},
        {"fmha_bwd_d128_bf16_group_b16x128x128x16x128x16x32x128x128_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x16_o1_maxq0_pdv8_nbias_ndbias_mask_ndropout_ndeterministic_ntrload_gfx9", "gfx942"},
        {"fmha_bwd_d128_bf16_group_b16x128x128x16x128x16x32x128x128_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x16_o1_maxq0_pdv1_nbias_ndbias_mask_ndropout_ndeterministic_ntrload_gfx9", "gfx942"},
        {"fmha_bwd_d128_bf16_group_b16x128x128x16x128x16x32x128x128_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x16_o1_maxq0_pd8dv8_nbias_ndbias_mask_ndropout_ndeterministic_ntrload_gfx9", "gfx942"},
        {"fmha_bwd_convert_dq_d128_bf16_b64x0_group_o2_psd_ndeterministic_gfx9", "gfx942"},
        {"fmha_bwd_d128_bf16_group_b16x128x128x16x128x16x32x128x128_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x16_o1_maxq0_pd1_nbias_ndbias_mask_ndropout_ndeterministic_ntrload_gfx9", "gfx942"},
        {"fmha_bwd_d128_bf16_group_b16x128x128x16x128x16x32x128x128_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x16_o1_maxq0_pd1dv8_nbias_ndbias_mask_ndropout_ndeterministic_ntrload_gfx9", "gfx942"},
        {"fmha_bwd_d128_bf16_group_b16x128x128x16x128x16x32x128x128_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x16_o1_maxq0_pd1dv1_nbias_ndbias_mask_ndropout_ndeterministic_ntrload_gfx9", "gfx942"},
        {"fmha_bwd_convert_dq_d128_bf16_b64x0_group_o2_ps_ndeterministic", "gfx942,gfx950"},
        {"fmha_bwd_convert_dq_d128_bf16_b64x0_group_o2_psd_ndeterministic", "gfx942,gfx950"},
        {"fmha_bwd_dot_do_o_d128_bf16_group_o2_ps", "gfx942,gfx950"},
        {"fmha_bwd_dot_do_o_d128_bf16_group_o2_psdv", "gfx942,gfx950"},
        {"hsa/gfx942/fmha_v3_bwd/bwd_hd128_bf16_causal_a32_rtna_pssk_group.co", "gfx942"},
        {"hsa/gfx942/fmha_v3_bwd/bwd_hd128_bf16_causal_a32_rtna_psskddv_group.co", "gfx942"},
        {"hsa/gfx942/fmha_v3_bwd/bwd_hd128_bf16_causal_a32_rtne_pssk_group.co", "gfx942"},
        {"hsa/gfx942/fmha_v3_bwd/bwd_hd128_bf16_causal_a32_rtne_psskddv_group.co", "gfx942"},
        {"hsa/gfx942/fmha_v3_bwd/bwd_hd128_bf16_causal_a32_rtz_pssk_group.co", "gfx942"},
        {"hsa/gfx942/fmha_v3_bwd/bwd_hd128_bf16_causal_a32_rtz_psskddv_group.co", "gfx942"},
        {"hsa/gfx942/fmha_v3_bwd/bwd_hd128_bf16_causal_br_a32_rtna_pssk_group.co", "gfx942"},
        {"hsa/gfx942/fmha_v3_bwd/bwd_hd128_bf16_causal_br_a32_rtna_psskddv_group.co", "gfx942"},
        {"hsa/gfx942/fmha_v3_bwd/bwd_hd128_bf16_causal_br_a32_rtne_pssk_group.co", "gfx942"},
        {"hsa/gfx942/fmha_v3_bwd/bwd_hd128_bf16_causal_br_a32_rtne_psskddv_group.co", "gfx942"},
        {"hsa/gfx942/fmha_v3_bwd/bwd_hd128_bf16_causal_br_a32_rtz_pssk_group.co", "gfx942"},
        {"hsa/gfx942/fmha_v3_bwd/bwd_hd128_bf16_causal_br_a32_rtz_psskddv_group.co", "gfx942"},
        {"hsa/gfx950/fmha_v3_bwd/bwd_hd128_bf16_causal_a16_psskddv_group.co", "gfx950"},
        {"hsa/gfx950/fmha_v3_bwd/bwd_hd128_bf16_causal_a32_psskddv_group.co", "gfx950"},
        {"hsa/gfx950/fmha_v3_bwd/bwd_hd128_bf16_causal_br_a16_psskddv_group.co", "gfx950"},
        {"hsa/gfx950/fmha_v3_bwd/bwd_hd128_bf16_causal_br_a32_psskddv_group.co", "gfx950"},
        {"hsa/gfx950/fmha_v3_bwd/bwd_hd128_dq_shuffle_group.co", "gfx950"},
    };
    template <class More>
    static float call(const Args& args, const ck_tile::stream_config& stream, const More& more)
    {
        return QOLA_NS(mha_bwd)(args, stream, more.q_dtype_str, more.is_group_mode, more.mask_type, more.bias_type, more.has_dbias, more.is_store_randval, more.deterministic, more.use_ext_asm, more.is_v3_atomic_fp32, more.how_v3_bf16_cvt, more.seqlen_q_padded, more.seqlen_k_padded, more.is_v3_api_check);
    }
};

} // namespace

QOLA_C_DEFINE(mha_bwd, mha_bwd_of_c)
