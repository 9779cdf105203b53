"""hip_binary and hip_test: programs that run on a GPU, or on the fake HIP runtime with the emulator."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load("@rules_cc//cc:defs.bzl", "cc_binary")
load("//lib:finding.bzl", "finding")
load("//lib:program_script.bzl", "place_of", "program_script")
load(":hip_library.bzl", "HipInfo", "hip_library")

# As ARCHS of gfxemu/launch.py, which refuses others; tests/cli/test_cli.py compares them.
EMULATED_ARCHS = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]

def _emulated(ctx):
    archs = [arch.partition(":")[0] for arch in ctx.attr.library[HipInfo].archs]
    emulated = [arch for arch in archs if arch in EMULATED_ARCHS]
    if not emulated:
        fail(finding(
            "no device code for an arch that can be emulated",
            place = ctx.label,
            found = "device code for " + ", ".join(archs),
            expected = "one of " + ", ".join(EMULATED_ARCHS),
            fix = "add gfx942 to archs, or build it with --@rules_hip//hip:archs=gfx942",
        ))
    tool = ctx.attr._emulator[DefaultInfo]
    runtime = ctx.attr._runtime[DefaultInfo].files.to_list()[0]
    words = [place_of(ctx, tool.files_to_run.executable), "--runtime", place_of(ctx, runtime)]
    checked = ctx.attr.checked or ctx.attr._checked[BuildSettingInfo].value
    words += ["--arch", emulated[0]] + (["--checked"] if checked else []) + ["--", place_of(ctx, ctx.executable.program)]

    # Among the runfiles, so that no program starts before the check.
    files = [runtime, ctx.executable.program, _check_functions(ctx, runtime)]
    return program_script(ctx, words, files, [ctx.attr._emulator, ctx.attr.program])

def _check_functions(ctx, runtime):
    """Declares the check that the runtime has all functions that a program calls; returns its output."""
    checked = ctx.actions.declare_file(ctx.label.name + ".checked")
    args = ctx.actions.args()
    args.add("--runtime", runtime)
    args.add("--program", ctx.executable.program)
    args.add("--place", str(ctx.label))
    args.add_all(ctx.attr.unused_functions, before_each = "--unused")
    args.add("--output", checked)
    ctx.actions.run(
        arguments = [args],
        executable = ctx.executable._check_program,
        inputs = [runtime, ctx.executable.program],
        mnemonic = "QolaCheckProgram",
        outputs = [checked],
        progress_message = "Checking functions of HIP in %{label}",
        # The tool finds Python on it; with strict_action_env it is Bazel's own.
        use_default_shell_env = True,
    )
    return checked

def _hip_program_impl(ctx):
    if ctx.attr.emulated:
        providers = _emulated(ctx)
    else:
        program = ctx.actions.declare_file(ctx.label.name)
        ctx.actions.symlink(is_executable = True, output = program, target_file = ctx.executable.program)
        runfiles = ctx.runfiles([program]).merge(ctx.attr.program[DefaultInfo].default_runfiles)
        providers = [DefaultInfo(executable = program, runfiles = runfiles)]
    targets = ctx.attr.data
    environment = {name: ctx.expand_location(value, targets) for name, value in ctx.attr.env.items()}
    return providers + [
        coverage_common.instrumented_files_info(ctx, dependency_attributes = ["library", "program"]),
        RunEnvironmentInfo(environment = environment),
    ]

_RULE = dict(
    implementation = _hip_program_impl,
    attrs = {
        "checked": attr.bool(doc = "Whether the emulator also reports reads of memory that nothing wrote."),
        "data": attr.label_list(allow_files = True, doc = "For $(location ...) in `env`."),
        "emulated": attr.bool(doc = "Whether the program is a shared library for the emulator."),
        "env": attr.string_dict(doc = "Environment of the program."),
        "library": attr.label(mandatory = True, providers = [HipInfo]),
        "program": attr.label(cfg = "target", executable = True, mandatory = True),
        "unused_functions": attr.string_list(doc = "Functions of HIP that the program links and does not call."),
        "_checked": attr.label(default = "//hip:checked", providers = [BuildSettingInfo]),
        "_check_program": attr.label(cfg = "exec", default = "//gfxemu:check_program", executable = True),
        "_emulator": attr.label(cfg = "target", default = "//gfxemu:program", executable = True),
        "_runtime": attr.label(default = "//gfxemu/fake_hip"),
    },
    doc = "A program of the macros hip_binary and hip_test.",
)

_hip_program = rule(executable = True, **_RULE)
_hip_program_test = rule(
    test = True,
    **(_RULE | {"attrs": _RULE["attrs"] | {
        # By these names, `bazel coverage` collects what C++ wrote.
        "_collect_cc_coverage": attr.label(cfg = "exec", default = "@bazel_tools//tools/test:collect_cc_coverage", executable = True),
        "_lcov_merger": attr.label(cfg = "exec", default = configuration_field(fragment = "coverage", name = "output_generator"), executable = True),
    }})
)

# Attributes of the library with the sources; the others are those of the program.
_OF_LIBRARY = ["archs", "copts", "defines", "device_copts", "hdrs", "host_copts", "includes", "local_defines", "rdc", "srcs", "deps", "textual_hdrs"]
_OF_LINK = ["additional_linker_inputs", "features", "linkopts", "linkstatic", "malloc", "stamp"]

def _declare(name, rule, emulated, data, env, testonly, tags, target_compatible_with, visibility, attributes):
    own = dict(tags = tags + ["manual"], testonly = testonly, visibility = ["//visibility:private"])
    of_library = {key: attributes.pop(key) for key in _OF_LIBRARY if key in attributes}
    of_link = {key: attributes.pop(key) for key in _OF_LINK if key in attributes}
    library = name + ".library"

    # Line tables, which other modes have anyway.
    emulated_opt = Label("//hip:opt" if emulated else "//hip:run_emulated_opt")
    of_library["device_copts"] = of_library.get("device_copts", []) + select({
        emulated_opt: ["-gline-tables-only"],
        "//conditions:default": [],
    })
    hip_library(name = library, alwayslink = True, data = data, **(own | of_library))
    if of_library.get("rdc"):
        # Links its device code and that of its dependencies.
        hip_library(
            name = name + ".linked",
            archs = of_library.get("archs", []),
            deps = [library],
            **own
        )
        library = name + ".linked"
    cc_binary(name = name + ".program", deps = [library], **(own | of_link))
    cc_binary(name = name + ".emulated.so", linkshared = True, deps = [library], **(own | of_link))
    run_emulated = Label("//hip:run_emulated")
    rule(
        name = name,
        data = data,
        emulated = True if emulated else select({run_emulated: True, "//conditions:default": False}),
        env = env,
        library = library,
        program = name + ".emulated.so" if emulated else select({
            run_emulated: name + ".emulated.so",
            "//conditions:default": name + ".program",
        }),
        tags = tags,
        target_compatible_with = target_compatible_with,
        testonly = testonly,
        visibility = visibility,
        **attributes
    )

def hip_binary(name, emulated = False, data = [], env = {}, testonly = False, tags = [], target_compatible_with = [], visibility = None, **kwargs):
    """A program with HIP sources.

    `bazel run` runs it on this machine's GPU. With `emulated = True`, or with
    --@rules_hip//hip:run=emulated, the program runs on the fake HIP runtime with the
    emulator ([how](../guide/hip.md#without-a-gpu)), and `bazel-bin/<name>` is a script.

    Example:
        hip_binary(
            name = "saxpy",
            srcs = ["saxpy.hip"],
            archs = ["gfx942"],
        )

    Args:
      name: target name.
      emulated: whether it always runs on the emulator.
      data: files that it needs when it runs.
      env: environment variables for `bazel run` and `bazel test`.
      testonly: whether only tests may depend on it.
      tags: tags of the target.
      target_compatible_with: constraints on the platform.
      visibility: visibility of the target.
      **kwargs: srcs, hdrs, textual_hdrs, deps, archs, rdc, includes, defines, local_defines, copts,
        device_copts and host_copts as for hip_library; additional_linker_inputs, linkopts, malloc
        and features as for cc_binary; args; checked: whether the emulator also reports
        [reads of memory that nothing wrote](../guide/hip.md#faults-that-are-found);
        unused_functions: functions of HIP that the emulator's runtime lacks, and that the program
        links and never calls there.
    """
    _declare(name, _hip_program, emulated, data, env, testonly, tags, target_compatible_with, visibility, dict(kwargs))

def hip_test(name, emulated = False, data = [], env = {}, tags = [], target_compatible_with = [], visibility = None, **kwargs):
    """A test with HIP sources: it passes if its exit code is 0.

    It has the tag `gpu`, and runs if the platform has the constraint
    @rules_hip//hip:gpu, or with --@rules_hip//hip:run=gpu; else Bazel skips it. With
    `emulated = True`, or with --@rules_hip//hip:run=emulated, it runs everywhere, on
    the fake HIP runtime with the emulator ([how](../guide/hip.md#without-a-gpu)). It then also
    fails if a kernel makes an invalid memory access.

    Example:
        hip_test(
            name = "saxpy_test",
            srcs = ["saxpy_test.cpp"],
            archs = ["gfx942"],
            emulated = True,
            deps = [":saxpy"],
        )

    Args:
      name: target name.
      emulated: whether it always runs on the emulator.
      data: files that it needs when it runs.
      env: environment variables of the test.
      tags: tags of the target.
      target_compatible_with: constraints on the platform.
      visibility: visibility of the target.
      **kwargs: as for hip_binary, and attributes of tests: size, timeout, flaky, shard_count,
        exec_properties for workers with a GPU.
    """
    if not emulated:
        tags = tags + ["gpu"]
        target_compatible_with = target_compatible_with + select({
            Label("//hip:run_emulated"): [],
            Label("//hip:run_gpu"): [],
            "//conditions:default": [Label("//hip:gpu")],
        })
    attributes = {"testonly": True} | kwargs
    testonly = attributes.pop("testonly")
    _declare(name, _hip_program_test, emulated, data, env, testonly, tags, target_compatible_with, visibility, attributes)
