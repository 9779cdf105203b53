"""The archs that rules know, and the flag that selects some of them."""

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
    archs = ctx.build_setting_value
    unknown = [arch for arch in archs if arch not in KNOWN_ARCHS]
    if unknown:
        fail(finding(
            "unknown arch",
            place = "--@rules_hip//hip:archs",
            found = ", ".join(unknown),
            expected = "archs by their LLVM name, such as gfx942 or gfx950",
            fix = "--@rules_hip//hip:archs=gfx942,gfx950, of which --@qola//:archs is an alias; without the option all archs are built",
        ))
    return [BuildSettingInfo(value = archs)]

archs_flag = rule(
    implementation = _archs_flag_impl,
    build_setting = config.string_list(flag = True),
    doc = "Selects archs of HIP targets and of qola's manifests; empty: builds all archs.",
)
