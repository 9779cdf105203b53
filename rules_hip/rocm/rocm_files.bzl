"""rocm_files: targets built by the ROCm toolchain, for tests that run under the host's."""

load("//lib:transitions.bzl", "TRANSITION_ATTRS", "kernel_transition")

def _rocm_files_impl(ctx):
    files = depset(transitive = [src[DefaultInfo].files for src in ctx.attr.srcs])
    return [DefaultInfo(files = files, runfiles = ctx.runfiles(transitive_files = files))]

rocm_files = rule(
    implementation = _rocm_files_impl,
    attrs = TRANSITION_ATTRS | {
        "srcs": attr.label_list(
            cfg = kernel_transition,
            doc = "Targets whose files are wanted.",
            mandatory = True,
        ),
    },
    doc = "The files of other targets, built as kernels are: by the ROCm toolchain, optimised.",
)
