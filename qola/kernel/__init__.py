"""The config of a kernel of Composable Kernel, and the rules for configs.

in: fields or a name; out: a KernelConfig, or every rule that it breaks.
"""
