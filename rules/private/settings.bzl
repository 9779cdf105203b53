"""The flags --@qola//:<name>, and what rules select on them."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo", "string_flag")

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
    for name, flag in {"archs": "hip:archs", "compress": "kernels:compress", "hip_soname": "rocm:hip_soname"}.items():
        # Bazel sets a flag by its alias, too.
        native.alias(name = name, actual = Label("@rules_hip//" + flag))
    string_flag(name = "torch", build_setting_default = "rocm", values = ["cpu_check", "rocm"])

def _selected_archs_impl(ctx):
    selected = ctx.attr._archs[BuildSettingInfo].value
    return [config_common.FeatureFlagInfo(value = " ".join([arch for arch in ctx.attr.archs if not selected or arch in selected]))]

_selected_archs = rule(
    implementation = _selected_archs_impl,
    attrs = {
        "archs": attr.string_list(mandatory = True),
        "_archs": attr.label(default = Label("@rules_hip//hip:archs"), providers = [BuildSettingInfo]),
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
