// Written by qola (qola/plan/wrappers.py) from mha_bwd.h of an AITER tree.
// Make it again: qola plan; do not edit.
//
// The functions of AITER's mha_bwd.h that the libraries of the manifest have, in its namespace.
// Those that launch kernels return the time in milliseconds where the stream configuration
// measures, 0 or more on success, and a negative status (qola_common.h) when nothing was launched;
// asked whether assembly (v3) kernels would serve, 1 where they would. A function that is not
// declared here is not in the library: the manifest leaves its direction out, or the tree has none.
#pragma once

#ifndef __HIP__
#error "qola_mha_bwd.h includes HIP and Composable Kernel. Compile this file as HIP: in Bazel put it into a qola_cc_library, in CMake set LANGUAGE HIP, elsewhere use hipcc. A host compiler takes qola_c.h, which has the same functions for C."
#else

#include "qola_common.h"

#include "mha_bwd.h"

#include <cstddef>

QOLA_NS_BEGIN

/// Runs one backward problem on the stream of the stream configuration.
QOLA_API float mha_bwd(const aiter::mha_bwd_args& args,
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
                       bool is_v3_api_check = false);

QOLA_NS_END

#endif // __HIP__
