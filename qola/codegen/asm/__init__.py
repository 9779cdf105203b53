"""AITER's assembly (v3) kernels and their tables.

in: a tree and variants; out: code objects and sources.
"""
