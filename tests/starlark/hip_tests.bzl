"""Analysis tests of rules_hip: command lines, errors, and the choice of GPU or emulator."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")
load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_binary", "cc_library", "cc_shared_library")
load("@rules_hip//hip:defs.bzl", "hip_code_object", "hip_library", "hip_test")
load("//rules:defs.bzl", "qola_cc_library")
load(":actions.bzl", "action_of", "archs_of", "has_all")
load(":refusal_tests.bzl", "make_refused_test", "refused_test")

_ARCHS = ["gfx942", "gfx950"]

def _in_order(env, argv, words):
    places = [argv.index(word) for word in words if word in argv]
    asserts.equals(env, len(words), len(places), "{} in {}".format(words, argv))
    asserts.equals(env, sorted(places), places, " ".join(argv))

def _argv_test_impl(ctx):
    """Prevents: a user's library with AITER's flags, one arch of several, a path of this machine, or no line tables."""
    env = analysistest.begin(ctx)
    action = action_of(env, "QolaCompile", "one.cu.pic.o")
    argv = action.argv
    _in_order(env, argv, ["-Xarch_device", "-gline-tables-only"])
    has_all(env, argv, ["-x", "-fPIC", "-fno-gpu-rdc", "-O2", "-DPUBLIC=1", "-DPRIVATE=1", "-Itests"])
    has_all(env, argv, ["-DBAZEL_CURRENT_REPOSITORY=\"\""])
    _in_order(env, argv, ["-std=c++20", "-std=c++17"])
    _in_order(env, argv, ["-Xarch_device", "-mllvm=-amdgpu-function-calls=true", "-Xarch_host", "-fno-exceptions"])

    # clang refuses an option with a separate value behind -Xarch_.
    _in_order(env, argv, ["-DON_DEVICE", "-includetwo.h"])
    asserts.equals(env, ["--offload-arch=gfx942", "--offload-arch=gfx950"], archs_of(argv))

    # A test sees the command line as with --experimental_output_paths=strip.
    _in_order(env, argv, ["-iquote", "bazel-out/cfg/bin", "-o"])
    for word in argv:
        asserts.false(env, "bazel-out/" in word and "bazel-out/cfg/" not in word, "a path of one configuration: " + word)
        asserts.false(env, word.startswith("/") or "=/" in word.replace("=//", "") or word in ["-mcmodel=large", "-Oz", "-DUSE_ROCM=1"], word)
    names = [file.basename for file in action.inputs.to_list()]
    has_all(env, names, ["one.cu", "two.h", "clang++"])
    return analysistest.end(env)

def _selected_test_impl(ctx):
    """Prevents: an arch that --@qola//:archs leaves out, or `-c dbg` without line tables."""
    env = analysistest.begin(ctx)
    argv = action_of(env, "QolaCompile", "one.cu.pic.o").argv
    asserts.equals(env, ["--offload-arch=gfx950"], archs_of(argv))
    has_all(env, argv, ["-g", "-DFROM_OPTION"])
    return analysistest.end(env)

def _all_copts_test_impl(ctx):
    """Prevents: a flag for all HIP sources that does not reach one, or beats the flags of the target."""
    env = analysistest.begin(ctx)
    argv = action_of(env, "QolaCompile", "one.cu.pic.o").argv
    _in_order(env, argv, ["-DFOR_BOTH=a,b", "-DFOR_DEVICE", "-DFOR_HOST", "-std=c++17"])
    return analysistest.end(env)

