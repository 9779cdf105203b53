"""Restricting what a manifest builds to some of its archs: --@qola//:archs."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
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
    asked = ctx.build_setting_value
    unknown = [arch for arch in asked if arch not in KNOWN_ARCHS]
    if unknown:
        fail(finding(
            "unknown arch",
            place = "--@qola//:archs",
            found = ", ".join(unknown),
            expected = "archs that a manifest names, such as gfx942 or gfx950",
            fix = "--@qola//:archs=gfx942,gfx950, or none of it for all archs of the manifest",
        ))
    return [BuildSettingInfo(value = asked)]

archs_flag = rule(
    implementation = _archs_flag_impl,
    build_setting = config.string_list(flag = True),
    doc = "The archs to build for, out of those a manifest names; empty: all of these.",
)

def _archs_left_impl(ctx):
    asked = ctx.attr._asked[BuildSettingInfo].value
    left = [arch for arch in ctx.attr.archs if not asked or arch in asked]
    return [config_common.FeatureFlagInfo(value = " ".join(left))]

_archs_left = rule(
    implementation = _archs_left_impl,
    attrs = {
        "archs": attr.string_list(mandatory = True),
        "_asked": attr.label(default = Label("//:archs"), providers = [BuildSettingInfo]),
    },
    doc = "What --@qola//:archs leaves of some archs, with blanks between them.",
)

def subsets(archs):
    """The non-empty subsets of a list, each in its order.

    Args:
      archs: the list.

    Returns:
      A list of lists.
    """
    found = [[]]
    for arch in archs:
        found = found + [subset + [arch] for subset in found]
    return [subset for subset in found if subset]

def _conditions(archs):
    """Declares, once in a package, the conditions that by_archs selects on.

    Args:
      archs: archs of the manifest, sorted.

    Returns:
      A list of pairs: the archs that are left, the label of the condition.
    """
    name = "archs." + ".".join(archs)
    found = [(on, name + ".on." + ".".join(on)) for on in subsets(archs)]
    if native.existing_rule(name) == None:
        _archs_left(name = name, archs = archs)
        for on, condition in found:
            native.config_setting(
                name = condition,
                flag_values = {":" + name: " ".join(on)},
            )
    return [(on, ":" + condition) for on, condition in found]

# buildifier: disable=unnamed-macro
def by_archs(archs, value_of):
    """A select over what --@qola//:archs leaves of a manifest's archs.

    Args:
      archs: archs of the manifest, sorted.
      value_of: function(list of archs that are left) -> attribute value.

    Returns:
      The select; its error says that nothing is left.
    """
    return select(
        {condition: value_of(on) for on, condition in _conditions(archs)},
        no_match_error = "qola: --@qola//:archs names none of the archs that the manifest has: " + ", ".join(archs),
    )
