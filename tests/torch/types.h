// Types that AITER's modules pass to each other, in a small form: a class and an enum.

#pragma once

namespace aiter {

struct aiter_tensor_t
{
    long size;
};

} // namespace aiter

enum class ActivationType : int
{
    Silu = 0,
    Gelu = 1,
};
