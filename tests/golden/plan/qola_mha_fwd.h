// Written by qola (qola/plan/wrappers.py) from mha_fwd.h of an AITER tree.
// Make it again: qola plan; do not edit.
//
// The functions of AITER's mha_fwd.h that the libraries of the manifest have, in its namespace.
// Those that launch kernels return the time in milliseconds where the stream configuration
// measures, 0 or more on success, and a negative status (qola_common.h) when nothing was launched;
// asked whether assembly (v3) kernels would serve, 1 where they would. A function that is not
// declared here is not in the library: the manifest leaves its direction out, or the tree has none.
#pragma once

#ifndef __HIP__
#error "qola_mha_fwd.h includes HIP and Composable Kernel. Compile this file as HIP: in Bazel put it into a qola_cc_library, in CMake set LANGUAGE HIP, elsewhere use hipcc. A host compiler takes qola_c.h, which has the same functions for C."
#else

#include "qola_common.h"

#include "mha_fwd.h"

#include <cstddef>

QOLA_NS_BEGIN

/// Runs one forward problem on the stream of the stream configuration.
QOLA_API float mha_fwd(const aiter::mha_fwd_args& args,
                       const ck_tile::stream_config& stream_config,
                       std::string q_dtype_str,
                       bool is_group_mode,
                       mask_enum mask_type,
                       bias_enum bias_type,
                       bool has_lse,
                       bool use_ext_asm,
                       int how_v3_bf16_cvt = 1,
                       const void* seqstart_q_padding_ptr = nullptr,
                       const void* seqstart_k_padding_ptr = nullptr,
                       bool is_v3_api_check = false);

/// Runs one forward problem with K and V split among workgroups, then combined.
QOLA_API float mha_fwd_splitkv(const aiter::mha_fwd_splitkv_args& args,
                               const ck_tile::stream_config& stream_config,
                               std::string q_dtype_str,
                               bool is_group_mode,
                               mask_enum mask_type,
                               bias_enum bias_type,
                               bool has_lse);

/// Runs one forward problem over a paged K and V cache.
QOLA_API float mha_batch_prefill(const aiter::mha_batch_prefill_args& args,
                                 const ck_tile::stream_config& stream_config,
                                 std::string q_dtype_str,
                                 bool is_group_mode,
                                 mask_enum mask_type,
                                 bias_enum bias_type,
                                 bool has_lse,
                                 bool use_ext_asm);

QOLA_NS_END

#endif // __HIP__
