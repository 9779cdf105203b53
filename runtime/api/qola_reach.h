// Offsets that kernels can compute; not installed.
#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace qola_entry {

/// Bytes that the offsets of a kernel reach: they have 32 bits. Composable Kernel adds half of them to the offsets of
/// stores that must not happen, so that they are beyond the tensor. Its offsets in elements are signed.
inline constexpr double REACH = 4294967296.;
inline constexpr double REACH_OF_STORES = REACH / 2;

/// Rows by which the last tile exceeds a sequence, at most.
inline constexpr double TILE_ROWS = 256;

/// Returns why the rows of one sequence, or of the pages, exceed the offsets of kernels; empty if they do not.
inline std::string beyond_reach(const char* name, std::int64_t stride, std::int64_t rows, int bytes, bool written)
{
    const double most = written || bytes == 1 ? REACH_OF_STORES : REACH;
    if((static_cast<double>(rows) + TILE_ROWS) * static_cast<double>(stride) * bytes <= most)
        return {};
    return std::string(name) + ": " + std::to_string(stride) + ", with " + std::to_string(rows) + " rows of " +
           std::to_string(bytes) + " bytes an element: a kernel reaches " + std::to_string(std::llround(most)) + " bytes";
}

/// Returns the bytes of an element of Q, K and V, or of O, by AITER's name of a type: fp8bf16 has O in bf16.
inline int bytes_of(std::string_view type, bool output)
{
    if(output && (type == "fp8bf16" || type == "fp8fp16"))
        return 2;
    if(type == "fp32" || (output && type == "fp8fp32"))
        return 4;
    return type.substr(0, 3) == "fp8" || type.substr(0, 3) == "bf8" ? 1 : 2;
}

/// Throws if AITER's arguments have a stride with which the rows of a sequence exceed the offsets of kernels.
///
/// K and V in pages are not checked: some AITERs add the address of a page in 64 bits.
template <class Args>
void check_reach(const Args& args, std::string_view type)
{
    const auto check = [](const char* name, std::int64_t stride, std::int64_t rows, int bytes, bool written) {
        if(const std::string why = beyond_reach(name, stride, rows, bytes, written); !why.empty())
            throw std::runtime_error(why);
    };
    const int bytes = bytes_of(type, false), bytes_o = bytes_of(type, true);
    constexpr bool backward = requires { args.stride_dq; };
    bool group = false, paged = requires { args.kv_indptr; };
    if constexpr(requires { args.seqstart_q_ptr; })
        group = args.seqstart_q_ptr != nullptr;
    if constexpr(requires { args.block_table_ptr; })
        paged = args.block_table_ptr != nullptr;
    std::int64_t rows_q = args.seqlen_q, rows_k = 0;
    if constexpr(requires { args.max_seqlen_q; })
        rows_q = group ? args.max_seqlen_q : args.seqlen_q;
    if constexpr(requires { args.seqlen_k; })
        rows_k = args.seqlen_k;
    if(group && args.batch > 0)
    {
        // Without the longest sequence of K: it has at least the mean of the lengths.
        rows_k = (rows_k + args.batch - 1) / args.batch;
        if constexpr(requires { args.max_seqlen_k; })
            rows_k = args.max_seqlen_k;
    }
#define QOLA_REACH(stride, rows, bytes, written) \
    if constexpr(requires { args.stride; })      \
        check(#stride, args.stride, rows, bytes, written);
    QOLA_REACH(stride_q, rows_q, bytes, false)
    QOLA_REACH(stride_o, rows_q, bytes_o, !backward)
    QOLA_REACH(stride_do, rows_q, bytes, false)
    QOLA_REACH(stride_dq, rows_q, bytes, true)
    if(!paged)
    {
        QOLA_REACH(stride_k, rows_k, bytes, false)
        QOLA_REACH(stride_v, rows_k, bytes, false)
        QOLA_REACH(stride_dk, rows_k, bytes, true)
        QOLA_REACH(stride_dv, rows_k, bytes, true)
    }
    // That of ALiBi is the number of heads.
    if constexpr(requires { args.stride_bias; })
        if(args.stride_bias > args.nhead_q)
            check("stride_bias", args.stride_bias, rows_q, bytes == 1 ? 4 : bytes, false);
    if constexpr(requires { args.dbias_ptr; })
        if(args.dbias_ptr != nullptr)
            check("stride_dbias", args.stride_dbias, rows_q, bytes, true);
    if constexpr(requires { args.rand_val_ptr; })
        if(args.rand_val_ptr != nullptr)
            check("stride_randval", args.stride_randval, rows_q, 1, true);
#undef QOLA_REACH
}

/// The same for trees whose arguments have the name of the type.
template <class Args>
void check_reach(const Args& args)
{
    if constexpr(requires { args.data_type; })
        check_reach(args, args.data_type);
}

} // namespace qola_entry
