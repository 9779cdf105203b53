// Words of the table as the enumerations of the public headers, which each half includes.
#pragma once

#include "problem.h"

#include <stdexcept>

inline mask_enum mask_of(const Problem& problem)
{
    if(problem.mask == "no")
        return mask_enum::no_mask;
    if(problem.mask == "top_left")
        return mask_enum::mask_top_left;
    if(problem.mask == "bottom_right")
        return mask_enum::mask_bottom_right;
    if(problem.mask == "window")
        return mask_enum::window_generic;
    throw std::invalid_argument("mask " + problem.mask);
}

inline bias_enum bias_of(const Problem& problem)
{
    if(problem.bias == "no")
        return bias_enum::no_bias;
    if(problem.bias == "bias")
        return bias_enum::elementwise_bias;
    if(problem.bias == "alibi")
        return bias_enum::alibi;
    throw std::invalid_argument("bias " + problem.bias);
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
