// Written by qola (qola/plan/c_functions.py): the kernels of each function, for its C functions.
// Make it again: qola plan; do not edit.
#include "qola_c_kernels.h"

namespace qola_c_entry {

static constexpr Kernel mha_fwd_table[] = {
    {"fmha_fwd_d128_bf16_group_b128x128x32x128x32x128_r4x1x1_r4x1x1_w32x32x16_w32x32x16_qr_async_vr_psskddv_logits_nbias_mask_lse_ndropout_nskip_nsquant_ntrload_gfx950", "gfx950"},
    {"fmha_fwd_d128_bf16_group_b128x128x32x128x32x128_r4x1x1_r4x1x1_w32x32x16_w32x32x16_qr_async_vr_psskddv_nlogits_nbias_mask_lse_ndropout_nskip_nsquant_ntrload_gfx950", "gfx950"},
    {"fmha_fwd_d128_bf16_group_b128x128x32x128x32x128_r4x1x1_r4x1x1_w32x32x16_w32x32x16_qr_async_vr_psskddv_logits_nbias_mask_lse_ndropout_nskip_nsquant_ntrload_gfx9", "gfx942"},
    {"fmha_fwd_d128_bf16_group_b128x128x32x128x32x128_r4x1x1_r4x1x1_w32x32x16_w32x32x16_qr_async_vr_psskddv_nlogits_nbias_mask_lse_ndropout_nskip_nsquant_ntrload_gfx9", "gfx942"},
    {"hsa/gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_causal_rtna_group.co", "gfx942"},
    {"hsa/gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_causal_rtne_group.co", "gfx942"},
    {"hsa/gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_causal_rtz_group.co", "gfx942"},
    {"hsa/gfx942/fmha_v3_fwd/MI308/fwd_hd128_bf16_causal_rtna_group.co", "gfx942"},
    {"hsa/gfx942/fmha_v3_fwd/MI308/fwd_hd128_bf16_causal_rtne_group.co", "gfx942"},
    {"hsa/gfx942/fmha_v3_fwd/MI308/fwd_hd128_bf16_causal_rtz_group.co", "gfx942"},
    {"hsa/gfx950/fmha_v3_fwd/fwd_hd128_bf16_causal_group.co", "gfx950"},
    {},
};
extern const Kernels mha_fwd_kernels;
const Kernels mha_fwd_kernels{mha_fwd_table, sizeof(mha_fwd_table) / sizeof(Kernel) - 1};

static constexpr Kernel mha_fwd_splitkv_table[] = {
    {"fmha_fwd_splitkv_d128_bf16_group_b64x128x32x128x32x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16_qr_vr_pssk_logits_nbias_mask_lse_nsquant_pagedkv_gfx9", "gfx942,gfx950"},
    {"fmha_fwd_splitkv_combine_d128_bf16_group_b32_unused_ps_lse_nsquant_gfx9", "gfx942,gfx950"},
    {"fmha_fwd_splitkv_combine_d128_bf16_group_b32_unused_ps_nlse_nsquant_gfx9", "gfx942,gfx950"},
    {"fmha_fwd_splitkv_d128_bf16_group_b64x128x32x128x32x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16_qr_vr_psskddv_logits_nbias_mask_lse_nsquant_pagedkv_gfx9", "gfx942,gfx950"},
    {"fmha_fwd_splitkv_combine_d128_bf16_group_b32_unused_psdv_lse_nsquant_gfx9", "gfx942,gfx950"},
    {"fmha_fwd_splitkv_combine_d128_bf16_group_b32_unused_psdv_nlse_nsquant_gfx9", "gfx942,gfx950"},
    {"fmha_fwd_splitkv_d128_bf16_group_b64x128x32x128x32x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16_qr_vr_pssk_logits_nbias_mask_lse_nsquant_npagedkv_gfx9", "gfx942,gfx950"},
    {"fmha_fwd_splitkv_d128_bf16_group_b64x128x32x128x32x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16_qr_vr_psskddv_logits_nbias_mask_lse_nsquant_npagedkv_gfx9", "gfx942,gfx950"},
    {"fmha_fwd_splitkv_d128_bf16_group_b64x128x32x128x32x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16_qr_vr_pssk_nlogits_nbias_mask_lse_nsquant_pagedkv_gfx9", "gfx942,gfx950"},
    {"fmha_fwd_splitkv_d128_bf16_group_b64x128x32x128x32x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16_qr_vr_psskddv_nlogits_nbias_mask_lse_nsquant_pagedkv_gfx9", "gfx942,gfx950"},
    {"fmha_fwd_splitkv_d128_bf16_group_b64x128x32x128x32x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16_qr_vr_pssk_nlogits_nbias_mask_lse_nsquant_npagedkv_gfx9", "gfx942,gfx950"},
    {"fmha_fwd_splitkv_d128_bf16_group_b64x128x32x128x32x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16_qr_vr_psskddv_nlogits_nbias_mask_lse_nsquant_npagedkv_gfx9", "gfx942,gfx950"},
    {},
};
extern const Kernels mha_fwd_splitkv_kernels;
const Kernels mha_fwd_splitkv_kernels{mha_fwd_splitkv_table, sizeof(mha_fwd_splitkv_table) / sizeof(Kernel) - 1};

static constexpr Kernel mha_batch_prefill_table[] = {
    {"fmha_batch_prefill_d128_bf16_group_b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16_qr_async_vr_psskddv_logits_nbias_mask_lse_ndropout_nsquant", "gfx942,gfx950"},
    {"fmha_batch_prefill_d128_bf16_group_b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16_qr_async_vr_psskddv_nlogits_nbias_mask_lse_ndropout_nsquant", "gfx942,gfx950"},
    {"fmha_batch_prefill_d128_bf16_group_b128x128x32x128x32x128_r4x1x1_r4x1x1_w32x32x16_w32x32x16_qr_async_vr_psskddv_logits_nbias_mask_lse_ndropout_nsquant", "gfx942,gfx950"},
    {"fmha_batch_prefill_d128_bf16_group_b128x128x32x128x32x128_r4x1x1_r4x1x1_w32x32x16_w32x32x16_qr_async_vr_psskddv_nlogits_nbias_mask_lse_ndropout_nsquant", "gfx942,gfx950"},
    {},
};
extern const Kernels mha_batch_prefill_kernels;
const Kernels mha_batch_prefill_kernels{mha_batch_prefill_table, sizeof(mha_batch_prefill_table) / sizeof(Kernel) - 1};

} // namespace qola_c_entry
