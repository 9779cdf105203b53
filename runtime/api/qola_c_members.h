// Sets members of AITER's arguments and parameters if the tree has them; not installed.
#pragma once

#include "qola_c_problem.h"

#include <cstdint>
#include <string>
#include <type_traits>

namespace qola_c_entry {

/// Converts a number to the type of a parameter or member: masks are an enumeration or int.
struct Number
{
    std::int64_t value = 0;

    template <class T>
        requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
    operator T() const
    {
        return static_cast<T>(value);
    }
};

/// Parameters of AITER's functions in addition to arguments and stream.
struct Parameters
{
    std::string q_dtype_str;
    Number is_group_mode, mask_type, bias_type, has_lse, has_dbias, has_sink, is_store_randval;
    Number deterministic, use_ext_asm, is_v3_atomic_fp32, how_v3_bf16_cvt, qscale_type, rope_type;
    const void* seqstart_q_padding_ptr = nullptr;
    const void* seqstart_k_padding_ptr = nullptr;
    const void* seqlen_q_padded        = nullptr;
    const void* seqlen_k_padded        = nullptr;
    Number is_v3_api_check;
};

template <class T, class V>
void set(T& to, V value, const char* name)
{
    if constexpr(std::is_integral_v<T> && !std::is_same_v<T, bool> && std::is_integral_v<V>)
        if(static_cast<V>(static_cast<T>(value)) != value || (value < 0) != (static_cast<T>(value) < 0))
            invalid(std::string(name) + ": " + std::to_string(value) + " is out of AITER's range");
    to = static_cast<T>(value);
}

} // namespace qola_c_entry

#define QOLA_C_SET(member, value, name)    \
    if constexpr(requires { args.member; }) \
        set(args.member, value, name);
/// Sets a value that is a parameter in some trees and a member in others.
#define QOLA_C_BOTH(member, value, name)   \
    more.member = {value};                 \
    QOLA_C_SET(member, value, name)
#define QOLA_C_TAKE(member, field)         \
    if constexpr(requires { args.member; }) \
        set(args.member, fields.take(&qola_mha_args::field), #field);
#define QOLA_C_SAME(name) QOLA_C_TAKE(name, name)
/// Sets the members of a tensor. Without a member for a stride, the stride must be 0 or `natural`.
#define QOLA_C_STRIDE(member, value, natural, name)                                    \
    if constexpr(requires { args.member; })                                            \
        set(args.member, value, name);                                                 \
    else if((value) != 0 && (value) != (natural))                                      \
        throw Refused(QOLA_UNSUPPORTED, name ": " + std::to_string(value) + ", and AITER has another one");
#define QOLA_C_TENSOR(aiter, field)                                                    \
    if constexpr(requires { args.aiter##_ptr; })                                       \
    {                                                                                  \
        const qola_tensor tensor = fields.take(&qola_mha_args::field);                 \
        args.aiter##_ptr         = tensor.data;                                        \
        QOLA_C_STRIDE(stride_##aiter, tensor.stride_row, 1, #field ".stride_row")      \
        QOLA_C_STRIDE(nhead_stride_##aiter, tensor.stride_head, 0, #field ".stride_head") \
        QOLA_C_STRIDE(batch_stride_##aiter, tensor.stride_batch, 0, #field ".stride_batch") \
    }
