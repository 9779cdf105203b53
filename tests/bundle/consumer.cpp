// A program that has nothing but a bundle and HIP. No GPU is needed: what it asks for is answered
// before a kernel is launched.
#include "qola_mha_fwd.h"

#include <cstdio>

int main()
{
    aiter::mha_fwd_args args{};
    args.batch        = 1;
    args.nhead_q      = 1;
    args.nhead_k      = 1;
    args.seqlen_q     = 128;
    args.seqlen_k     = 128;
    args.max_seqlen_q = 128;
    args.hdim_q       = 4096;
    args.hdim_v       = 4096;
    const float answer = QOLA_NS::mha_fwd(args,
                                          ck_tile::stream_config{},
                                          "bf16",
                                          /*is_group_mode=*/false,
                                          mask_enum::no_mask,
                                          bias_enum::no_bias,
                                          /*has_lse=*/true,
                                          /*use_ext_asm=*/false);
    std::printf("%g\n", static_cast<double>(answer));
    return answer < 0 ? 0 : 1;
}
