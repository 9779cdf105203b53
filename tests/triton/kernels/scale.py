"""A user's kernel; the BUILD file defines the types of its arguments."""

import triton
import triton.language as tl


@triton.jit
def scale(x, y, n, by, BLOCK: tl.constexpr):
    """Multiply n numbers."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * by, mask=at < n)
