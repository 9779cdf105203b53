// Two AITERs in one process: one inside, behind ask(), one that a library exports under its own name.
#include "mha_fwd.h"

#include <cstdio>
#include <string>

float ask(const aiter::mha_fwd_args& args, const char* dtype);

namespace {
aiter::mha_fwd_args problem(int hdim)
{
    aiter::mha_fwd_args args{};
    args.batch        = 1;
    args.nhead_q      = 1;
    args.nhead_k      = 1;
    args.seqlen_q     = 256;
    args.seqlen_k     = 256;
    args.max_seqlen_q = 256;
    args.hdim_q       = hdim;
    args.hdim_v       = hdim;
    return args;
}

float ask_other(const aiter::mha_fwd_args& args, const char* dtype)
{
    return aiter::mha_fwd(args,
                          ck_tile::stream_config{},
                          dtype,
                          /*is_group_mode=*/std::string(dtype) == "bf16",
                          mask_enum::no_mask,
                          bias_enum::no_bias,
                          /*has_lse=*/true,
                          /*use_ext_asm=*/false);
}
} // namespace

int main()
{
    for(const auto& [dtype, hdim] : {std::pair{"fp16", 32}, std::pair{"bf16", 128}})
        std::printf("%s %d: inside %g, other %g\n",
                    dtype,
                    hdim,
                    static_cast<double>(ask(problem(hdim), dtype)),
                    static_cast<double>(ask_other(problem(hdim), dtype)));
}
