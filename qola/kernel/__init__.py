"""A kernel of Composable Kernel in words: its config, and the rules that it keeps to.

in: words for a kernel; out: a KernelConfig, or every rule that it breaks.
"""
