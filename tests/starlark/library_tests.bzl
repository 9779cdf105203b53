"""Analysis tests of lazy libraries, archives and bundles: what is compiled, linked and packed."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")
load(":actions.bzl", "action_of", "archs_of", "has_all", "objects_of")

def _kernel_library_test_impl(ctx):
    """Prevents: a kernel library for another arch, without its kernel, or one that another takes the place of."""
    env = analysistest.begin(ctx)
    compile = action_of(env, "QolaCompile", "kernel_neutral.gfx942.pic.o")
    argv = compile.argv
    asserts.equals(env, ["--offload-arch=gfx942"], archs_of(argv))
    asserts.false(env, "-D__Float4_e2m1fn_x2" in argv, "a define of gfx950")
    source, entry = argv.index("-include"), argv.index("tests/starlark/testdata/entries/one.cpp")
    asserts.equals(env, "tests/starlark/testdata/kernels/kernel_neutral.cpp", argv[source + 1])
    asserts.true(env, source < entry, "the entry source knows the kernel's functions")
    link = action_of(env, "CppLink", "kernel_neutral.gfx942.so").argv
    asserts.true(env, "-Wl,-Bsymbolic" in link, "another library's kernels may be bound instead")
    asserts.equals(env, [], [flag for flag in link if "soname" in flag], "the loader takes libraries of one name for one")
    return analysistest.end(env)

def _lazy_library_test_impl(ctx):
    """Prevents: a lazy library that has kernels inside, or has another name than the full one."""
    env = analysistest.begin(ctx)
    link = action_of(env, "CppLink", "lazy/linked/ns_libmodule.so")
    asserts.true(env, "-Wl,-soname,ns_libmodule.so" in link.argv, "no drop-in")
    asserts.true(env, "-Wl,-z,defs" in link.argv, "a kernel without a stub shows only when it is called")
    objects = objects_of(link)
    has_all(env, objects, ["stubs.pic.o", "table.pic.o"])
    asserts.equals(env, [], [name for name in objects if name.startswith(("kernel_", "batch"))])
    return analysistest.end(env)

def _max_bytes_test_impl(ctx):
    """Prevents: a budget that no build checks, or one that is checked before the library is stripped."""
    env = analysistest.begin(ctx)
    check = action_of(env, "QolaSize")
    has_all(env, check.argv, ["--max-bytes", "1000"])
    strip = action_of(env, "QolaStrip", "starlark/ns_libsecond.so")
    asserts.true(env, strip.outputs.to_list()[0] in check.inputs.to_list(), "another file than is shipped")
    validated = analysistest.target_under_test(env)[OutputGroupInfo]._validation.to_list()
    asserts.equals(env, check.outputs.to_list(), validated)
    return analysistest.end(env)

def _static_module_test_impl(ctx):
    """Prevents: an archive whose functions another AITER's take the place of, or that lacks a kernel."""
    env = analysistest.begin(ctx)
    join = action_of(env, "QolaJoin")
    has_all(env, join.argv, ["-r", "--force-group-allocation", "--unique", "--wrap=hipLaunchKernel"])
    objects = objects_of(join)
    for name in ["kernel_gfx942.pic.o", "batch.pic.o", "kernel_neutral.pic.o", "dispatch.pic.o", "entry.pic.o"]:
        asserts.equals(env, 1, len([object for object in objects if object == name]), name + " in " + str(objects))
    has_all(env, action_of(env, "QolaLocalise").argv, [
        "--wildcard",
        "--keep-global-symbol=_ZN4qola2ns*",
        "--keep-global-symbol=qola_ns_mha_*",
        "--set-symbol-visibility=_ZN4qola2ns*=hidden",
        "--set-symbol-visibility=qola_ns_mha_*=hidden",
        "--rename-section=.ltext=.text,alloc,code,readonly",
    ])
    return analysistest.end(env)

def _arch_part_test_impl(ctx):
    """Prevents: functions of two archs that replace each other, or code that all archs share linked twice."""
    env = analysistest.begin(ctx)
    join = action_of(env, "QolaJoin")
    objects = [object for object in objects_of(join) if object.endswith(".pic.o")]
    asserts.equals(env, ["dispatch.pic.o", "entry.pic.o"], sorted(objects))
    has_all(env, join.argv, ["-r", "--force-group-allocation", "--unique"])
    has_all(env, action_of(env, "QolaLocalise").argv, [
        "--keep-global-symbol=qola_init_libmodule_gfx942",
        "--set-symbol-visibility=qola_init_libmodule_gfx942=hidden",
    ])
    return analysistest.end(env)

def _static_archive_test_impl(ctx):
    """Prevents: an archive made by another ar than the toolchain's, or with another member than the module."""
    env = analysistest.begin(ctx)
    action = action_of(env, "CppArchive")
    asserts.true(env, action.outputs.to_list()[0].basename.startswith("libqola_ns."), str(action.outputs))
    asserts.true(env, action.argv[0].endswith("/llvm-ar"), action.argv[0])
    asserts.equals(env, ["ns_libmodule.o"], objects_of(action))
    return analysistest.end(env)

def _bundle_inputs_test_impl(ctx):
    """Prevents: a bundle that is not made anew when a header, the plan or a library changes."""
    env = analysistest.begin(ctx)
    has_all(env, [f.short_path for f in action_of(env, "QolaBundle").inputs.to_list()], [
        "tests/starlark/ns_libmodule.so",
        "tests/starlark/testdata/ck.hpp",
        "tests/starlark/testdata/plan.json",
        "tests/starlark/testdata/qola_config.h",
        "runtime/api/qola_common.h",
        "LICENSE",
    ])
    return analysistest.end(env)

_ROCM = {"//command_line_option:platforms": [str(Label("@rules_hip//rocm:linux_x86_64"))]}

_bundle_inputs_test = analysistest.make(_bundle_inputs_test_impl)
_arch_part_test = analysistest.make(_arch_part_test_impl, config_settings = _ROCM)
_kernel_library_test = analysistest.make(_kernel_library_test_impl, config_settings = _ROCM)
_lazy_library_test = analysistest.make(_lazy_library_test_impl, config_settings = _ROCM)
_max_bytes_test = analysistest.make(_max_bytes_test_impl, config_settings = _ROCM)
_static_archive_test = analysistest.make(_static_archive_test_impl, config_settings = _ROCM)

# In an output directory of its own: another test has a library of this name.
_static_module_test = analysistest.make(
    _static_module_test_impl,
    config_settings = _ROCM | {"//command_line_option:compilation_mode": "opt"},
)

def library_test_suite(name):
    """Declares the tests of this file.

    Args:
      name: name of the test suite.
    """
    tests = {
        "arch_part_test": (_arch_part_test, ":libmodule.part"),
        "bundle_inputs_test": (_bundle_inputs_test, ":one_manifest"),
        "kernel_library_test": (_kernel_library_test, ":libmodule_kernels"),
        "lazy_library_test": (_lazy_library_test, ":libmodule_lazy.shared"),
        "max_bytes_test": (_max_bytes_test, ":libsecond.built"),
        "static_archive_test": (_static_archive_test, ":static"),
        "static_module_test": (_static_module_test, ":libmodule.built"),
    }
    for test, (rule, target) in tests.items():
        rule(name = test, size = "small", target_under_test = target)
    native.test_suite(name = name, tests = tests.keys())
