// Written by qola (qola/plan/wrappers.py) from mha_bwd.h of an AITER tree: the functions that leave
// the library. Make it again: qola plan; do not edit.
#include "qola_mha_bwd.h"

#include "qola_c_entry.h"
#include "qola_entry.h"

#ifdef QOLA_ASM
#include "qola_asm_domain.h"
#endif

QOLA_NS_BEGIN

float mha_bwd(const aiter::mha_bwd_args& args,
              const ck_tile::stream_config& stream_config,
              std::string q_dtype_str,
              bool is_group_mode,
              mask_enum mask_type,
              bias_enum bias_type,
              bool has_dbias,
              bool is_store_randval,
              bool deterministic,
              bool use_ext_asm,
              bool is_v3_atomic_fp32,
              int how_v3_bf16_cvt,
              const void* seqlen_q_padded,
              const void* seqlen_k_padded,
              bool is_v3_api_check)
{
#ifdef QOLA_ASM
    use_ext_asm = use_ext_asm &&
                  qola_asm_serves(q_dtype_str,
                                  args.hdim_q,
                                  args.hdim_v,
                                  is_group_mode,
                                  mask_type != mask_enum::no_mask,
                                  bias_type != bias_enum::no_bias,
                                  args.p_drop > 0.f,
                                  has_dbias,
                                  deterministic);
#endif
    return qola_entry::answer("mha_bwd", use_ext_asm, [&](bool use_asm) {
        qola_entry::check_reach(args, q_dtype_str);
        return qola_entry::repeatable(args, stream_config, [&](const auto& stream_config) {
            return ::aiter::mha_bwd(args,
                                    stream_config,
                                    q_dtype_str,
                                    is_group_mode,
                                    mask_type,
                                    bias_type,
                                    has_dbias,
                                    is_store_randval,
                                    deterministic,
                                    use_asm,
                                    is_v3_atomic_fp32,
                                    how_v3_bf16_cvt,
                                    seqlen_q_padded,
                                    seqlen_k_padded,
                                    is_v3_api_check);
        });
    });
}

QOLA_NS_END

namespace qola_c_entry {

extern const Kernels mha_bwd_kernels;

} // namespace qola_c_entry

namespace {

struct mha_bwd_of_c
{
    using Args = std::decay_t<const aiter::mha_bwd_args&>;
    static constexpr const char* name              = "mha_bwd";
    static constexpr std::string_view parameters[] = {"args", "stream_config", "q_dtype_str", "is_group_mode", "mask_type", "bias_type", "has_dbias", "is_store_randval", "deterministic", "use_ext_asm", "is_v3_atomic_fp32", "how_v3_bf16_cvt", "seqlen_q_padded", "seqlen_k_padded", "is_v3_api_check"};
    static qola_c_entry::Kernels kernels() { return qola_c_entry::mha_bwd_kernels; }
    template <class More>
    static float call(const Args& args, const ck_tile::stream_config& stream, const More& more)
    {
        return QOLA_NS(mha_bwd)(args, stream, more.q_dtype_str, more.is_group_mode, more.mask_type, more.bias_type, more.has_dbias, more.is_store_randval, more.deterministic, more.use_ext_asm, more.is_v3_atomic_fp32, more.how_v3_bf16_cvt, more.seqlen_q_padded, more.seqlen_k_padded, more.is_v3_api_check);
    }
};

} // namespace

QOLA_C_DEFINE(mha_bwd, mha_bwd_of_c)
