#include "qola_mha_fwd.h"

#include "convert.h"

#include <cmath>

#if QOLA_MHA_FWD_PARAMETERS != 12
#error "written for the forward entry point of AITER's 0.1.7 wheels"
#endif

float run_forward(const Problem& problem, hipStream_t stream)
{
    const bool group        = problem.mode == "group";
    const std::size_t bytes = element_bytes(problem);
    const Tensor q(problem, problem.seqlen_q, problem.nhead_q, problem.hdim_q, bytes);
    const Tensor k(problem, problem.seqlen_k, problem.nhead_k, problem.hdim_q, bytes);
    const Tensor v(problem, problem.seqlen_k, problem.nhead_k, problem.hdim_v, bytes);
    const Tensor o(problem, problem.seqlen_q, problem.nhead_q, problem.hdim_v, bytes);
    const int rows = problem.seqlen_q * (group ? problem.batch : 1);

    aiter::mha_fwd_args args{};
    args.q_ptr = q.data;
    args.k_ptr = k.data;
    args.v_ptr = v.data;
    args.o_ptr = o.data;
    if(problem.bias != "no")
        args.bias_ptr = device_memory(bytes * problem.seqlen_q * problem.seqlen_k);
    if(problem.lse)
        args.lse_ptr = device_memory(sizeof(float) * problem.batch * problem.nhead_q * problem.seqlen_q);
    if(group)
    {
        args.seqstart_q_ptr = sequence_starts(problem.batch, problem.seqlen_q);
        args.seqstart_k_ptr = sequence_starts(problem.batch, problem.seqlen_k);
    }
    args.seqlen_q          = rows;
    args.seqlen_k          = problem.seqlen_k * (group ? problem.batch : 1);
    args.max_seqlen_q      = problem.seqlen_q;
    args.batch             = problem.batch;
    args.hdim_q            = problem.hdim_q;
    args.hdim_v            = problem.hdim_v;
    args.nhead_q           = problem.nhead_q;
    args.nhead_k           = problem.nhead_k;
    args.scale_s           = 1.f / std::sqrt(static_cast<float>(problem.hdim_q));
    args.scale_p           = 1.f;
    args.scale_o           = 1.f;
    args.stride_q          = q.stride;
    args.stride_k          = k.stride;
    args.stride_v          = v.stride;
    args.stride_o          = o.stride;
    args.stride_bias       = problem.bias == "bias" ? problem.seqlen_k : 0;
    args.nhead_stride_q    = q.nhead_stride;
    args.nhead_stride_k    = k.nhead_stride;
    args.nhead_stride_v    = v.nhead_stride;
    args.nhead_stride_o    = o.nhead_stride;
    args.nhead_stride_lse  = rows;
    args.batch_stride_q    = q.batch_stride;
    args.batch_stride_k    = k.batch_stride;
    args.batch_stride_v    = v.batch_stride;
    args.batch_stride_o    = o.batch_stride;
    args.batch_stride_lse  = group ? 0 : problem.nhead_q * problem.seqlen_q;
    args.window_size_left  = problem.mask == "window" ? 64 : -1;
    args.window_size_right = problem.mask == "no" ? -1 : 0;
    args.mask_type         = static_cast<ck_tile::index_t>(mask_of(problem));
    args.p_drop            = static_cast<float>(problem.dropout);
    args.logits_soft_cap   = static_cast<float>(problem.soft_cap);
    args.min_seqlen_q      = problem.min_seqlen_q;
    args.drop_seed_offset  = std::pair<std::uint64_t, std::uint64_t>(1, 2);
    if(problem.store_randval)
    {
        args.s_randval      = true;
        args.rand_val_ptr   = device_memory(std::size_t{1} * problem.batch * problem.nhead_q * problem.seqlen_q * problem.seqlen_k);
        args.stride_randval = problem.seqlen_k;
    }

    return QOLA_NS::mha_fwd(args,
                            ck_tile::stream_config{stream},
                            problem.dtype,
                            group,
                            mask_of(problem),
                            bias_of(problem),
                            problem.lse,
                            problem.use_ext_asm,
                            problem.bf16_cvt,
                            /*seqstart_q_padding_ptr=*/nullptr,
                            /*seqstart_k_padding_ptr=*/nullptr,
                            problem.v3_api_check);
}
