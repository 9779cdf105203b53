"""Analysis tests of static archives: how symbols become local, and what does not go together."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")

def _action(env, mnemonic):
    found = [action for action in analysistest.target_actions(env) if action.mnemonic == mnemonic]
    asserts.equals(env, 1, len(found), mnemonic)
    return found[0]

def _module_test_impl(ctx):
    """Prevents: an archive whose functions another AITER's take the place of, or that lacks a kernel."""
    env = analysistest.begin(ctx)
    join = _action(env, "QolaJoin")
    for flag in ["-r", "--force-group-allocation", "--unique"]:
        asserts.true(env, flag in join.argv, flag)
    objects = [f.basename for f in join.inputs.to_list() if f.basename.endswith(".o")]
    for name in ["kernel_gfx942.pic.o", "kernel_gfx950.pic.o", "kernel_neutral.pic.o", "dispatch.pic.o", "entry.pic.o"]:
        asserts.equals(env, 1, len([object for object in objects if object == name]), name + " in " + str(objects))
    local = _action(env, "QolaLocalise").argv
    for flag in [
        "--wildcard",
        "--keep-global-symbol=_ZN4qola2ns*",
        "--set-symbol-visibility=_ZN4qola2ns*=hidden",
        "--rename-section=.ltext=.text,alloc,code,readonly",
    ]:
        asserts.true(env, flag in local, flag)
    return analysistest.end(env)

def _archive_test_impl(ctx):
    """Prevents: an archive made by another ar than the toolchain's, or with another member than the module."""
    env = analysistest.begin(ctx)
    action = _action(env, "CppArchive")
    asserts.true(env, action.outputs.to_list()[0].basename.startswith("libqola_ns."), str(action.outputs))
    asserts.true(env, action.argv[0].endswith("/llvm-ar"), action.argv[0])
    objects = [f.basename for f in action.inputs.to_list() if f.basename.endswith(".o")]
    asserts.equals(env, ["ns_libmodule.o"], objects)
    return analysistest.end(env)

def _two_manifests_test_impl(ctx):
    """Prevents: two namespaces in an archive, of which one has no header."""
    env = analysistest.begin(ctx)
    for part in [
        "modules of two manifests in one archive",
        "//tests/starlark:static_of_two: modules",
        "testdata/plan.json",
        "testdata/other_plan.json",
    ]:
        asserts.expect_failure(env, part)
    return analysistest.end(env)

def _lazy_bundle_test_impl(ctx):
    """Prevents: a lazy bundle with all its kernels in an archive beside it."""
    env = analysistest.begin(ctx)
    asserts.expect_failure(env, "lazy libraries and an archive in one bundle")
    asserts.expect_failure(env, "//tests/starlark:ns_libmodule_lazy (lazy)")
    return analysistest.end(env)

def _other_bundle_test_impl(ctx):
    """Prevents: an archive beside the headers of another manifest."""
    env = analysistest.begin(ctx)
    asserts.expect_failure(env, "libraries of one manifest and an archive of another in one bundle")
    asserts.expect_failure(env, "//tests/starlark:static of tests/starlark/testdata/plan.json")
    return analysistest.end(env)

def _modules_test_impl(ctx):
    """Prevents: an archive whose functions have no header in the bundle, or that lacks one."""
    env = analysistest.begin(ctx)
    for part in [
        "libraries of some modules and an archive of others in one bundle",
        "static_of_more of ns_libmodule, ns_libsecond",
        "an archive of ns_libmodule, as",
    ]:
        asserts.expect_failure(env, part)
    return analysistest.end(env)

_ROCM = {"//command_line_option:platforms": [str(Label("//rules/rocm:linux_x86_64"))]}

_module_test = analysistest.make(_module_test_impl, config_settings = _ROCM)
_archive_test = analysistest.make(_archive_test_impl, config_settings = _ROCM)
_two_manifests_test = analysistest.make(_two_manifests_test_impl, expect_failure = True)
_lazy_bundle_test = analysistest.make(_lazy_bundle_test_impl, expect_failure = True)
_modules_test = analysistest.make(_modules_test_impl, expect_failure = True)
_other_bundle_test = analysistest.make(_other_bundle_test_impl, expect_failure = True)

def static_test_suite(name, module, archive, two, lazy, modules, other):
    """Declares the tests of this file.

    Args:
      name: name of the test suite.
      module: a static_module.
      archive: the archive of a qola_static with it.
      two: a qola_static of modules of two manifests.
      lazy: a bundle of lazy libraries with an archive.
      modules: a bundle with an archive of other modules.
      other: a bundle with an archive of another manifest.
    """
    tests = {
        "static_archive_test": (_archive_test, archive),
        "static_lazy_bundle_test": (_lazy_bundle_test, lazy),
        "static_module_test": (_module_test, module),
        "static_modules_test": (_modules_test, modules),
        "static_other_bundle_test": (_other_bundle_test, other),
        "static_two_manifests_test": (_two_manifests_test, two),
    }
    for test, (rule, target) in tests.items():
        rule(name = test, size = "small", target_under_test = target)
    native.test_suite(name = name, tests = tests.keys())
