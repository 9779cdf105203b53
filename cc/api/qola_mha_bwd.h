// Backward attention: QOLA_NS::mha_bwd, as AITER's aiter::mha_bwd of the same tree.
#pragma once

#include "qola_common.h"

#ifndef QOLA_MHA_BWD_PARAMETERS
#error "the manifest of this qola_config.h has no libmha_bwd"
#endif

#include "mha_bwd.h"

QOLA_NS_BEGIN

#if QOLA_MHA_BWD_PARAMETERS == 15

/// Runs one backward problem on the stream of `stream_config`.
///
/// Returns the time in milliseconds where the stream configuration measures, 0
/// or more on success, and a negative status (qola_common.h) when nothing was
/// launched. With `use_ext_asm` AITER's assembly kernels are asked first. With
/// `is_v3_api_check` nothing is launched: 1 when one of them would serve.
QOLA_API float mha_bwd(aiter::mha_bwd_args args,
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
                       const void* seqlen_q_padded = nullptr,
                       const void* seqlen_k_padded = nullptr,
                       bool is_v3_api_check        = false);

#else

/// Runs one backward problem on the stream of `stream_config`; the problem is in `args` alone.
QOLA_API float mha_bwd(const aiter::mha_bwd_args& args,
                       const ck_tile::stream_config& stream_config);

#endif

QOLA_NS_END
