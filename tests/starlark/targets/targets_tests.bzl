"""Analysis tests of a manifest's targets: their names, their files, and which `//...` has."""

load("@bazel_skylib//lib:unittest.bzl", "asserts", "unittest")

# By target: the file that documentation names, relative to its package.
_OWN = {
    "ci": "ci",
    "ci_jax_wheel": "ci_jax_wheel/qola_ci-1.2-py3-none-manylinux_2_28_x86_64.whl",
    "ci_lazy": "ci_lazy",
    "ci_lazy_tar": "ci_lazy.tar",
    "ci_lazy_wheel": "qola_ci_lazy-1.2-py3-none-manylinux_2_28_x86_64.whl",
    "ci_libmha_bwd": "ci_libmha_bwd.so",
    "ci_libmha_bwd_lazy": "lazy/ci_libmha_bwd.so",
    "ci_libmha_fwd": "ci_libmha_fwd.so",
    "ci_libmha_fwd_lazy": "lazy/ci_libmha_fwd.so",
    "ci_pack": "ci_pack.qpack",
    "ci_static": "ci_static/libqola_ci.a",
    "ci_tar": "ci.tar",
    "ci_wheel": "qola_ci-1.2-py3-none-manylinux_2_28_x86_64.whl",
}
_REPOSITORY = {
    "bundle": "bundle",
    "bundle_tar": "bundle.tar",
    "jax_wheel": "jax_wheel/qola_ci-0.1.0-py3-none-manylinux_2_28_x86_64.whl",
    "lazy_bundle": "lazy_bundle",
    "lazy_wheel": "qola_ci_lazy-0.1.0-py3-none-manylinux_2_28_x86_64.whl",
    "libmha_bwd": "ci_libmha_bwd.so",
    "libmha_fwd_lazy": "lazy/ci_libmha_fwd.so",
    "pack": "pack.qpack",
    "static": "static/libqola_ci.a",
    "wheel": "qola_ci-0.1.0-py3-none-manylinux_2_28_x86_64.whl",
}
_IN_WILDCARDS = ["tagged", "tagged_libmha_bwd", "tagged_libmha_fwd", "tagged_tar"]

def _files_test_impl(ctx):
    """Prevents: a name that users know, or the file it stands for, that is gone."""
    env = unittest.begin(ctx)
    for target, file in ctx.attr.targets.items():
        root = "../{}/".format(target.label.repo_name) if target.label.repo_name else target.label.package + "/"
        found = [f.short_path.removeprefix(root) for f in target[DefaultInfo].files.to_list()]
        asserts.equals(env, [file], found)
    return unittest.end(env)

_files_test = unittest.make(
    _files_test_impl,
    attrs = {"targets": attr.label_keyed_string_dict(doc = "Targets, each with its only file, relative to its package.", mandatory = True)},
)

def _wildcards_test_impl(ctx):
    """Prevents: `bazel build //...` that makes wheels, packs and every library a second time, lazily."""
    env = unittest.begin(ctx)
    asserts.equals(env, _IN_WILDCARDS, ctx.attr.found)
    return unittest.end(env)

_wildcards_test = unittest.make(
    _wildcards_test_impl,
    attrs = {"found": attr.string_list(doc = "Targets without the tag manual.", mandatory = True)},
)

def targets_test_suite(name):
    """Declares the tests of this file, after the targets.

    Args:
      name: name of the test suite.
    """
    rules = native.existing_rules()
    _wildcards_test(
        name = "wildcards_test",
        size = "small",
        found = sorted([rule for rule in rules if rule.startswith("tagged") and "manual" not in rules[rule]["tags"]]),
    )
    _files_test(
        name = "files_test",
        size = "small",
        targets = {":" + target: file for target, file in _OWN.items()} |
                  {"@qola_ci//:" + target: file for target, file in _REPOSITORY.items()},
    )
    native.test_suite(name = name, tests = ["files_test", "wildcards_test"])
