#include "qola_mha_bwd.h"

#include "convert.h"

#include <cmath>

#if QOLA_MHA_BWD_PARAMETERS != 15
#error "written for the backward entry point of AITER's 0.1.7 wheels"
#endif

float run_backward(const Problem& problem, hipStream_t stream)
{
    const bool group         = problem.mode == "group";
    const std::size_t bytes  = element_bytes(problem);
    const Tensor d_o(problem, problem.seqlen_q, problem.nhead_q, problem.hdim_v, bytes);
    const Tensor dq(problem, problem.seqlen_q, problem.nhead_q, problem.hdim_q, bytes);
    // One head of K and V for each of Q: the caller sums them up.
    const Tensor dk(problem, problem.seqlen_k, problem.nhead_q, problem.hdim_q, bytes);
    const Tensor dv(problem, problem.seqlen_k, problem.nhead_q, problem.hdim_v, bytes);
    // A deterministic pass has an accumulator for each split of K; 16 rows make the most splits.
    const int splits         = problem.deterministic ? (problem.seqlen_k + 15) / 16 : 1;
    const int rows           = rows_of(problem);
    const int accumulators   = problem.batch * problem.seqlen_q * problem.nhead_q * problem.hdim_q;
    const std::size_t scores = std::size_t{1} * problem.batch * problem.nhead_q * problem.seqlen_q;

    auto args       = common_arguments<aiter::mha_bwd_args>(problem);
    args.do_ptr     = d_o.data;
    args.dq_ptr     = dq.data;
    args.dk_ptr     = dk.data;
    args.dv_ptr     = dv.data;
    args.lse_ptr    = device_memory(sizeof(float) * scores);
    args.d_ptr      = device_memory(sizeof(float) * scores);
    args.dq_acc_ptr = device_memory(sizeof(float) * splits * accumulators);
    if(problem.dbias)
        args.dbias_ptr = device_memory(bytes * scores * problem.seqlen_k);
    if(problem.store_randval)
        args.rand_val_ptr = device_memory(scores * problem.seqlen_k);
    args.max_seqlen_k = problem.seqlen_k;
    args.scale        = 1.f / std::sqrt(static_cast<float>(problem.hdim_q));
    args.p_undrop     = 1.f - args.p_drop;

    args.stride_do = d_o.stride;
    args.stride_dq = dq.stride;
    // Head after head: assembly kernels take no other order, Composable Kernel any.
    args.stride_dq_acc  = problem.hdim_q;
    args.stride_dk      = dk.stride;
    args.stride_dv      = dv.stride;
    args.stride_dbias   = args.stride_bias;
    args.stride_randval = problem.store_randval ? problem.seqlen_k : 0;

    args.nhead_stride_do     = d_o.nhead_stride;
    args.nhead_stride_dq     = dq.nhead_stride;
    args.nhead_stride_dq_acc = rows * problem.hdim_q;
    args.nhead_stride_dk     = dk.nhead_stride;
    args.nhead_stride_dv     = dv.nhead_stride;
    args.nhead_stride_lsed   = rows;

    args.batch_stride_do     = d_o.batch_stride;
    args.batch_stride_dq     = dq.batch_stride;
    args.batch_stride_dq_acc = dq.batch_stride;
    args.batch_stride_dk     = dk.batch_stride;
    args.batch_stride_dv     = dv.batch_stride;
    args.batch_stride_lsed   = group ? 0 : problem.nhead_q * problem.seqlen_q;
    args.split_stride_dq_acc = accumulators;

    return QOLA_NS(mha_bwd)(args,
                            ck_tile::stream_config{stream},
                            problem.dtype,
                            group,
                            mask_of(problem),
                            bias_of(problem),
                            problem.dbias,
                            problem.store_randval,
                            problem.deterministic,
                            problem.use_ext_asm,
                            problem.atomic_fp32,
                            problem.bf16_cvt,
                            /*seqlen_q_padded=*/nullptr,
                            /*seqlen_k_padded=*/nullptr,
                            problem.v3_api_check);
}
