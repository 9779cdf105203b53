// Asks the library of one namespace, through its public header, what it makes of a problem.
#include "qola_mha_fwd.h"

namespace {
aiter::mha_fwd_args problem(int hdim)
{
    aiter::mha_fwd_args args{};
    args.batch        = 1;
    args.nhead_q      = 1;
    args.nhead_k      = 1;
    args.seqlen_q     = 128;
    args.seqlen_k     = 128;
    args.max_seqlen_q = 128;
    args.hdim_q       = hdim;
    args.hdim_v       = hdim;
    return args;
}
} // namespace

float ASK(const char* dtype, int hdim, bool only_check_v3)
{
    return QOLA_NS(mha_fwd)(problem(hdim),
                            ck_tile::stream_config{},
                            dtype,
                            /*is_group_mode=*/false,
                            mask_enum::no_mask,
                            bias_enum::no_bias,
                            /*has_lse=*/true,
                            /*use_ext_asm=*/true,
                            /*how_v3_bf16_cvt=*/1,
                            nullptr,
                            nullptr,
                            only_check_v3);
}
