#include "qola_mha_fwd.h"

#include "attention.h"

float forward(int hdim)
{
    constexpr int seqlen = 128;
    aiter::mha_fwd_args args{};
    args.batch        = 1;
    args.nhead_q      = 1;
    args.nhead_k      = 1;
    args.seqlen_q     = seqlen;
    args.seqlen_k     = seqlen;
    args.max_seqlen_q = seqlen;
    args.hdim_q = args.hdim_v = hdim;
    args.stride_q = args.stride_k = args.stride_v = args.stride_o = hdim;
    args.scale_s = args.scale_p = args.scale_o = 1.f;
    args.window_size_left                      = -1;
    args.window_size_right                     = -1;
    return QOLA_NS(mha_fwd)(args,
                            ck_tile::stream_config{},
                            "fp16",
                            /*is_group_mode=*/false,
                            mask_enum::no_mask,
                            bias_enum::no_bias,
                            /*has_lse=*/true,
                            /*use_ext_asm=*/false);
}
