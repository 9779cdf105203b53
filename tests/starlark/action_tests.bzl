"""Analysis tests on the command lines of kernel compiles and links."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")
load(":actions.bzl", "archs_of", "has_all")

_MNEMONICS = ["CppCompile", "CppLink", "QolaCompile"]

# What a kernel for gfx950 is compiled with.
_FLAGS = [
    "--offload-arch=gfx950",
    "-D__Float4_e2m1fn_x2",
    "-DFROM_MODULE=1",
    "-O3",
    "-Oz",
    "-fno-gpu-rdc",
    "-fvisibility=hidden",
    "-mcmodel=large",
    "-std=c++20",
    "-U__HIP_NO_HALF_CONVERSIONS__",
]

_EDGES = ["library", "linked", "deps", "srcs", "kernels", "_kernels"]

_ActionsInfo = provider(
    doc = "Command lines below a target.",
    fields = {"argvs": "depset of struct(mnemonic, argv, env, inputs, outputs)"},
)

def _names_a_place(flag):
    return flag.startswith("/") or "=/" in flag

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
    # Of objects that are linked: one target declares the compiles of all kernels, alone and in batches. Without those of
    # //runtime/older_systems and //runtime/api:launches, which are in each library.
    linked = _actions(env, "CppLink", "ns_libmodule.so").inputs
    return [
        action
        for action in analysistest.target_under_test(env)[_ActionsInfo].argvs.to_list()
        if action.mnemonic in ["CppCompile", "QolaCompile"] and action.outputs[0] in linked and
           not [word for word in action.argv if "runtime/older_systems/" in word or "runtime/api/" in word]
    ]

def _kernel_argv_test_impl(ctx):
    """Prevents: a kernel compiled for the wrong arch or without AITER's flags; objects that differ by machine."""
    env = analysistest.begin(ctx)
    batch = _actions(env, "QolaCompile", "/batch.pic.o")
    alone = _actions(env, "QolaCompile", "kernel_neutral.pic.o")
    for action in [batch, alone]:
        has_all(env, action.argv, _FLAGS)
        asserts.true(env, "PWD=/proc/self/cwd" in action.env, "absolute paths get into objects")
        asserts.true(env, any([path.endswith("/headers/tests/starlark/testdata/ck.hpp") for path in action.inputs]), "a changed header has to be noticed")
        for path in action.inputs:
            # In a clone and in a consumer alike, whatever manifest and tree.
            asserts.true(env, path.replace("+", "~").startswith(("../rules_hip~/", "../rules_hip~~hip~rocm_sdk/")), "another repository in a kernel's key: " + path)
        asserts.true(env, any([path.endswith("/sdk/libexec/clang") for path in action.inputs]), "the compiler is not an input")
        has_all(env, action.argv, ["--offload-compress", "--offload-compression-level=19"])
        asserts.true(env, "COMPRESSED_BUNDLE_FORMAT_VERSION=2" in action.env, "HIP before ROCm 7 cannot read the device code")
        for flag in action.argv:
            asserts.false(env, _names_a_place(flag), "a place on this machine: " + flag)
    asserts.equals(env, ["--offload-arch=gfx950"], archs_of(batch.argv))
    asserts.equals(env, ["--offload-arch=gfx942", "--offload-arch=gfx950"], archs_of(alone.argv))
    has_all(env, alone.argv, ["-cuid=kernel_neutral"])
    return analysistest.end(env)

def _batch_test_impl(ctx):
    """Prevents: a library with a kernel twice, in its batch and alone; a batch that does not notice an edited kernel."""
    env = analysistest.begin(ctx)
    batch = _actions(env, "QolaCompile", "/batch.pic.o")
    asserts.true(env, batch.argv[0].endswith("/compile_batch.sh"), "nobody says which kernel does not compile")
    has_all(env, batch.argv, ["-cuid=batch"])
    sources = ["../{}/kernels/sources/{}".format(Label("@rules_hip//kernels").workspace_name, name) for name in ["batches/batch.cpp", "kernel_gfx950.cpp", "kernel_more.cpp"]]
    asserts.equals(env, sources + ["--"], ["../" + word.partition("/external/")[2] for word in batch.argv[1:4]] + [batch.argv[4]])
    asserts.equals(env, "-c", batch.argv[-1], "the script adds the source")
    has_all(env, batch.inputs, sources)
    outputs = [action.outputs[0] for action in _compiles(env) if action.mnemonic == "QolaCompile"]
    asserts.equals(env, ["batch", "kernel_gfx942", "kernel_neutral"], sorted([path.rpartition("/")[2].removesuffix(".pic.o") for path in outputs]))
    return analysistest.end(env)