def _headers_test_impl(ctx):
    """Prevents: headers that dependents do not find by their prefix, or that they find although they must not."""
    env = analysistest.begin(ctx)
    info = analysistest.target_under_test(env)[CcInfo]
    headers = [file.short_path for file in info.compilation_context.headers.to_list()]
    has_all(env, headers, [
        "tests/starlark/_virtual_includes/headers_of_hip/mine/two.h",
        "tests/starlark/testdata/hip/list.def",
        # A public header may include it.
        "tests/starlark/testdata/hip/private.h",
    ])
    asserts.false(env, "tests/starlark/testdata/hip/hidden.h" in headers, "a header of an implementation_dep")
    asserts.false(env, "HIDDEN=1" in info.compilation_context.defines.to_list(), "a macro of an implementation_dep")
    compile = action_of(env, "QolaCompile", "one.cu.pic.o")
    has_all(env, compile.argv, ["-DHIDDEN=1"])
    has_all(env, [file.short_path for file in compile.inputs.to_list()], headers + ["tests/starlark/testdata/hip/hidden.h"])
    inputs = info.linking_context.linker_inputs.to_list()
    asserts.true(env, "hidden" in [input.owner.name for input in inputs], "an implementation_dep is not linked")
    (own,) = [input for input in inputs if input.owner.name == "headers_of_hip"]
    has_all(env, own.user_link_flags, ["-Wl,--version-script=tests/starlark/testdata/libmodule.exports"])
    has_all(env, [file.basename for file in own.additional_inputs], ["libmodule.exports"])
    return analysistest.end(env)

def _coverage_test_impl(ctx):
    """Prevents: `bazel coverage` that leaves out HIP sources and the libraries below them."""
    env = analysistest.begin(ctx)
    target = analysistest.target_under_test(env)
    sources = [file.basename for file in target[InstrumentedFilesInfo].instrumented_files.to_list()]
    has_all(env, sources, ["one.cu", "hidden.c"])
    argv = action_of(env, "QolaCompile", "one.cu.pic.o").argv
    sides = [argv[place - 1] for place, word in enumerate(argv) if word in ["-fprofile-instr-generate", "-fcoverage-mapping"]]
    asserts.equals(env, ["-Xarch_host"] * 2, sides, "no counters, or some in device code")
    return analysistest.end(env)

def _device_link_test_impl(ctx):
    """Prevents: device code of a dependency that is not linked."""
    env = analysistest.begin(ctx)
    action = action_of(env, "QolaDeviceLink", "device_link.pic.o")
    names = [file.basename for file in action.inputs.to_list()]
    has_all(env, names, ["relocatable.hip.pic.o", "llvm-nm", "clang++"])
    has_all(env, action.argv, ["-fgpu-rdc"])
    asserts.false(env, "hip" in action.argv, "objects are not HIP sources")
    return analysistest.end(env)

def _shared_test_impl(ctx):
    """Prevents: a cc_shared_library without the linked device code, or without HIP's runtime: undefined references."""
    env = analysistest.begin(ctx)
    names = [file.basename for file in action_of(env, "CppLink", "libshared_solver.so").inputs.to_list()]

    # Each is an archive, or with --start-lib an object.
    for part in ["relocatable", "solver", "device"]:
        asserts.true(env, any([part in name for name in names if name.endswith((".a", ".lo", ".o"))]), "{} in {}".format(part, names))
    has_all(env, names, ["libamdhip64.so"])
    return analysistest.end(env)

def _host_part_test_impl(ctx):
    """Prevents: C++ without kernels that is compiled for an arch of HIP's choice, or of --@qola//:archs."""
    env = analysistest.begin(ctx)
    argv = action_of(env, "QolaCompile", "host.cpp.pic.o").argv
    has_all(env, argv, ["hip", "--offload-host-only", "-DFROM_OPTION"])
    asserts.equals(env, [], archs_of(argv))
    return analysistest.end(env)

def _arch_of_host_part_test_impl(ctx):
    """Prevents: a qola_cc_library with kernels for an arch that --@qola//:archs leaves out."""
    env = analysistest.begin(ctx)
    argv = action_of(env, "QolaCompile", "host.cpp.pic.o").argv
    asserts.equals(env, ["--offload-arch=gfx950"], archs_of(argv))
    asserts.false(env, "--offload-host-only" in argv, "no device code")
    return analysistest.end(env)

