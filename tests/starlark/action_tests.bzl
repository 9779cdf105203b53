"""Analysis tests on the command lines of kernel compiles and links."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")

_ActionsInfo = provider(
    doc = "Command lines below a target.",
    fields = {"argvs": "depset of struct(mnemonic, argv, env, outputs)"},
)

def _collect_actions_impl(target, ctx):
    own = [
        struct(
            argv = tuple(action.argv or []),
            env = tuple(sorted(["{}={}".format(k, v) for k, v in action.env.items()])),
            mnemonic = action.mnemonic,
            outputs = tuple([f.short_path for f in action.outputs.to_list()]),
        )
        for action in target.actions
        if action.mnemonic in ["CppCompile", "CppLink"]
    ]
    below = []
    for name in ["library", "deps"]:
        value = getattr(ctx.rule.attr, name, None) or []
        for dep in value if type(value) == "list" else [value]:
            if _ActionsInfo in dep:
                below.append(dep[_ActionsInfo].argvs)
    return [_ActionsInfo(argvs = depset(own, transitive = below))]

_collect_actions = aspect(
    implementation = _collect_actions_impl,
    attr_aspects = ["library", "deps"],
)

def _actions(env, mnemonic, output_part):
    target = analysistest.target_under_test(env)
    found = [
        action
        for action in target[_ActionsInfo].argvs.to_list()
        if action.mnemonic == mnemonic and any([output_part in output for output in action.outputs])
    ]
    asserts.equals(env, 1, len(found), "actions {} for {}".format(mnemonic, output_part))
    return found[0]

def _has_all(env, argv, flags):
    for flag in flags:
        asserts.true(env, flag in argv, "{} is missing in {}".format(flag, " ".join(argv)))

def _kernel_argv_test_impl(ctx):
    """Prevents: a kernel is compiled for the wrong arch, without AITER's flags, or with a path in its id."""
    env = analysistest.begin(ctx)
    argv = _actions(env, "CppCompile", "kernel_gfx950").argv
    _has_all(env, argv, [
        "--offload-arch=gfx950",
        "-D__Float4_e2m1fn_x2",
        "-DFROM_MODULE=1",
        "-O3",
        "-cuid=testdata/kernel_gfx950",
        "-fno-gpu-rdc",
        "-fvisibility=hidden",
        "-mcmodel=large",
        "-std=c++20",
        "-U__HIP_NO_HALF_CONVERSIONS__",
    ])
    archs = [flag for flag in argv if flag.startswith("--offload-arch")]
    asserts.equals(env, ["--offload-arch=gfx950"], archs)
    for flag in argv:
        asserts.false(env, flag.startswith("/") or "=/" in flag, "a place on this machine: " + flag)
    neutral = _actions(env, "CppCompile", "kernel_neutral").argv
    archs = [flag for flag in neutral if flag.startswith("--offload-arch")]
    asserts.equals(env, ["--offload-arch=gfx942", "--offload-arch=gfx950"], archs)
    return analysistest.end(env)

def _local_argv_test_impl(ctx):
    """Prevents: what an older compiler made, taken from a cache after an upgrade: a local one is no input."""
    env = analysistest.begin(ctx)
    argv = _actions(env, "CppCompile", "kernel_gfx950").argv
    asserts.equals(env, "/no/such/rocm/bin/hipcc", argv[0])
    _has_all(env, argv, ["-DQOLA_ROCM_IDENTITY=0123456789abcdef"])
    return analysistest.end(env)

def _no_leak_test_impl(ctx):
    """Prevents: a consumer's options reach kernels (that their keys stay the same: e2e)."""
    env = analysistest.begin(ctx)
    for action in [
        _actions(env, "CppCompile", "kernel_gfx950"),
        _actions(env, "CppLink", "ns_libmodule.so"),
    ]:
        for leaked in ["-DLEAK", "-g", "-O0", "-Wl,--leak", "-fprofile-arcs", "-fsanitize=address"]:
            asserts.false(env, leaked in action.argv, "{} leaked into {}".format(leaked, " ".join(action.argv)))
        for entry in action.env:
            asserts.false(env, "LEAK" in entry, entry)
    return analysistest.end(env)

