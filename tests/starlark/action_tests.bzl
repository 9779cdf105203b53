"""Analysis tests on the command lines of kernel compiles and links."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")
load(":actions.bzl", "archs_of", "has_all")

_MNEMONICS = ["CppCompile", "CppLink", "QolaCompile", "QolaDevice", "QolaHost", "QolaPch"]

# What a kernel for gfx950 is compiled with, whatever the pass.
_FLAGS = [
    "--offload-arch=gfx950",
    "-D__Float4_e2m1fn_x2",
    "-DFROM_MODULE=1",
    "-O3",
    "-fno-gpu-rdc",
    "-fvisibility=hidden",
    "-mcmodel=large",
    "-std=c++20",
    "-U__HIP_NO_HALF_CONVERSIONS__",
]

_EDGES = ["library", "deps", "srcs", "device", "host"]

_ActionsInfo = provider(
    doc = "Command lines below a target.",
    fields = {"argvs": "depset of struct(mnemonic, argv, env, inputs, outputs)"},
)

# What a precompiled header's absolute paths begin with, mapped away: a place on every machine.
_EVERYWHERE = "-fmacro-prefix-map=/proc/self/cwd/="

def _names_a_place(flag):
    return flag != _EVERYWHERE and (flag.startswith("/") or "=/" in flag)

def _collect_actions_impl(target, ctx):
    own = [
        struct(
            argv = tuple(action.argv or []),
            env = tuple(sorted(["{}={}".format(k, v) for k, v in action.env.items()])),
            inputs = tuple([f.short_path for f in action.inputs.to_list()]),
            mnemonic = action.mnemonic,
            outputs = tuple([f.short_path for f in action.outputs.to_list()]),
        )
        for action in target.actions
        if action.mnemonic in _MNEMONICS
    ]
    below = []
    for name in _EDGES:
        value = getattr(ctx.rule.attr, name, None) or []
        for dep in value if type(value) == "list" else [value]:
            if _ActionsInfo in dep:
                below.append(dep[_ActionsInfo].argvs)
    return [_ActionsInfo(argvs = depset(own, transitive = below))]

_collect_actions = aspect(
    implementation = _collect_actions_impl,
    attr_aspects = _EDGES,
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

def _compiles(env):
    # Without those of //cc/older_systems, which are in each library.
    return [
        action
        for action in analysistest.target_under_test(env)[_ActionsInfo].argvs.to_list()
        if action.mnemonic in ["CppCompile", "QolaHost"] and
           not [word for word in action.argv if "cc/older_systems/" in word]
    ]

def _kernel_argv_test_impl(ctx):
    """Prevents: a kernel is compiled for the wrong arch, without AITER's flags, or with a path in its id."""
    env = analysistest.begin(ctx)
    argv = _actions(env, "QolaCompile", "kernel_gfx950").argv
    has_all(env, argv, _FLAGS + ["-cuid=testdata/kernel_gfx950"])
    asserts.equals(env, ["--offload-arch=gfx950"], archs_of(argv))
    for flag in argv:
        asserts.false(env, _names_a_place(flag), "a place on this machine: " + flag)
    neutral = _actions(env, "QolaCompile", "kernel_neutral").argv
    asserts.equals(env, ["--offload-arch=gfx942", "--offload-arch=gfx950"], archs_of(neutral))
    return analysistest.end(env)

def _local_argv_test_impl(ctx):
    """Prevents: what an older compiler made, taken from a cache after an upgrade: a local one is not an input."""
    env = analysistest.begin(ctx)
    for mnemonic, output in [
        ("CppCompile", "entry_point"),
        ("QolaDevice", "kernel_gfx950.gfx950.co"),
        ("QolaPch", "pass/gfx950/family.pch"),
        ("QolaHost", "kernel_gfx950.pic.o"),
    ]:
        argv = _actions(env, mnemonic, output).argv
        asserts.true(env, "/no/such/rocm/bin/hipcc" in argv, str(argv[:3]))
        has_all(env, argv, ["-DQOLA_ROCM_IDENTITY=0123456789abcdef"])
    return analysistest.end(env)

