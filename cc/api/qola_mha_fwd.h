// Forward attention: the functions of AITER's mha_fwd.h that the manifest asks for, in QOLA_NS.
//
// Each returns the time in milliseconds where the stream configuration
// measures, 0 or more on success, and a negative status (qola_common.h) when
// nothing was launched. A function that is not declared has no kernels here:
// the manifest leaves its direction out.
#pragma once

#include "qola_common.h"

#if !defined(QOLA_MHA_FWD_PARAMETERS) && !defined(QOLA_MHA_FWD_SPLITKV_PARAMETERS) && \
    !defined(QOLA_MHA_BATCH_PREFILL_PARAMETERS)
#error "the manifest of this qola_config.h has no libmha_fwd"
#endif

#include "mha_fwd.h"

QOLA_NS_BEGIN

#if defined(QOLA_MHA_FWD_PARAMETERS) && QOLA_MHA_FWD_PARAMETERS == 12

/// Runs one forward problem on the stream of `stream_config`.
///
/// With `use_ext_asm` AITER's assembly kernels are asked first. With
/// `is_v3_api_check` nothing is launched: 1 when one of them would serve.
QOLA_API float mha_fwd(aiter::mha_fwd_args args,
                       const ck_tile::stream_config& stream_config,
                       std::string q_dtype_str,
                       bool is_group_mode,
                       mask_enum mask_type,
                       bias_enum bias_type,
                       bool has_lse,
                       bool use_ext_asm,
                       int how_v3_bf16_cvt                = 1,
                       const void* seqstart_q_padding_ptr = nullptr,
                       const void* seqstart_k_padding_ptr = nullptr,
                       bool is_v3_api_check               = false);

#elif defined(QOLA_MHA_FWD_PARAMETERS)

/// Runs one forward problem on the stream of `stream_config`; the problem is in `args` alone.
QOLA_API float mha_fwd(const aiter::mha_fwd_args& args,
                       const ck_tile::stream_config& stream_config);

#endif

#ifdef QOLA_MHA_FWD_SPLITKV_PARAMETERS

/// Runs one forward problem with K and V split among workgroups, then combined.
QOLA_API float mha_fwd_splitkv(aiter::mha_fwd_splitkv_args args,
                               const ck_tile::stream_config& stream_config,
                               std::string q_dtype_str,
                               bool is_group_mode,
                               mask_enum mask_type,
                               bias_enum bias_type,
                               bool has_lse);

#endif

#ifdef QOLA_MHA_BATCH_PREFILL_PARAMETERS

/// Runs one forward problem over a paged K and V cache.
QOLA_API float mha_batch_prefill(aiter::mha_batch_prefill_args args,
                                 const ck_tile::stream_config& stream_config,
                                 std::string q_dtype_str,
                                 bool is_group_mode,
                                 mask_enum mask_type,
                                 bias_enum bias_type,
                                 bool has_lse,
                                 bool use_ext_asm);

#endif

QOLA_NS_END