def _one_configuration_test_impl(ctx):
    """Prevents: C compiled as HIP below a qola_cc_library, or a library linked once for it and once for its user."""
    env = analysistest.begin(ctx)
    inputs = action_of(env, "CppLink", "host_program").inputs.to_list()
    for name in ["plain", "host_part"]:
        found = [file for file in inputs if name in file.basename and file.basename.endswith((".a", ".lo", ".o"))]
        asserts.equals(env, [analysistest.target_bin_dir_path(env)], [file.root.path for file in found], name)
    return analysistest.end(env)

def _code_object_test_impl(ctx):
    """Prevents: a code object for several archs, or with host code."""
    env = analysistest.begin(ctx)
    for arch in _ARCHS:
        argv = action_of(env, "QolaCompile", arch + ".hsaco").argv
        asserts.equals(env, ["--offload-arch=" + arch], archs_of(argv))
        has_all(env, argv, ["--offload-device-only", "--no-gpu-bundle-output"])
    return analysistest.end(env)

def _program_test_impl(ctx):
    """Prevents: a test that runs on the emulator although a GPU was requested, or the other way."""
    env = analysistest.begin(ctx)
    scripts = [a for a in analysistest.target_actions(env) if a.mnemonic == "FileWrite" and "fake_hip" in a.content]
    asserts.equals(env, ctx.attr.emulated, bool(scripts))
    if scripts:
        asserts.true(env, "--arch gfx950" in scripts[0].content, scripts[0].content)
        asserts.equals(env, ctx.attr.checked, "--checked" in scripts[0].content)
    return analysistest.end(env)

_RUN = str(Label("@rules_hip//hip:run"))

_argv_test = analysistest.make(_argv_test_impl)
_SELECTED = {
    str(Label("//:archs")): ["gfx950"],
    "//command_line_option:compilation_mode": "dbg",
    "//command_line_option:copt": ["-DFROM_OPTION"],
}
_selected_test = analysistest.make(_selected_test_impl, config_settings = _SELECTED)
_all_copts_test = analysistest.make(_all_copts_test_impl, config_settings = {
    str(Label("@rules_hip//hip:" + name)): [flag]
    for name, flag in {"copts": "-DFOR_BOTH=a,b", "device_copts": "-DFOR_DEVICE", "host_copts": "-DFOR_HOST"}.items()
})
_host_part_test = analysistest.make(_host_part_test_impl, config_settings = _SELECTED)
_arch_of_host_part_test = analysistest.make(_arch_of_host_part_test_impl, config_settings = _SELECTED)
_one_configuration_test = analysistest.make(_one_configuration_test_impl)
_headers_test = analysistest.make(_headers_test_impl)
_coverage_test = analysistest.make(_coverage_test_impl, config_settings = {
    "//command_line_option:collect_code_coverage": True,
    # A clang as the toolchain of the build, and --experimental_use_llvm_covmap, which a test cannot set.
    "//command_line_option:extra_toolchains": [str(Label(":host_clang"))],
    "//command_line_option:features": ["llvm_coverage_map_format", "-gcc_coverage_map_format"],
})
_device_link_test = analysistest.make(_device_link_test_impl)
_shared_test = analysistest.make(_shared_test_impl)
_code_object_test = analysistest.make(_code_object_test_impl)
_EMULATED = {"checked": attr.bool(), "emulated": attr.bool()}
_emulated_program_test = analysistest.make(_program_test_impl, attrs = _EMULATED, config_settings = {_RUN: "emulated"})
_checked_program_test = analysistest.make(_program_test_impl, attrs = _EMULATED, config_settings = {
    _RUN: "emulated",
    str(Label("@rules_hip//hip:checked")): True,
})
_gpu_program_test = analysistest.make(_program_test_impl, attrs = _EMULATED, config_settings = {_RUN: "gpu"})

