// Words of the table as the enumerations of the public headers, which each half includes.
#pragma once

#include "problem.h"

#include <cstdint>
#include <map>
#include <utility>

inline mask_enum mask_of(const Problem& problem)
{
    static const std::map<std::string, mask_enum> masks{
        {"no", mask_enum::no_mask},
        {"top_left", mask_enum::mask_top_left},
        {"bottom_right", mask_enum::mask_bottom_right},
        {"window", mask_enum::window_generic}};
    return masks.at(problem.mask);
}

inline bias_enum bias_of(const Problem& problem)
{
    static const std::map<std::string, bias_enum> biases{{"no", bias_enum::no_bias},
                                                         {"bias", bias_enum::elementwise_bias},
                                                         {"alibi", bias_enum::alibi}};
    return biases.at(problem.bias);
}

// One tensor of [batch, sequence, head, dim]: in group mode the sequences lie behind each other.
struct Tensor
{
    Tensor(const Problem& problem, int seqlen, int heads, int dim, std::size_t element_bytes)
        : stride(heads * dim),
          nhead_stride(dim),
          batch_stride(problem.mode == "group" ? 0 : seqlen * heads * dim),
          data(device_memory(std::size_t{1} * problem.batch * seqlen * heads * dim * element_bytes))
    {
    }

    int stride, nhead_stride, batch_stride;
    void* data;
};

inline std::size_t element_bytes(const Problem& problem) { return problem.dtype == "fp32" ? 4 : 2; }

// Rows of Q in all that one call sees: in group mode, of all sequences.
inline int rows_of(const Problem& problem)
{
    return problem.seqlen_q * (problem.mode == "group" ? problem.batch : 1);
}

// What the arguments of both entry points have: Q, K, V and O, and what the problem says.
template <class Args>
Args common_arguments(const Problem& problem)
{
    const bool group        = problem.mode == "group";
    const std::size_t bytes = element_bytes(problem);
    const Tensor q(problem, problem.seqlen_q, problem.nhead_q, problem.hdim_q, bytes);
    const Tensor k(problem, problem.seqlen_k, problem.nhead_k, problem.hdim_q, bytes);
    const Tensor v(problem, problem.seqlen_k, problem.nhead_k, problem.hdim_v, bytes);
    const Tensor o(problem, problem.seqlen_q, problem.nhead_q, problem.hdim_v, bytes);

    Args args{};
    args.q_ptr = q.data;
    args.k_ptr = k.data;
    args.v_ptr = v.data;
    args.o_ptr = o.data;
    if(problem.bias != "no")
        args.bias_ptr = device_memory(bytes * problem.seqlen_q * problem.seqlen_k);
    if(group)
    {
        args.seqstart_q_ptr = sequence_starts(problem.batch, problem.seqlen_q);
        args.seqstart_k_ptr = sequence_starts(problem.batch, problem.seqlen_k);
    }
    args.seqlen_q          = rows_of(problem);
    args.seqlen_k          = problem.seqlen_k * (group ? problem.batch : 1);
    args.max_seqlen_q      = problem.seqlen_q;
    args.batch             = problem.batch;
    args.hdim_q            = problem.hdim_q;
    args.hdim_v            = problem.hdim_v;
    args.nhead_q           = problem.nhead_q;
    args.nhead_k           = problem.nhead_k;
    args.stride_q          = q.stride;
    args.stride_k          = k.stride;
    args.stride_v          = v.stride;
    args.stride_o          = o.stride;
    args.stride_bias       = problem.bias == "bias" ? problem.seqlen_k : 0;
    args.nhead_stride_q    = q.nhead_stride;
    args.nhead_stride_k    = k.nhead_stride;
    args.nhead_stride_v    = v.nhead_stride;
    args.nhead_stride_o    = o.nhead_stride;
    args.batch_stride_q    = q.batch_stride;
    args.batch_stride_k    = k.batch_stride;
    args.batch_stride_v    = v.batch_stride;
    args.batch_stride_o    = o.batch_stride;
    args.window_size_left  = problem.mask == "window" ? 64 : -1;
    args.window_size_right = problem.mask == "no" ? -1 : 0;
    args.mask_type         = static_cast<ck_tile::index_t>(mask_of(problem));
    args.p_drop            = static_cast<float>(problem.dropout);
    args.drop_seed_offset  = std::pair<std::uint64_t, std::uint64_t>(1, 2);
    return args;
}
