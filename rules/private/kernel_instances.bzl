"""kernel_instances: the cc_library targets of one direction's kernel instances."""

load(":hip_library.bzl", "hip_library")

def kernel_instances(kernels, headers, copts = [], visibility = ["//visibility:public"]):
    """Declares one cc_library per kernel instance.

    This macro expands to as many rules as `kernels` has entries: a target for
    each kernel is what makes one changed kernel one recompile.

    Args:
      kernels: dict from a kernel instance's name to the archs it is compiled
        for. The source is <name>.cpp in the calling package.
      headers: label of the header_set that all of them include.
      copts: compiler flags of the module, from optCompilerConfig.json.
      visibility: visibility of the targets.
    """
    for name, archs in kernels.items():
        hip_library(
            name = name,
            src = name + ".cpp",
            archs = archs,
            copts = copts,
            # Several manifests link the same kernel, each into a library of its
            # own whose symbols do not meet.
            tags = ["LINKABLE_MORE_THAN_ONCE", "qola-kernel"],
            visibility = visibility,
            deps = [headers],
        )
