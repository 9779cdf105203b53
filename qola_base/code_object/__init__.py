"""Code objects: ELF files with GPU kernels, and the offload bundles in which libraries hold them.

in: bytes from libraries that others built; out: kernels with descriptors, arguments and resources.
"""
