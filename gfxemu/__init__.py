"""Runs AMD code objects on the CPU: gfx90a, gfx942, gfx950, gfx1100 and gfx1201, no GPU.

In: a code object, a grid and kernel arguments. Out: memory as the kernel leaves it, and findings.
"""