def _passes_argv_test_impl(ctx):
    """Prevents: a pass for another arch or with other flags than its precompiled header, or objects that differ by machine."""
    env = analysistest.begin(ctx)
    device = _actions(env, "QolaDevice", "kernel_gfx950.gfx950.co")
    warm = _actions(env, "QolaPch", "pass/gfx950/family.pch")
    host = _actions(env, "QolaHost", "kernel_gfx950.pic.o")
    header = _actions(env, "QolaPch", "pass/host_gfx950.pch")
    for action in [device, warm, host, header]:
        has_all(env, action.argv, _FLAGS)
        asserts.equals(env, ["--offload-arch=gfx950"], archs_of(action.argv))
        asserts.true(env, "PWD=/proc/self/cwd" in action.env, "absolute paths get into a precompiled header")
        asserts.true(env, "tests/starlark/testdata/ck.hpp" in action.inputs, "a changed header has to be noticed")
        for flag in action.argv:
            asserts.false(env, _names_a_place(flag), "a place on this machine: " + flag)
        asserts.true(env, any([path.endswith("/sdk/libexec/clang") for path in action.inputs]), "the compiler is not an input")
    for action in [device, host]:
        has_all(env, action.argv, ["-cuid=testdata/kernel_gfx950", "-include-pch"])
    for action in [warm, header]:
        has_all(env, action.argv, ["-emit-pch", "-fno-pch-timestamp"])
    asserts.true(env, "-include-pch" in warm.argv, "the headers are parsed again for each family")
    for action in [device, warm]:
        asserts.true(env, any([path.endswith("/pass/gfx950.pch") for path in action.inputs]), "the header that the family's is based on")
        has_all(env, action.argv, ["--cuda-device-only", "--no-gpu-bundle-output"])
    for action in [host, header]:
        has_all(env, action.argv, ["--cuda-host-only"])
    asserts.true(env, "-fpch-instantiate-templates" in warm.argv, "nothing is warm")
    asserts.false(env, "-fpch-instantiate-templates" in header.argv, "there is nothing to instantiate")
    return analysistest.end(env)

def _passes_of_archs_test_impl(ctx):
    """Prevents: an arch that is missing in an object, or one whose code object depends on the archs beside it."""
    env = analysistest.begin(ctx)
    bundle = _actions(env, "QolaHost", "kernel_neutral.pic.o")
    has_all(env, bundle.argv, ["-targets=host-x86_64-unknown-linux-gnu,hipv4-amdgcn-amd-amdhsa--gfx942,hipv4-amdgcn-amd-amdhsa--gfx950"])
    inputs = [flag for flag in bundle.argv if flag.startswith("-input=")]
    asserts.equals(env, ["gfx942.co", "gfx950.co"], [flag.split(".", 1)[1].rpartition("kernel_neutral.")[2] for flag in inputs])
    asserts.equals(env, ["--offload-arch=gfx942", "--offload-arch=gfx950"], archs_of(bundle.argv))
    for arch in ["gfx942", "gfx950"]:
        device = _actions(env, "QolaDevice", "kernel_neutral.{}.co".format(arch))
        asserts.equals(env, ["--offload-arch=" + arch], archs_of(device.argv))
        asserts.equals(env, arch == "gfx950", "-D__Float4_e2m1fn_x2" in device.argv)
        asserts.true(env, any([i.endswith("pass/{}.pch".format(arch)) for i in device.inputs]), "the header of the arch")
    asserts.false(env, "-compress" in bundle.argv, "compressed without being asked to")
    return analysistest.end(env)

def _compress_test_impl(ctx):
    """Prevents: --@qola//:compress that is without effect, or reaches more than the bundling."""
    env = analysistest.begin(ctx)
    host = _actions(env, "QolaHost", "kernel_gfx950.pic.o")
    asserts.true(env, "-compress" in host.argv, "not compressed")
    device = _actions(env, "QolaDevice", "kernel_gfx950.gfx950.co")
    asserts.false(env, "-compress" in device.argv, "a code object would be compiled once more")
    return analysistest.end(env)

