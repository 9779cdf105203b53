"""The flags --@qola//:<name>, and what rules select on them."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo", "bool_flag", "string_flag")
load(":finding.bzl", "finding")

# As KNOWN_ARCHS in qola/manifest/constants.py; tests/repository/test_build_files.py compares them.
KNOWN_ARCHS = [
    "gfx900",
    "gfx906",
    "gfx908",
    "gfx90a",
    "gfx940",
    "gfx941",
    "gfx942",
    "gfx950",
    "gfx1010",
    "gfx1011",
    "gfx1012",
    "gfx1030",
    "gfx1031",
    "gfx1032",
    "gfx1033",
    "gfx1034",
    "gfx1035",
    "gfx1036",
    "gfx1100",
    "gfx1101",
    "gfx1102",
    "gfx1103",
    "gfx1150",
    "gfx1151",
    "gfx1152",
    "gfx1153",
    "gfx1200",
    "gfx1201",
    "gfx1250",
]

def _archs_flag_impl(ctx):
    archs = ctx.build_setting_value
    unknown = [arch for arch in archs if arch not in KNOWN_ARCHS]
    if unknown:
        fail(finding(
            "unknown arch",
            place = "--@qola//:archs",
            found = ", ".join(unknown),
            expected = "archs of a manifest, such as gfx942 or gfx950",
            fix = "--@qola//:archs=gfx942,gfx950; without the option all archs of the manifest are built",
        ))
    return [BuildSettingInfo(value = archs)]

_archs_flag = rule(
    implementation = _archs_flag_impl,
    build_setting = config.string_list(flag = True),
    doc = "Restricts manifests to some of their archs; empty: builds all archs.",
)

# Users write these names.
# buildifier: disable=unnamed-macro
def declare_settings():
    """Declares the flags in the root package.

    --@qola//:archs=gfx942 restricts every manifest to these of its archs.

    --@qola//:compress, the default, compresses the device code of kernel instances in
    libraries, and of kernels in Triton in packs.

    --@qola//:hip_soname=libamdhip64.so.8 links HIP's runtime by another soname than
    the linked ROCm's own.

    --@qola//:torch=cpu_check builds modules in mode pybind with a PyTorch that
    has no HIP: Python can import them, and they launch no kernel.
    """
    _archs_flag(name = "archs", build_setting_default = [])
    bool_flag(name = "compress", build_setting_default = True)
    string_flag(name = "hip_soname", build_setting_default = "", values = ["", "libamdhip64.so.7", "libamdhip64.so.8"])
    string_flag(name = "torch", build_setting_default = "rocm", values = ["cpu_check", "rocm"])

def _selected_archs_impl(ctx):
    selected = ctx.attr._archs[BuildSettingInfo].value
    return [config_common.FeatureFlagInfo(value = " ".join([arch for arch in ctx.attr.archs if not selected or arch in selected]))]

_selected_archs = rule(
    implementation = _selected_archs_impl,
    attrs = {
        "archs": attr.string_list(mandatory = True),
        "_archs": attr.label(default = Label("//:archs"), providers = [BuildSettingInfo]),
    },
    doc = "The archs that --@qola//:archs selects of a list, separated by blanks.",
)

def subsets(archs):
    """Lists the sets of archs that --@qola//:archs can select of a manifest's.

    Args:
      archs: the list.

    Returns:
      The non-empty subsets, each in the list's order.
    """
    found = [[]]
    for arch in archs:
        found = found + [subset + [arch] for subset in found]
    return found[1:]

# buildifier: disable=unnamed-macro
def by_archs(archs, value_of):
    """Selects a value by the archs that --@qola//:archs selects of a manifest's.

    Declares the conditions once per package.

    Args:
      archs: sorted archs of the manifest.
      value_of: function from the list of selected archs to the attribute value.

    Returns:
      The select.
    """
    name = "archs." + ".".join(archs)
    conditions = {name + ".on." + ".".join(selected): selected for selected in subsets(archs)}
    if native.existing_rule(name) == None:
        _selected_archs(name = name, archs = archs)
        for condition, selected in conditions.items():
            native.config_setting(name = condition, flag_values = {":" + name: " ".join(selected)})
    return select(
        {":" + condition: value_of(selected) for condition, selected in conditions.items()},
        no_match_error = "qola: --@qola//:archs names none of the manifest's archs: " + ", ".join(archs),
    )
