"""What attention kernels compute, in float64: forward, backward, and how far a kernel may be off.

In: arrays. Out: arrays. NumPy alone, and no file, no tree of AITER, no GPU.
"""