def _no_leak_test_impl(ctx):
    """Prevents: a consumer's options reach kernels (that their keys stay the same: e2e)."""
    env = analysistest.begin(ctx)
    for action in [
        _actions(env, "QolaDevice", "kernel_gfx950.gfx950.co"),
        _actions(env, "QolaHost", "kernel_gfx950.pic.o"),
        _actions(env, "QolaPch", "pass/gfx950/family.pch"),
        _actions(env, "CppCompile", "entry_point"),
        _actions(env, "CppLink", "ns_libmodule.so"),
    ]:
        asserts.false(env, "/no/such/rocm" in action.argv[0], "another compiler: " + action.argv[0])
        for leaked in ["-DLEAK", "-g", "-O0", "-Wl,--leak", "-fprofile-arcs", "-fsanitize=address"]:
            asserts.false(env, leaked in action.argv, "{} leaked into {}".format(leaked, " ".join(action.argv)))
        for entry in action.env:
            asserts.false(env, "LEAK" in entry, entry)
    return analysistest.end(env)

def _link_argv_test_impl(ctx):
    """Prevents: a library that exports more than its namespace, or loads with undefined symbols."""
    env = analysistest.begin(ctx)
    argv = _actions(env, "CppLink", "ns_libmodule.so").argv
    has_all(env, argv, [
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

def _restricted_test_impl(ctx):
    """Prevents: --@qola//:archs that compiles, links or dispatches to what it leaves out."""
    env = analysistest.begin(ctx)
    compiles = _compiles(env)
    asserts.equals(env, 4, len(compiles), "kernel, neutral kernel, dispatch and entry point")
    for action in compiles:
        asserts.equals(env, ["--offload-arch=gfx942"], archs_of(action.argv))
        asserts.false(env, "-D__Float4_e2m1fn_x2" in action.argv, "a define of gfx950")
    entry = _actions(env, "CppCompile", "libmodule.gfx942.entry_point").argv
    has_all(env, entry, ["-DQOLA_ARCHS=gfx942"])
    return analysistest.end(env)

def _unrestricted_test_impl(ctx):
    """Prevents: a library for all archs whose entry points know of one, or with a dispatch per arch."""
    env = analysistest.begin(ctx)
    compiles = _compiles(env)
    asserts.equals(env, 5, len(compiles), "three kernels, dispatch and entry point")
    entry = _actions(env, "CppCompile", "entry_point").argv
    has_all(env, entry, ["-DQOLA_ARCHS=gfx942,gfx950"])
    return analysistest.end(env)

_ARCHS = str(Label("//:archs"))
_ATTRS = {"extra_target_under_test_aspects": [_collect_actions]}

_SPLIT_COMPILE = str(Label("//:split_compile"))
_COMPRESS = str(Label("//:compress"))

_kernel_argv_test = analysistest.make(
    _kernel_argv_test_impl,
    config_settings = {_SPLIT_COMPILE: False},
    **_ATTRS
)
_passes_argv_test = analysistest.make(_passes_argv_test_impl, **_ATTRS)
_passes_of_archs_test = analysistest.make(_passes_of_archs_test_impl, **_ATTRS)
_compress_test = analysistest.make(
    _compress_test_impl,
    config_settings = {_COMPRESS: True},
    **_ATTRS
)
_local_argv_test = analysistest.make(
    _local_argv_test_impl,
    config_settings = {str(Label("//rules/rocm:toolchain")): str(Label(":local_rocm"))},
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
        "//command_line_option:extra_toolchains": [str(Label(":local_rocm"))],
        "//command_line_option:features": ["asan"],
        "//command_line_option:linkopt": ["-Wl,--leak"],
    },
    **_ATTRS
)

def action_test_suite(name):
    """Declares the tests of this file.

    Args:
      name: name of the test suite.
    """
    tests = {
        "kernel_argv_test": _kernel_argv_test,
        "link_argv_test": _link_argv_test,
        "local_argv_test": _local_argv_test,
        "no_leak_test": _no_leak_test,
        "compress_test": _compress_test,
        "passes_argv_test": _passes_argv_test,
        "passes_of_archs_test": _passes_of_archs_test,
        "restricted_test": _restricted_test,
        "unrestricted_test": _unrestricted_test,
    }
    for test, rule in tests.items():
        rule(name = test, size = "small", target_under_test = ":ns_libmodule")
    native.test_suite(name = name, tests = tests.keys())
