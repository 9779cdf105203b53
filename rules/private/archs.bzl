"""Restricting what a manifest builds to some of its archs: --@qola//:archs."""

load("@bazel_skylib//lib:selects.bzl", "selects")
load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load(":finding.bzl", "finding")

# As SUPPORTED_ARCHS in qola/manifest/fields.py; tests/python/repository/test_build_files.py compares them.
SUPPORTED_ARCHS = ["gfx942", "gfx950"]

def _archs_flag_impl(ctx):
    asked = ctx.build_setting_value
    unknown = [arch for arch in asked if arch not in SUPPORTED_ARCHS]
    if unknown:
        fail(finding(
            "unknown arch",
            place = "--@qola//:archs",
            found = ", ".join(unknown),
            expected = "archs out of " + ", ".join(SUPPORTED_ARCHS),
            fix = "--@qola//:archs={}, or none of it for all archs of the manifest".format(",".join(SUPPORTED_ARCHS)),
        ))
    return [BuildSettingInfo(value = asked)]

archs_flag = rule(
    implementation = _archs_flag_impl,
    build_setting = config.string_list(flag = True),
    doc = "The archs to build for, out of those a manifest names; empty: all of these.",
)

def _arch_enabled_impl(ctx):
    asked = ctx.attr.archs[BuildSettingInfo].value
    enabled = not asked or ctx.attr.arch in asked
    return [config_common.FeatureFlagInfo(value = "yes" if enabled else "no")]

_arch_enabled = rule(
    implementation = _arch_enabled_impl,
    attrs = {
        "arch": attr.string(mandatory = True),
        "archs": attr.label(mandatory = True, providers = [BuildSettingInfo]),
    },
    doc = "Whether the build setting `archs` leaves an arch in: yes or no.",
)

def _subsets(archs):
    """The non-empty subsets of a list, each in its order."""
    found = [[]]
    for arch in archs:
        found = found + [subset + [arch] for subset in found]
    return [subset for subset in found if subset]

def _setting(name, archs, on):
    off = [arch for arch in archs if arch not in on]
    return name + "_" + "_".join(on) + ("_without_" + "_".join(off) if off else "")

def arch_settings(name, archs):
    """Declares the conditions that by_archs selects on.

    Args:
      name: what their names begin with: archs, which is what by_archs expects.
      archs: label of the archs_flag.
    """
    for arch in SUPPORTED_ARCHS:
        _arch_enabled(name = arch + "_enabled", arch = arch, archs = archs)
        for word, value in {"off": "no", "on": "yes"}.items():
            native.config_setting(
                name = arch + "_" + word,
                flag_values = {":{}_enabled".format(arch): value},
            )
    for manifest in _subsets(SUPPORTED_ARCHS):
        for on in _subsets(manifest):
            selects.config_setting_group(
                name = _setting(name, manifest, on),
                match_all = [
                    ":{}_{}".format(arch, "on" if arch in on else "off")
                    for arch in manifest
                ],
                visibility = ["//visibility:public"],
            )

def by_archs(archs, value_of):
    """A select over what --@qola//:archs leaves of a manifest's archs.

    Args:
      archs: archs of the manifest, sorted.
      value_of: function(list of archs that are left) -> attribute value.

    Returns:
      The select; its error says that nothing is left.
    """
    return select(
        {
            Label("//rules/private:" + _setting("archs", archs, on)): value_of(on)
            for on in _subsets(archs)
        },
        no_match_error = "qola: --@qola//:archs names none of the archs that the manifest has: " + ", ".join(archs),
    )
