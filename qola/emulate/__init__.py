"""Runs AMD code objects on the CPU: gfx90a, gfx942 and gfx950, waves of 64 lanes, no GPU.

In: a code object, a grid and kernel arguments. Out: memory as the kernel leaves it, and findings.
"""
