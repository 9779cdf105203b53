#include "qola_mha_fwd.h"

#include "convert.h"

#include <cmath>

#if QOLA_MHA_FWD_PARAMETERS != 12
#error "written for the forward entry point of AITER's 0.1.7 wheels"
#endif

float run_forward(const Problem& problem, hipStream_t stream)
{
    const bool group         = problem.mode == "group";
    const std::size_t scores = std::size_t{1} * problem.batch * problem.nhead_q * problem.seqlen_q;
    auto args                = common_arguments<aiter::mha_fwd_args>(problem);
    if(problem.lse)
        args.lse_ptr = device_memory(sizeof(float) * scores);
    args.scale_s          = 1.f / std::sqrt(static_cast<float>(problem.hdim_q));
    args.scale_p          = 1.f;
    args.scale_o          = 1.f;
    args.nhead_stride_lse = rows_of(problem);
    args.batch_stride_lse = group ? 0 : problem.nhead_q * problem.seqlen_q;
    args.logits_soft_cap  = static_cast<float>(problem.soft_cap);
    args.min_seqlen_q     = problem.min_seqlen_q;
    if(problem.store_randval)
    {
        args.s_randval      = true;
        args.rand_val_ptr   = device_memory(scores * problem.seqlen_k);
        args.stride_randval = problem.seqlen_k;
    }

    return QOLA_NS(mha_fwd)(args,
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