def _link_argv_test_impl(ctx):
    """Prevents: a library that exports more than its namespace, or loads with undefined symbols."""
    env = analysistest.begin(ctx)
    argv = _actions(env, "CppLink", "ns_libmodule.so").argv
    _has_all(env, argv, [
        "-shared",
        "-fuse-ld=lld",
        "-Wl,-z,defs",
        "-Wl,--gc-sections",
        "-Wl,-soname,ns_libmodule.so",
        "-lamdhip64",
    ])
    scripts = [flag for flag in argv if flag.startswith("-Wl,--version-script=")]
    asserts.equals(env, ["-Wl,--version-script=tests/starlark/testdata/libmodule.exports"], scripts)

    # Without it no exception is ever caught in the library.
    asserts.true(env, "-Wl,-T,rules/private/large_code.ld" in argv, "functions on both sides of .eh_frame_hdr")
    return analysistest.end(env)

def _archs_of(argv):
    return [flag for flag in argv if flag.startswith("--offload-arch")]

def _restricted_test_impl(ctx):
    """Prevents: --@qola//:archs that compiles, links or dispatches to what it leaves out."""
    env = analysistest.begin(ctx)
    target = analysistest.target_under_test(env)
    compiles = [a for a in target[_ActionsInfo].argvs.to_list() if a.mnemonic == "CppCompile"]
    asserts.equals(env, 4, len(compiles), "kernel, neutral kernel, dispatch and entry point")
    for action in compiles:
        asserts.equals(env, ["--offload-arch=gfx942"], _archs_of(action.argv))
        asserts.false(env, "-D__Float4_e2m1fn_x2" in action.argv, "a define of gfx950")
    entry = _actions(env, "CppCompile", "libmodule.gfx942.entry_point").argv
    _has_all(env, entry, ["-DQOLA_ARCHS=gfx942"])
    return analysistest.end(env)

def _unrestricted_test_impl(ctx):
    """Prevents: a library for all archs whose entry points know of one, or with a dispatch per arch."""
    env = analysistest.begin(ctx)
    target = analysistest.target_under_test(env)
    compiles = [a for a in target[_ActionsInfo].argvs.to_list() if a.mnemonic == "CppCompile"]
    asserts.equals(env, 5, len(compiles), "three kernels, dispatch and entry point")
    entry = _actions(env, "CppCompile", "entry_point").argv
    _has_all(env, entry, ["-DQOLA_ARCHS=gfx942,gfx950"])
    return analysistest.end(env)

_ARCHS = str(Label("//:archs"))
_ATTRS = {"extra_target_under_test_aspects": [_collect_actions]}

_kernel_argv_test = analysistest.make(_kernel_argv_test_impl, **_ATTRS)
_local_argv_test = analysistest.make(
    _local_argv_test_impl,
    config_settings = {"//command_line_option:extra_toolchains": [str(Label(":local_rocm"))]},
    **_ATTRS
)
_link_argv_test = analysistest.make(_link_argv_test_impl, **_ATTRS)
_unrestricted_test = analysistest.make(_unrestricted_test_impl, **_ATTRS)
_restricted_test = analysistest.make(
    _restricted_test_impl,
    config_settings = {_ARCHS: ["gfx942"]},
    **_ATTRS
)
_no_leak_test = analysistest.make(
    _no_leak_test_impl,
    config_settings = {
        "//command_line_option:action_env": ["LEAK=1"],
        "//command_line_option:collect_code_coverage": True,
        "//command_line_option:compilation_mode": "dbg",
        "//command_line_option:copt": ["-DLEAK"],
        "//command_line_option:cxxopt": ["-DLEAK"],
        "//command_line_option:features": ["asan"],
        "//command_line_option:linkopt": ["-Wl,--leak"],
    },
    **_ATTRS
)

def action_test_suite(name, library):
    """Declares the tests of this file.

    Args:
      name: name of the test suite.
      library: a qola_library over a kernel and a dispatch.
    """
    tests = {
        "kernel_argv_test": _kernel_argv_test,
        "link_argv_test": _link_argv_test,
        "local_argv_test": _local_argv_test,
        "no_leak_test": _no_leak_test,
        "restricted_test": _restricted_test,
        "unrestricted_test": _unrestricted_test,
    }
    for test, rule in tests.items():
        rule(name = test, size = "small", target_under_test = library)
    native.test_suite(name = name, tests = tests.keys())
