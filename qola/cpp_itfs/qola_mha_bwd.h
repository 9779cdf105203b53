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
/// or more on success, and a negative value when no kernel of this library
/// serves the problem. With `is_v3_api_check` nothing is launched.
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

#elif QOLA_MHA_BWD_PARAMETERS == 2

/// Runs one backward problem; everything about it stands in `args`. Returns a
/// negative value when no kernel of this library serves the problem.
QOLA_API float mha_bwd(const aiter::mha_bwd_args& args,
                       const ck_tile::stream_config& stream_config);

#else
#error "qola_config.h names a mha_bwd signature this header does not know"
#endif

QOLA_NS_END
