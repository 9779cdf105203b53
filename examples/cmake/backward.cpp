#include "qola_mha_bwd.h"

#include "attention.h"
#include "memory.h"

float backward(const char* dtype, int hdim)
{
    constexpr int seqlen    = 128;
    const std::size_t bytes = std::size_t{2} * seqlen * hdim; // fp16 or bf16
    const Memory q(bytes), k(bytes), v(bytes), o(bytes), dout(bytes);
    const Memory dq(bytes), dk(bytes), dv(bytes), dq_acc(2 * bytes);
    const Memory lse(sizeof(float) * seqlen), d(sizeof(float) * seqlen);

    aiter::mha_bwd_args args{};
    args.q_ptr        = q.get();
    args.k_ptr        = k.get();
    args.v_ptr        = v.get();
    args.o_ptr        = o.get();
    args.lse_ptr      = lse.get();
    args.do_ptr       = dout.get();
    args.d_ptr        = d.get();
    args.dq_ptr       = dq.get();
    args.dk_ptr       = dk.get();
    args.dv_ptr       = dv.get();
    args.dq_acc_ptr   = dq_acc.get();
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
                            dtype,
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