def _local_argv_test_impl(ctx):
    """Prevents: what an older compiler made, taken from a cache after an upgrade: a local one is not an input."""
    env = analysistest.begin(ctx)
    for mnemonic, output in [
        ("CppCompile", "entry_point"),
        ("QolaCompile", "/batch.pic.o"),
    ]:
        argv = _actions(env, mnemonic, output).argv
        asserts.true(env, "/no/such/rocm/bin/hipcc" in argv, str(argv[:3]))
        has_all(env, argv, ["-DQOLA_ROCM_IDENTITY=0123456789abcdef"])
    return analysistest.end(env)

def _uncompressed_test_impl(ctx):
    """Prevents: --@qola//:compress=false that is without effect."""
    env = analysistest.begin(ctx)
    asserts.false(env, "--offload-compress" in _actions(env, "QolaCompile", "/batch.pic.o").argv, "compressed")
    return analysistest.end(env)

def _no_leak_test_impl(ctx):
    """Prevents: a consumer's options reach kernels (that their keys stay the same: e2e)."""
    env = analysistest.begin(ctx)
    for action in [
        _actions(env, "QolaCompile", "/batch.pic.o"),
        _actions(env, "QolaCompile", "kernel_gfx942.pic.o"),
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

def _hip_soname_test_impl(ctx):
    """Prevents: --@qola//:hip_soname that links the other runtime, or that compiles kernels again."""
    env = analysistest.begin(ctx)
    link = _actions(env, "CppLink", "ns_libmodule.so")
    renamed = [path for path in link.inputs if path.endswith("rocm/renamed_hip/libamdhip64.so")]
    asserts.equals(env, 1, len(renamed), "the renamed runtime is not linked")
    asserts.true(env, [flag for flag in link.argv if flag.endswith("/rocm/renamed_hip/libamdhip64.so")] != [], str(link.argv))
    asserts.false(env, "-lamdhip64" in link.argv, "both runtimes")
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
    """Prevents: a library for all archs whose entry points know of one or are slow, or with a dispatch per arch."""
    env = analysistest.begin(ctx)
    compiles = _compiles(env)
    asserts.equals(env, 5, len(compiles), "two kernels, a batch, dispatch and entry point")
    entry = _actions(env, "CppCompile", "entry_point").argv
    has_all(env, entry, ["-DQOLA_ARCHS=gfx942,gfx950", "-Os"])
    return analysistest.end(env)

_ARCHS = str(Label("//:archs"))
_ATTRS = {"extra_target_under_test_aspects": [_collect_actions]}

_COMPRESS = str(Label("//:compress"))

_kernel_argv_test = analysistest.make(_kernel_argv_test_impl, **_ATTRS)
_batch_test = analysistest.make(_batch_test_impl, **_ATTRS)
_uncompressed_test = analysistest.make(
    _uncompressed_test_impl,
    config_settings = {_COMPRESS: False},
    **_ATTRS
)
_local_argv_test = analysistest.make(
    _local_argv_test_impl,
    config_settings = {str(Label("@rules_hip//rocm:toolchain")): str(Label(":local_rocm"))},
    **_ATTRS
)
_link_argv_test = analysistest.make(_link_argv_test_impl, **_ATTRS)
_unrestricted_test = analysistest.make(_unrestricted_test_impl, **_ATTRS)
_hip_soname_test = analysistest.make(
    _hip_soname_test_impl,
    config_settings = {str(Label("//:hip_soname")): "libamdhip64.so.8"},
    **_ATTRS
)
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
        "batch_test": _batch_test,
        "hip_soname_test": _hip_soname_test,
        "kernel_argv_test": _kernel_argv_test,
        "link_argv_test": _link_argv_test,
        "local_argv_test": _local_argv_test,
        "no_leak_test": _no_leak_test,
        "uncompressed_test": _uncompressed_test,
        "restricted_test": _restricted_test,
        "unrestricted_test": _unrestricted_test,
    }
    for test, rule in tests.items():
        rule(name = test, size = "small", target_under_test = ":ns_libmodule")
    native.test_suite(name = name, tests = tests.keys())
