#include "qola_mha_bwd.h"

#include "attention.h"

float backward(int hdim)
{
    constexpr int seqlen = 128;
    aiter::mha_bwd_args args{};
    args.batch        = 1;
    args.nhead_q      = 1;
    args.nhead_k      = 1;
    args.seqlen_q     = seqlen;
    args.seqlen_k     = seqlen;
    args.max_seqlen_q = seqlen;
    args.max_seqlen_k = seqlen;
    args.hdim_q = args.hdim_v = hdim;
    args.stride_q = args.stride_k = args.stride_v = args.stride_o = hdim;
    args.stride_do = args.stride_dq = args.stride_dk = args.stride_dv = args.stride_dq_acc = hdim;
    args.scale                                                                             = 1.f;
    args.p_undrop                                                                          = 1.f;
    args.window_size_left                                                                  = -1;
    args.window_size_right                                                                 = -1;
    return QOLA_NS(mha_bwd)(args,
                            ck_tile::stream_config{},
                            "fp16",
                            /*is_group_mode=*/false,
                            mask_enum::no_mask,
                            bias_enum::no_bias,
                            /*has_dbias=*/false,
                            /*is_store_randval=*/false,
                            /*deterministic=*/false,
                            /*use_ext_asm=*/false,
                            /*is_v3_atomic_fp32=*/false,
                            /*how_v3_bf16_cvt=*/0);
}
