#include "qola_mha_fwd.h"

#include "attention.h"
#include "memory.h"

float forward(const char* dtype, int hdim)
{
    constexpr int seqlen    = 128;
    const std::size_t bytes = std::size_t{2} * seqlen * hdim; // fp16 or bf16
    const Memory q(bytes), k(bytes), v(bytes), o(bytes), lse(sizeof(float) * seqlen);

    aiter::mha_fwd_args args{};
    args.q_ptr        = q.get();
    args.k_ptr        = k.get();
    args.v_ptr        = v.get();
    args.o_ptr        = o.get();
    args.lse_ptr      = lse.get();
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
                            dtype,
                            /*is_group_mode=*/false,
                            mask_enum::no_mask,
                            bias_enum::no_bias,
                            /*has_lse=*/true,
                            /*use_ext_asm=*/false);
}
