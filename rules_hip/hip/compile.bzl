"""How sources of hip_library and hip_code_object are compiled."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load("//lib:cc.bzl", "cc_features")
load("//lib:compile.bzl", "compile_hip", "own_hip_command")
load("//lib:finding.bzl", "finding")
load("//lib:settings.bzl", "KNOWN_ARCHS")
load("//rocm:compiler.bzl", "PINNED_COMPILER")
load(":toolchain.bzl", "HIP_TOOLCHAIN_TYPE")

SOURCES = [".hip", ".cu", ".cpp", ".cc", ".cxx"]
HEADERS = [".h", ".hpp", ".hh", ".hxx", ".cuh", ".hip.h", ".inc", ".inl", ".ipp"]

# By compilation mode. Device code of -O0 does not inline its functions: device_copts = ["-O0"] requests it.
_MODE = {
    "dbg": ["-g", "-Xarch_host", "-O0", "-Xarch_device", "-O1"],
    # The emulator names the line of a fault.
    "fastbuild": ["-O2", "-Xarch_device", "-gline-tables-only"],
    "opt": ["-O3", "-DNDEBUG"],
}

# Of rules that also declare use_hip_toolchain(): dependencies are built by the toolchain of the build.
COMPILE_ATTRS = {
    "archs": attr.string_list(doc = "Archs to compile device code for, such as gfx942 or gfx90a:xnack+, all in one object. `--@rules_hip//hip:archs` selects some of them; without the attribute, it names them."),
    "copts": attr.string_list(doc = "Compiler flags of host and device code. `$(location ...)` is expanded."),
    "defines": attr.string_list(doc = "Macros of these sources and of all that depend on them."),
    "device_copts": attr.string_list(doc = "Compiler flags of device code only."),
    "includes": attr.string_list(doc = "Include directories, relative to the package, of these sources and of all that depend on them."),
    "local_defines": attr.string_list(doc = "Macros of these sources only."),
    "_all_copts": attr.label(default = "//hip:copts", providers = [BuildSettingInfo]),
    "_all_device_copts": attr.label(default = "//hip:device_copts", providers = [BuildSettingInfo]),
    "_all_host_copts": attr.label(default = "//hip:host_copts", providers = [BuildSettingInfo]),
    "_archs": attr.label(default = "//hip:archs", providers = [BuildSettingInfo]),
}

def selected_archs(ctx):
    """Returns the archs of a target: of its attribute, of --@rules_hip//hip:archs, or of both.

    Args:
      ctx: context of a rule with COMPILE_ATTRS.

    Returns:
      List of strings, not empty.
    """
    flag = ctx.attr._archs[BuildSettingInfo].value
    place = "{}: archs".format(ctx.label)
    unknown = [arch for arch in ctx.attr.archs if arch.partition(":")[0] not in KNOWN_ARCHS]
    if unknown:
        fail(finding(
            "unknown arch",
            place = place,
            found = ", ".join(unknown),
            expected = "archs by their LLVM name, such as gfx942, gfx90a:xnack+ or gfx1201",
            fix = "correct it: `rocminfo | grep gfx` prints the archs of a machine",
        ))
    if not ctx.attr.archs and not flag:
        fail(finding(
            "no archs to compile device code for",
            place = place,
            found = "an empty list, and no --@rules_hip//hip:archs",
            expected = "the archs of the GPUs that the code runs on",
            fix = "archs = [\"gfx942\"] in the target, or in .bazelrc build --@rules_hip//hip:archs=gfx942, for which MODULE.bazel has bazel_dep(name = \"rules_hip\")",
        ))
    archs = [arch for arch in ctx.attr.archs if not flag or arch.partition(":")[0] in flag] if ctx.attr.archs else flag
    if not archs:
        fail(finding(
            "--@rules_hip//hip:archs names none of the target's archs",
            place = place,
            found = ", ".join(ctx.attr.archs),
            expected = "at least one of " + ", ".join(flag),
            fix = "add one of them to the target, or build it without this option",
        ))
    return archs

# Options that clang takes with a separate value, and their form with the value in the same argument.
_JOINED = {"--param": "--param=", "-mllvm": "-mllvm="} | {
    option: option
    for option in ["-D", "-I", "-U", "-idirafter", "-imacros", "-include", "-iquote", "-isystem"]
}

def _for(side, flags):
    """Returns flags of one side of a compile; -Xarch_ takes no option with a separate argument."""
    result = []
    for flag in flags:
        if result and result[-1] in _JOINED:
            result[-1] = _JOINED[result[-1]] + flag
        else:
            result += ["-Xarch_" + side, flag]
    return result

def _compile_flags(ctx):
    fragment = ctx.fragments.cpp
    targets = [
        target
        for name in ["srcs", "hdrs", "textual_hdrs", "deps", "implementation_deps", "data"]
        for target in getattr(ctx.attr, name, [])
    ]
    return (
        _MODE[ctx.var["COMPILATION_MODE"]] + fragment.copts + fragment.cxxopts +
        ctx.attr._all_copts[BuildSettingInfo].value +
        _for("device", ctx.attr._all_device_copts[BuildSettingInfo].value) +
        _for("host", ctx.attr._all_host_copts[BuildSettingInfo].value) +
        [ctx.expand_location(flag, targets) for flag in ctx.attr.copts] +
        _for("device", ctx.attr.device_copts) +
        _for("host", getattr(ctx.attr, "host_copts", []))
    )

def _sanitizes_addresses(flags):
    """Returns whether flags request the address sanitizer, for device code where clang has it."""
    sanitizers = [flag.partition("=")[2].split(",") for flag in flags if flag.startswith("-fsanitize=")]
    return bool([names for names in sanitizers if "address" in names]) and "-fno-gpu-sanitize" not in flags

def _check_sanitizer(ctx, archs, pinned):
    """Fails if device code would be sanitized, and cannot be."""
    fragment = ctx.fragments.cpp
    of_device = ctx.attr._all_device_copts[BuildSettingInfo].value + ctx.attr.device_copts
    ignored = [arch for arch in archs if not ":xnack+" in arch]
    if ignored and _sanitizes_addresses(of_device):
        fail(finding(
            "device code that clang does not sanitize",
            place = "{}: device_copts, its own or --@rules_hip//hip:device_copts".format(ctx.label),
            found = "-fsanitize=address for " + ", ".join(ignored),
            expected = "archs with xnack+: clang ignores the flag for others",
            fix = "archs = [\"{}:xnack+\"], or move the flag to host_copts".format(ignored[0].partition(":")[0]),
        ))
    sanitized = [arch for arch in archs if ":xnack+" in arch]
    flags = fragment.copts + fragment.cxxopts + ctx.attr._all_copts[BuildSettingInfo].value + ctx.attr.copts + of_device
    if pinned and sanitized and _sanitizes_addresses(flags):
        fail(finding(
            "the address sanitizer for device code is not part of the pinned ROCm",
            place = "{}: copts, device_copts or --copt".format(ctx.label),
            found = "-fsanitize=address for " + ", ".join(sanitized),
            expected = "a ROCm whose HIP runtime reports errors of the sanitizer, and which has clang's libclang_rt.asan",
            fix = "--repo_env=QOLA_ROCM=/opt/rocm with ROCm's packages for the address sanitizer; for host code only, host_copts; without a GPU, leave it out: the emulator reports accesses outside of allocations",
        ))

def rocm_features(ctx):
    """Returns cc_features of the ROCm toolchain, for a rule with COMPILE_ATTRS."""
    return cc_features(
        ctx,
        toolchain = ctx.toolchains[HIP_TOOLCHAIN_TYPE].compiler,
        type = HIP_TOOLCHAIN_TYPE,
        # Their flags are for host and device code.
        unsupported = ["coverage", "gcc_coverage_map_format", "llvm_coverage_map_format"],
    )

def hip_compiler(ctx, archs, copts, context):
    """Returns how a target's sources are compiled for some archs.

    Args:
      ctx: context of a rule with COMPILE_ATTRS and the fragment cpp.
      archs: list of strings, the archs.
      copts: flags in addition to those of the attributes.
      context: CompilationContext of the sources.

    Returns:
      Result of own_hip_command.
    """
    found = rocm_features(ctx)
    _check_sanitizer(ctx, archs, pinned = found.toolchain.compiler == PINNED_COMPILER)

    # Not in the context, since merged contexts have no local macros. The library that finds runfiles, whose header
    # requires the second one, is compiled like cc_library.
    defines = ctx.attr.local_defines + ["BAZEL_CURRENT_REPOSITORY=\"{}\"".format(ctx.label.workspace_name)]
    return own_hip_command(found, archs, ["-D" + define for define in defines] + _compile_flags(ctx) + copts, context)

def compile_source(ctx, command, src, end, more = ""):
    """Declares the compile of one source.

    Args:
      ctx: the rule context.
      command: result of hip_compiler.
      src: File, the source.
      end: end of the output's name, such as .pic.o.
      more: distinguishes outputs of one source.

    Returns:
      The output, a File.
    """
    path = src.short_path.removeprefix("../").removeprefix(ctx.label.package + "/")
    return compile_hip(
        ctx,
        command,
        src,
        ctx.actions.declare_file("_hip/{}/{}{}{}".format(ctx.label.name, path, more, end)),
        # One source may be in several libraries of a program.
        "{}//{}:{}/{}".format(ctx.label.workspace_name, ctx.label.package, ctx.label.name, path),
    )
