"""ROCm's libraries as labels of @rocm: headers of the pinned ones, and errors for those that are not pinned."""

load("@rules_cc//cc:defs.bzl", "CcInfo")
load("//lib:finding.bzl", "finding")

# By label: the directory of the headers below include/, and the labels whose headers they include.
HEADER_LIBRARIES = {
    "hipcub": struct(deps = ["rocprim"], directory = "hipcub"),
    "hiprand": struct(deps = ["rocrand"], directory = "hiprand"),
    "rocprim": struct(deps = [], directory = "rocprim"),
    "rocrand": struct(deps = [], directory = "rocrand"),
    "rocthrust": struct(deps = ["rocprim"], directory = "thrust"),
}

# By label: the name to link by.
OTHER_LIBRARIES = {
    "hipblaslt": "hipblaslt",
    "miopen": "MIOpen",
    "rccl": "rccl",
}

def _not_pinned_impl(ctx):
    fail(finding(
        "ToolchainError: {} is not part of the pinned ROCm".format(ctx.label.name),
        place = ctx.label,
        found = "the pinned ROCm: compiler, HIP, and headers of " + ", ".join(sorted(HEADER_LIBRARIES)),
        expected = "a ROCm installation that has {}".format(ctx.label.name),
        fix = "--repo_env=QOLA_ROCM=/opt/rocm, or hip.toolkit(path = \"/opt/rocm\") in MODULE.bazel",
    ))

not_pinned = rule(
    implementation = _not_pinned_impl,
    doc = "A library that only a ROCm on the machine has.",
    provides = [CcInfo],
)