_unsanitized_by_flag_test = make_refused_test({str(Label("@rules_hip//hip:device_copts")): ["-fsanitize=address"]})

# By test: what is refused, and parts of the error.
_REFUSED = {
    # Prevents: a library without device code, because nobody named an arch.
    "hip_no_arch_test": (":no_arch", ["no archs to compile device code for", "//tests/starlark:no_arch: archs", "--@rules_hip//hip:archs=gfx942"]),
    # Prevents: a compiler's error for a misspelt arch, after the build began.
    "hip_unknown_arch_test": (":misspelt_arch", ["unknown arch", "found:    gfx924", "rocminfo"]),
    # Prevents: an emulator without code to run.
    "hip_not_emulated_test": (":emulated_on_gfx1250", ["no device code for an arch that can be emulated", "gfx1250"]),
    # Prevents: a target with headers only, which builds nothing without a word.
    "hip_no_source_test": (":no_source", ["no source to compile", "//tests/starlark:no_source: srcs", "two.h", ".hip, .cu"]),
    # Prevents: device code that is linked for an arch that a part of it lacks.
    "hip_other_archs_test": (":linked_for_more", ["libraries with rdc = True and different archs", ":relocatable for gfx942"]),
    # Prevents: a sanitizer that clang leaves out with a warning that nobody sees.
    "hip_unsanitized_test": (":unsanitized", ["device code that clang does not sanitize", "//tests/starlark:unsanitized: device_copts", "-fsanitize=address for gfx942", "gfx942:xnack+"]),
    # Prevents: a linker's error for a library of the sanitizer, or reports that nobody prints.
    "hip_sanitized_test": (":sanitized", ["address sanitizer for device code is not part of the pinned ROCm", "for gfx90a:xnack+", "--repo_env=QOLA_ROCM=/opt/rocm"]),
    # Prevents: a header that is not found, for a library that the pinned ROCm lacks.
    "hip_not_pinned_test": ("@rocm//:hipblaslt", ["hipblaslt is not part of the pinned ROCm", "--repo_env=QOLA_ROCM=/opt/rocm"]),
}

