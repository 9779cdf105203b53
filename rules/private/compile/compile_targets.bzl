"""compile_targets: what the module qola_compile declares."""

load("//rules/private:kernel_target.bzl", "KERNEL_TARGET")
load(":kernel_objects.bzl", "kernel_objects", "no_kernel_sources")

def compile_targets(name, sources):
    """Declares the target that compiles kernel instances.

    Expands to `name`, the kernel_objects; `sources`, a label_flag that names
    the kernel_sources it compiles, which compiled_kernels sets; and its default,
    which has none.

    Args:
      name: name of the kernel_objects.
      sources: name of the label_flag.
    """
    no_kernel_sources(
        name = "no_" + sources,
        visibility = ["//visibility:public"],
    )
    native.label_flag(
        name = sources,
        build_setting_default = "no_" + sources,
        visibility = ["//visibility:public"],
    )
    kernel_objects(
        name = name,
        visibility = ["//visibility:public"],
        **KERNEL_TARGET
    )
