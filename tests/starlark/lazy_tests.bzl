"""Analysis tests of lazy libraries: what is compiled and linked, and what does not go together."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")

def _action(env, mnemonic, output_part):
    found = [
        action
        for action in analysistest.target_actions(env)
        if action.mnemonic == mnemonic and any([output_part in f.short_path for f in action.outputs.to_list()])
    ]
    asserts.equals(env, 1, len(found), "actions {} for {}".format(mnemonic, output_part))
    return found[0]

def _kernel_library_test_impl(ctx):
    """Prevents: a kernel library with other code than the full library's, for another arch, or one that another takes the place of."""
    env = analysistest.begin(ctx)
    host = _action(env, "QolaHost", "kernel_neutral.gfx942.pic.o")
    argv = host.argv
    asserts.true(env, "-targets=host-x86_64-unknown-linux-gnu,hipv4-amdgcn-amd-amdhsa--gfx942" in argv, "bundled for another arch")
    asserts.equals(env, ["--offload-arch=gfx942"], [flag for flag in argv if flag.startswith("--offload-arch")])
    asserts.false(env, "-D__Float4_e2m1fn_x2" in argv, "a define of gfx950")
    asserts.true(env, "-cuid=testdata/kernel_neutral" in argv, "another unit than the code object's")
    source, entry = argv.index("-include"), argv.index("tests/starlark/entries/one.cpp")
    asserts.equals(env, "tests/starlark/testdata/kernel_neutral.cpp", argv[source + 1])
    asserts.true(env, source < entry, "the entry source knows the kernel's functions")
    inputs = [f.short_path for f in host.inputs.to_list()]
    asserts.true(env, "tests/starlark/testdata/kernel_neutral.gfx942.co" in inputs, "the code object is not the full library's")
    link = _action(env, "CppLink", "kernel_neutral.gfx942.so").argv
    asserts.true(env, "-Wl,-Bsymbolic" in link, "another library's kernels may be bound instead")
    asserts.equals(env, [], [flag for flag in link if "soname" in flag], "the loader takes libraries of one name for one")
    return analysistest.end(env)

def _lazy_library_test_impl(ctx):
    """Prevents: a lazy library that has kernels inside, or has another name than the full one."""
    env = analysistest.begin(ctx)
    link = _action(env, "CppLink", "lazy/ns_libmodule.so")
    asserts.true(env, "-Wl,-soname,ns_libmodule.so" in link.argv, "no drop-in")
    asserts.true(env, "-Wl,-z,defs" in link.argv, "a kernel without a stub shows only when it is called")
    objects = [f.basename for f in link.inputs.to_list() if f.basename.endswith(".o")]
    asserts.true(env, "stubs.pic.o" in objects, str(objects))
    asserts.true(env, "table.pic.o" in objects, str(objects))
    asserts.equals(env, [], [name for name in objects if name.startswith("kernel_")])
    return analysistest.end(env)

def _unknown_kernel_test_impl(ctx):
    """Prevents: a pack that lacks a kernel because its name was misspelt."""
    env = analysistest.begin(ctx)
    for part in [
        "qola: ManifestError: no such kernel instance",
        "//tests/starlark:pack_of_nothing: kernels",
        "found:    kernel_unknown",
        "libmodule_kernels",
    ]:
        asserts.expect_failure(env, part)
    return analysistest.end(env)

def _mixed_bundle_test_impl(ctx):
    """Prevents: two libraries of one name in a bundle, of which one overwrites the other."""
    env = analysistest.begin(ctx)
    for part in [
        "lazy libraries and others in one bundle",
        "//tests/starlark:ns_libmodule, ",
        "//tests/starlark:ns_libmodule_lazy (lazy)",
    ]:
        asserts.expect_failure(env, part)
    return analysistest.end(env)

def _pack_without_lazy_test_impl(ctx):
    """Prevents: a pack in a bundle whose libraries never look for one."""
    env = analysistest.begin(ctx)
    asserts.expect_failure(env, "lazy libraries and others in one bundle")
    asserts.expect_failure(env, "pack pack_of_one.qpack")
    return analysistest.end(env)

_ROCM = {"//command_line_option:platforms": [str(Label("//rules/rocm:linux_x86_64"))]}

_kernel_library_test = analysistest.make(_kernel_library_test_impl, config_settings = _ROCM)
_lazy_library_test = analysistest.make(_lazy_library_test_impl, config_settings = _ROCM)
_unknown_kernel_test = analysistest.make(_unknown_kernel_test_impl, expect_failure = True)
_mixed_bundle_test = analysistest.make(_mixed_bundle_test_impl, expect_failure = True)
_pack_without_lazy_test = analysistest.make(_pack_without_lazy_test_impl, expect_failure = True)

def lazy_test_suite(name, kernels, shared, unknown, mixed, packed):
    """Declares the tests of this file.

    Args:
      name: name of the test suite.
      kernels: kernel_libraries with a kernel for two archs.
      shared: the cc_shared_library of a lazy library.
      unknown: a kernel_pack with a kernel that is none.
      mixed: a bundle of a lazy library and another.
      packed: a bundle of a library that is not lazy, with a pack.
    """
    tests = {
        "kernel_library_test": (_kernel_library_test, kernels),
        "lazy_library_test": (_lazy_library_test, shared),
        "mixed_bundle_test": (_mixed_bundle_test, mixed),
        "pack_without_lazy_test": (_pack_without_lazy_test, packed),
        "unknown_kernel_test": (_unknown_kernel_test, unknown),
    }
    for test, (rule, target) in tests.items():
        rule(name = test, size = "small", target_under_test = target)
    native.test_suite(name = name, tests = tests.keys())
