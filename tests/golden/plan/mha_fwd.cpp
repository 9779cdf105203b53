// Written by qola (qola/plan/wrappers.py) from mha_fwd.h of an AITER tree: the functions that leave
// the library. Make it again: qola plan; do not edit.
#include "qola_mha_fwd.h"

#include "qola_c_entry.h"
#include "qola_entry.h"

#ifdef QOLA_ASM
#include "qola_asm_domain.h"
#endif

QOLA_NS_BEGIN

float mha_fwd(const aiter::mha_fwd_args& args,
              const ck_tile::stream_config& stream_config,
              std::string q_dtype_str,
              bool is_group_mode,
              mask_enum mask_type,
              bias_enum bias_type,
              bool has_lse,
              bool use_ext_asm,
              int how_v3_bf16_cvt,
              const void* seqstart_q_padding_ptr,
              const void* seqstart_k_padding_ptr,
              bool is_v3_api_check)
{
#ifdef QOLA_ASM
    use_ext_asm = use_ext_asm && args.logits_soft_cap == 0.f && args.min_seqlen_q == 0 &&
                  qola_asm_serves(q_dtype_str,
                                  args.hdim_q,
                                  args.hdim_v,
                                  is_group_mode,
                                  mask_type != mask_enum::no_mask,
                                  bias_type != bias_enum::no_bias,
                                  has_lse,
                                  args.p_drop > 0.f);
#endif
    return qola_entry::answer("mha_fwd", use_ext_asm, [&](bool use_asm) {
        qola_entry::check_reach(args, q_dtype_str);
        return qola_entry::repeatable(args, stream_config, [&](const auto& stream_config) {
            return ::aiter::mha_fwd(args,
                                    stream_config,
                                    q_dtype_str,
                                    is_group_mode,
                                    mask_type,
                                    bias_type,
                                    has_lse,
                                    use_asm,
                                    how_v3_bf16_cvt,
                                    seqstart_q_padding_ptr,
                                    seqstart_k_padding_ptr,
                                    is_v3_api_check);
        });
    });
}

float mha_fwd_splitkv(const aiter::mha_fwd_splitkv_args& args,
                      const ck_tile::stream_config& stream_config,
                      std::string q_dtype_str,
                      bool is_group_mode,
                      mask_enum mask_type,
                      bias_enum bias_type,
                      bool has_lse)
{
    return qola_entry::answer("mha_fwd_splitkv", false, [&](bool) {
        qola_entry::check_reach(args, q_dtype_str);
        return qola_entry::repeatable(args, stream_config, [&](const auto& stream_config) {
            return ::aiter::mha_fwd_splitkv(args,
                                            stream_config,
                                            q_dtype_str,
                                            is_group_mode,
                                            mask_type,
                                            bias_type,
                                            has_lse);
        });
    });
}

float mha_batch_prefill(const aiter::mha_batch_prefill_args& args,
                        const ck_tile::stream_config& stream_config,
                        std::string q_dtype_str,
                        bool is_group_mode,
                        mask_enum mask_type,
                        bias_enum bias_type,
                        bool has_lse,
                        bool use_ext_asm)
{
    return qola_entry::answer("mha_batch_prefill", false, [&](bool) {
        qola_entry::check_reach(args, q_dtype_str);
        return qola_entry::repeatable(args, stream_config, [&](const auto& stream_config) {
            return ::aiter::mha_batch_prefill(args,
                                              stream_config,
                                              q_dtype_str,
                                              is_group_mode,
                                              mask_type,
                                              bias_type,
                                              has_lse,
                                              use_ext_asm);
        });
    });
}

QOLA_NS_END

namespace qola_c_entry {

extern const Kernels mha_fwd_kernels;

} // namespace qola_c_entry

namespace {

struct mha_fwd_of_c
{
    using Args = std::decay_t<const aiter::mha_fwd_args&>;
    static constexpr const char* name              = "mha_fwd";
    static constexpr std::string_view parameters[] = {"args", "stream_config", "q_dtype_str", "is_group_mode", "mask_type", "bias_type", "has_lse", "use_ext_asm", "how_v3_bf16_cvt", "seqstart_q_padding_ptr", "seqstart_k_padding_ptr", "is_v3_api_check"};
    static qola_c_entry::Kernels kernels() { return qola_c_entry::mha_fwd_kernels; }
    template <class More>
    static float call(const Args& args, const ck_tile::stream_config& stream, const More& more)
    {
        return QOLA_NS(mha_fwd)(args, stream, more.q_dtype_str, more.is_group_mode, more.mask_type, more.bias_type, more.has_lse, more.use_ext_asm, more.how_v3_bf16_cvt, more.seqstart_q_padding_ptr, more.seqstart_k_padding_ptr, more.is_v3_api_check);
    }
};

} // namespace

QOLA_C_DEFINE(mha_fwd, mha_fwd_of_c)

namespace qola_c_entry {

extern const Kernels mha_fwd_splitkv_kernels;

} // namespace qola_c_entry

namespace {

struct mha_fwd_splitkv_of_c
{
    using Args = std::decay_t<const aiter::mha_fwd_splitkv_args&>;
    static constexpr const char* name              = "mha_fwd_splitkv";
    static constexpr std::string_view parameters[] = {"args", "stream_config", "q_dtype_str", "is_group_mode", "mask_type", "bias_type", "has_lse"};
    static qola_c_entry::Kernels kernels() { return qola_c_entry::mha_fwd_splitkv_kernels; }
    template <class More>
    static float call(const Args& args, const ck_tile::stream_config& stream, const More& more)
    {
        return QOLA_NS(mha_fwd_splitkv)(args, stream, more.q_dtype_str, more.is_group_mode, more.mask_type, more.bias_type, more.has_lse);
    }
};

} // namespace

QOLA_C_DEFINE(mha_fwd_splitkv, mha_fwd_splitkv_of_c)

namespace qola_c_entry {

extern const Kernels mha_batch_prefill_kernels;

} // namespace qola_c_entry

namespace {

struct mha_batch_prefill_of_c
{
    using Args = std::decay_t<const aiter::mha_batch_prefill_args&>;
    static constexpr const char* name              = "mha_batch_prefill";
    static constexpr std::string_view parameters[] = {"args", "stream_config", "q_dtype_str", "is_group_mode", "mask_type", "bias_type", "has_lse", "use_ext_asm"};
    static qola_c_entry::Kernels kernels() { return qola_c_entry::mha_batch_prefill_kernels; }
    template <class More>
    static float call(const Args& args, const ck_tile::stream_config& stream, const More& more)
    {
        return QOLA_NS(mha_batch_prefill)(args, stream, more.q_dtype_str, more.is_group_mode, more.mask_type, more.bias_type, more.has_lse, more.use_ext_asm);
    }
};

} // namespace

QOLA_C_DEFINE(mha_batch_prefill, mha_batch_prefill_of_c)
