"""Analysis tests of what does not go together: the words of the error."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts")
load("//rules:defs.bzl", "qola_bundle", "qola_wheel")

# Bundles of which nothing can be made.
_BUNDLES = {
    "mixed": {"libraries": [":ns_libmodule", ":ns_libmodule_lazy"]},
    "packed": {"libraries": [":ns_libmodule"], "packs": [":pack_of_one"]},
    "split_and_lazy": {"libraries": [":ns_libmodule_lazy"], "split": True},
    "split_and_static": {"libraries": [":ns_libmodule"], "split": True, "static": ":static"},
    "static_and_lazy": {"libraries": [":ns_libmodule_lazy"], "static": ":static"},
    "static_of_another": {"libraries": [":other_libother"], "static": ":static"},
    "static_of_other_modules": {"libraries": [":ns_libmodule"], "static": ":static_of_more"},
    "two_manifests": {"libraries": [":ns_libmodule", ":other_libother"]},
    "whole": {"libraries": [":ns_libmodule"]},
}

# By test: what is refused, and parts of the error.
_REFUSED = {
    # Prevents: two libraries of one name in a bundle, of which one overwrites the other.
    "mixed_bundle_test": (":mixed", [
        "lazy and full libraries in one bundle",
        "//tests/starlark:ns_libmodule, ",
        "//tests/starlark:ns_libmodule_lazy (lazy)",
    ]),
    # Prevents: a pack in a bundle whose libraries never look for one.
    "pack_without_lazy_test": (":packed", [
        "lazy and full libraries in one bundle",
        "pack pack_of_one.qpack",
    ]),
    # Prevents: a split wheel without any device code, because nothing is split.
    "split_wheel_of_whole_bundle_test": (":split_wheel", [
        "a split wheel of an unsplit bundle",
        "//tests/starlark:split_wheel: split",
        "add split = True to that qola_bundle",
    ]),
    # Prevents: a bundle that looks split, and whose libraries look for packs that nothing makes.
    "split_lazy_bundle_test": (":split_and_lazy", [
        "lazy and split libraries in one bundle",
        "//tests/starlark:split_and_lazy: split",
        "//tests/starlark:ns_libmodule_lazy (lazy)",
    ]),
    # Prevents: a split bundle that still has the device code of all archs.
    "split_static_bundle_test": (":split_and_static", [
        "static and split libraries in one bundle",
        "//tests/starlark:split_and_static: split",
        "//tests/starlark:static (static)",
    ]),
    # Prevents: a lazy bundle with all its kernels in an archive beside it.
    "static_lazy_bundle_test": (":static_and_lazy", [
        "lazy and static libraries in one bundle",
        "//tests/starlark:ns_libmodule_lazy (lazy)",
    ]),
    # Prevents: an archive whose functions have no header in the bundle, or that lacks one.
    "static_modules_test": (":static_of_other_modules", [
        "libraries of some modules and an archive of others in one bundle",
        "static_of_more of ns_libmodule, ns_libsecond",
        "an archive of ns_libmodule, as",
    ]),
    # Prevents: an archive beside the headers of another manifest.
    "static_other_bundle_test": (":static_of_another", [
        "libraries of one manifest and an archive of another in one bundle",
        "//tests/starlark:static of tests/starlark/testdata/plan.json",
    ]),
    # Prevents: two namespaces in an archive, of which one has no header.
    "static_two_manifests_test": (":static_of_two", [
        "modules of two manifests in one archive",
        "//tests/starlark:static_of_two: modules",
        "testdata/plan.json",
        "testdata/other_plan.json",
    ]),
    # Prevents: libraries of two namespaces with the qola_config.h of one of them.
    "two_manifests_test": (":two_manifests", [
        "libraries of two manifests in one bundle",
        "//tests/starlark:ns_libmodule of tests/starlark/testdata/plan.json",
        "//tests/starlark:other_libother of tests/starlark/testdata/other_plan.json",
    ]),
    # Prevents: a pack that lacks a kernel because its name was misspelt.
    "unknown_kernel_test": (":pack_of_nothing", [
        "qola: ManifestError: no such kernel instance",
        "//tests/starlark:pack_of_nothing: kernels",
        "found:    kernel_unknown",
        "libmodule_kernels",
    ]),
    # Prevents: a pack without kernels because an arch was misspelt.
    "unknown_arch_test": (":pack_of_no_arch", [
        "qola: ManifestError: no such arch",
        "//tests/starlark:pack_of_no_arch: archs",
        "found:    gfx95",
    ]),
}

def _refused_test_impl(ctx):
    env = analysistest.begin(ctx)
    for part in ctx.attr.parts:
        asserts.expect_failure(env, part)
    return analysistest.end(env)

def make_refused_test(config_settings = {}):
    """Returns a rule of tests of a target that is refused with these settings."""
    return analysistest.make(
        _refused_test_impl,
        attrs = {"parts": attr.string_list(doc = "Parts of the error.", mandatory = True)},
        config_settings = config_settings,
        expect_failure = True,
    )

refused_test = make_refused_test()

def refusal_test_suite(name):
    """Declares the bundles and the tests of this file.

    Args:
      name: name of the test suite.
    """
    for bundle, attrs in _BUNDLES.items():
        qola_bundle(name = bundle, tags = ["manual"], **attrs)
    qola_wheel(name = "split_wheel", bundle = ":whole", package = "ns", split = True, tags = ["manual"], version = "1.0")
    for test, (target, parts) in _REFUSED.items():
        refused_test(name = test, size = "small", parts = parts, target_under_test = target)
    native.test_suite(name = name, tests = _REFUSED.keys())
