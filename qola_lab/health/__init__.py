"""Compares the kernels of AITER trees: resources, occupancy, proven faults, emulated verdicts.

in: trees; out: their code objects with digests and verdicts, differences, a page and JSON.
"""
