"""What a kernel imports."""

import triton


@triton.jit
def half(x):
    """Half of it."""
    return x * 0.5
