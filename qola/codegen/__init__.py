"""CK's and AITER's own generators, driven unmodified in their own processes.

in: a tree, a module's configuration and a Selection; out: a KernelSet.
"""
