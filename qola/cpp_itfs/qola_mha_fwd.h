// Forward attention: QOLA_NS::mha_fwd, as AITER's aiter::mha_fwd of the same tree.
#pragma once

#include "qola_common.h"

#ifndef QOLA_MHA_FWD_PARAMETERS
#error "the manifest of this qola_config.h has no libmha_fwd"
#endif

#include "mha_fwd.h"

QOLA_NS_BEGIN

#if QOLA_MHA_FWD_PARAMETERS == 12

/// Runs one forward problem on the stream of `stream_config`.
///
/// Sequence lengths, strides and head dimensions in `args` are counted in
/// elements. Returns the kernel's time in milliseconds where the stream
/// configuration measures, 0 or more on success, and a negative value when no
/// kernel of this library serves the problem. With `is_v3_api_check` nothing is
/// launched: the value says whether an asm (v3) kernel would serve, 1 for yes.
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

#elif QOLA_MHA_FWD_PARAMETERS == 2

/// Runs one forward problem; everything about it stands in `args`. Returns a
/// negative value when no kernel of this library serves the problem.
QOLA_API float mha_fwd(const aiter::mha_fwd_args& args,
                       const ck_tile::stream_config& stream_config);

#else
#error "qola_config.h names a mha_fwd signature this header does not know"
#endif

QOLA_NS_END