def hip_test_suite(name):
    """Declares targets and the tests of this file.

    Args:
      name: name of the test suite.
    """
    manual = dict(tags = ["manual"])
    hip_library(
        name = "hip_one",
        srcs = ["testdata/hip/one.cu", "testdata/hip/two.h"],
        archs = _ARCHS,
        copts = ["-std=c++17", "-Itests"],
        defines = ["PUBLIC=1"],
        device_copts = ["-mllvm", "-amdgpu-function-calls=true", "-D", "ON_DEVICE"],
        host_copts = ["-fno-exceptions", "-include", "two.h"],
        local_defines = ["PRIVATE=1"],
        **manual
    )
    hip_library(name = "relocatable", srcs = ["testdata/hip/relocatable.hip"], archs = ["gfx942"], rdc = True, **manual)
    hip_library(name = "device_linked", archs = ["gfx942"], deps = [":relocatable"], **manual)
    hip_library(name = "solver", srcs = ["testdata/hip/one.cu"], archs = ["gfx942"], deps = [":relocatable"], **manual)
    cc_shared_library(name = "shared_solver", deps = [":solver"], **manual)
    cc_library(name = "hidden", srcs = ["testdata/hip/hidden.c"], hdrs = ["testdata/hip/hidden.h"], defines = ["HIDDEN=1"], **manual)
    hip_library(
        name = "headers_of_hip",
        srcs = ["testdata/hip/one.cu", "testdata/hip/private.h"],
        hdrs = ["testdata/hip/two.h"],
        additional_linker_inputs = ["testdata/libmodule.exports"],
        archs = ["gfx942"],
        implementation_deps = [":hidden"],
        include_prefix = "mine",
        linkopts = ["-Wl,--version-script=$(location testdata/libmodule.exports)"],
        strip_include_prefix = "testdata/hip",
        textual_hdrs = ["testdata/hip/list.def"],
        **manual
    )
    cc_library(name = "plain", srcs = ["testdata/hip/plain.c"], alwayslink = True, **manual)
    qola_cc_library(name = "host_part", srcs = ["testdata/hip/host.cpp"], deps = [":ns_libmodule", ":plain"], **manual)
    qola_cc_library(name = "host_part_with_archs", srcs = ["testdata/hip/host.cpp"], archs = _ARCHS, **manual)
    cc_binary(name = "host_program", deps = [":host_part", ":plain"], **manual)
    hip_library(name = "linked_for_more", archs = _ARCHS, deps = [":relocatable"], **manual)
    hip_library(name = "no_arch", srcs = ["testdata/hip/relocatable.hip"], **manual)
    hip_library(name = "misspelt_arch", srcs = ["testdata/hip/relocatable.hip"], archs = ["gfx924"], **manual)
    hip_library(name = "unsanitized", srcs = ["testdata/hip/relocatable.hip"], archs = ["gfx942"], device_copts = ["-fsanitize=address"], **manual)
    hip_library(name = "sanitized", srcs = ["testdata/hip/relocatable.hip"], archs = ["gfx90a:xnack+"], copts = ["-g", "-fsanitize=undefined,address"], **manual)
    hip_code_object(name = "hip_code", srcs = ["testdata/hip/relocatable.hip"], archs = _ARCHS, **manual)
    hip_code_object(name = "no_source", srcs = ["testdata/hip/two.h"], archs = _ARCHS, **manual)

    # The emulator takes the first arch.
    hip_test(name = "on_gpu_or_emulated", srcs = ["testdata/hip/one.cu"], archs = reversed(_ARCHS), **manual)
    hip_test(name = "emulated_on_gfx1250", srcs = ["testdata/hip/one.cu"], archs = ["gfx1250"], emulated = True, **manual)
    tests = {
        "hip_arch_of_host_part_test": (_arch_of_host_part_test, ":host_part_with_archs", {}),
        "hip_all_copts_test": (_all_copts_test, ":hip_one", {}),
        "hip_argv_test": (_argv_test, ":hip_one", {}),
        "hip_coverage_test": (_coverage_test, ":headers_of_hip", {}),
        "hip_headers_test": (_headers_test, ":headers_of_hip", {}),
        "hip_checked_test": (_checked_program_test, ":on_gpu_or_emulated", {"checked": True, "emulated": True}),
        "hip_code_object_test": (_code_object_test, ":hip_code", {}),
        "hip_device_link_test": (_device_link_test, ":device_linked", {}),
        "hip_emulated_test": (_emulated_program_test, ":on_gpu_or_emulated", {"emulated": True}),
        "hip_host_part_test": (_host_part_test, ":host_part", {}),
        "hip_one_configuration_test": (_one_configuration_test, ":host_program", {}),
        "hip_on_gpu_test": (_gpu_program_test, ":on_gpu_or_emulated", {"emulated": False}),
        "hip_shared_test": (_shared_test, ":shared_solver", {}),
        "hip_selected_arch_test": (_selected_test, ":hip_one", {}),
    }
    for test, (rule, target, attributes) in tests.items():
        rule(name = test, size = "small", target_under_test = target, **attributes)
    for test, (target, parts) in _REFUSED.items():
        refused_test(name = test, size = "small", parts = parts, target_under_test = target)

    # Prevents: the same for a flag of all HIP sources, which no target shows.
    _unsanitized_by_flag_test(
        name = "hip_unsanitized_by_flag_test",
        size = "small",
        parts = ["device code that clang does not sanitize", "--@rules_hip//hip:device_copts"],
        target_under_test = ":hip_one",
    )
    native.test_suite(name = name, tests = tests.keys() + _REFUSED.keys() + ["hip_unsanitized_by_flag_test"])
