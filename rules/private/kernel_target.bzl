"""KERNEL_TARGET: attributes of the targets whose actions make kernels and libraries."""

KERNEL_TARGET = {
    # What a remote worker has to be. Names and values of the Remote Execution
    # API's platform lexicon. On targets, and not in an option: they are part of
    # every action's key, with remote execution and without, so that both share
    # one cache.
    "exec_properties": {
        "ISA": "x86-64",
        "OSFamily": "linux",
    },
    # Without the transition a host compiler would be asked to compile HIP.
    "target_compatible_with": [Label("//rules/rocm:rocm")],
}
