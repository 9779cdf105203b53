"""Analysis tests of bundles: what goes in, and what does not go together."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")

def _two_manifests_test_impl(ctx):
    """Prevents: libraries of two namespaces with the qola_config.h of one of them."""
    env = analysistest.begin(ctx)
    for part in [
        "libraries of two manifests in one bundle",
        "//tests/starlark:ns_libmodule of tests/starlark/testdata/plan.json",
        "//tests/starlark:other_libother of tests/starlark/testdata/other_plan.json",
    ]:
        asserts.expect_failure(env, part)
    return analysistest.end(env)

def _inputs_test_impl(ctx):
    """Prevents: a bundle that is not made anew when a header, the plan or a library changes."""
    env = analysistest.begin(ctx)
    actions = [a for a in analysistest.target_actions(env) if a.mnemonic == "QolaBundle"]
    asserts.equals(env, 1, len(actions))
    inputs = [f.short_path for f in actions[0].inputs.to_list()]
    for path in [
        "tests/starlark/ns_libmodule.so",
        "tests/starlark/testdata/ck.hpp",
        "tests/starlark/testdata/plan.json",
        "tests/starlark/testdata/qola_config.h",
        "cc/api/qola_mha_fwd.h",
        "LICENSE",
    ]:
        asserts.true(env, path in inputs, "{} is not an input of the bundle".format(path))
    return analysistest.end(env)

_two_manifests_test = analysistest.make(_two_manifests_test_impl, expect_failure = True)
_inputs_test = analysistest.make(_inputs_test_impl)

def bundle_test_suite(name, one_manifest, two_manifests):
    """Declares the tests of this file.

    Args:
      name: name of the test suite.
      one_manifest: a bundle of one library.
      two_manifests: a bundle of libraries of two manifests.
    """
    _inputs_test(name = "bundle_inputs_test", size = "small", target_under_test = one_manifest)
    _two_manifests_test(name = "two_manifests_test", size = "small", target_under_test = two_manifests)
    native.test_suite(name = name, tests = ["bundle_inputs_test", "two_manifests_test"])
