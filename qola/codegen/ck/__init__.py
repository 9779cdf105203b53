"""Composable Kernel's generators, unmodified, behind adapters.

in: a tree and a Selection; out: kernel instances and dispatch.
"""
