"""The soname by which libraries need HIP's runtime: --@rules_hip//rocm:hip_soname."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load("//lib:finding.bzl", "finding")

# A soname is part of the linked file, and a version of one digit keeps all offsets. The result is only linked.
_RENAME = """
LC_ALL=C sed "s/libamdhip64\\.so\\.[0-9]\\x00/$3\\x00/g" "$1" > "$2"
if ! LC_ALL=C grep -q "$3" "$2"; then
    echo "error: $1 has no soname libamdhip64.so.<digit>; build without --@rules_hip//rocm:hip_soname" >&2
    exit 1
fi
"""

def _renamed_hip_impl(ctx):
    soname = ctx.attr._soname[BuildSettingInfo].value
    if not soname:
        return [DefaultInfo(files = depset())]
    if len(ctx.files.library) != 1:
        fail(finding(
            "ToolchainError: no runtime of HIP to link",
            place = str(ctx.attr.library.label),
            found = "no libamdhip64.so",
            expected = "a ROCm with libamdhip64.so for --@rules_hip//rocm:hip_soname",
            fix = "--repo_env=QOLA_ROCM=pinned",
        ))
    output = ctx.actions.declare_file(ctx.label.name + "/libamdhip64.so")
    ctx.actions.run_shell(
        arguments = [ctx.files.library[0].path, output.path, soname],
        command = _RENAME,
        inputs = ctx.files.library,
        mnemonic = "QolaHipSoname",
        outputs = [output],
        progress_message = "Giving HIP's runtime the soname " + soname,
    )
    return [DefaultInfo(files = depset([output]))]

renamed_hip = rule(
    implementation = _renamed_hip_impl,
    attrs = {
        "library": attr.label(allow_files = True, doc = "HIP's runtime.", mandatory = True),
        "_soname": attr.label(default = "//rocm:hip_soname", providers = [BuildSettingInfo]),
    },
    doc = "HIP's runtime with the soname that --@rules_hip//rocm:hip_soname names, to link; without the flag no file.",
)

_RENAMED = Label("//rocm:renamed_hip")
_OWN = Label("//rocm:own_hip_soname")

# How macros link HIP's runtime: flags of the link, and its inputs for them.
RUNTIME_LINK_FLAGS = select({
    _OWN: ["-lamdhip64"],
    "//conditions:default": ["$(location {})".format(_RENAMED)],
})
RUNTIME_LINK_INPUTS = select({
    _OWN: [],
    "//conditions:default": [_RENAMED],
})
