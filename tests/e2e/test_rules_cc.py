"""rules_hip with newer versions of rules_cc than Debian packages.

QOLA_TEST_RULES_CC names a directory with clones of rules_cc and bazel_features. If it is not set,
git fetches their tags.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.nested_bazel import QOLA, Bazel, bazel, check_out, shared_directory

#: Commits of two tags: the last release before 0.2 (which replaces Bazel's rules with proxies), and
#: a recent release.
RULES_CC = {
    "0.1.5": "2f2ba8095e9ebb89375bae0bcf08a0eeb9aead64",
    "0.2.22": "21e14308c2afc7691f43295acc9852d9a6844f04",
}
BAZEL_FEATURES = ("v1.50.0", "3969b2dfdc0737155f0db83b8fc4843d8711655e")
#: Versions in the registry of modules that rules_cc requests but does not use for C++ on Linux.
SERVED = {
    **{"apple_support": "1.23.1", "bazel_features": "1.18.0", "bazel_skylib": "1.7.1"},
    **{"protobuf": "21.7", "rules_python": "0.22.1"},
}


def checkout(owner: str, name: str, tag: str, commit: str, directory: Path) -> Path:
    """Return a directory with the files of a tag. Skip the test if there is no network."""
    clones = os.environ.get("QOLA_TEST_RULES_CC")
    remote = str(Path(clones, name)) if clones else f"https://github.com/{owner}/{name}"
    directory.mkdir(parents=True)
    check_out(directory, remote, f"refs/tags/{tag}", commit)
    return directory


def replace_versions(directory: Path) -> None:
    """Make a module request the versions that are in the registry."""
    path = directory / "MODULE.bazel"
    text = path.read_text(encoding="utf-8")
    for name, version in SERVED.items():
        text = re.sub(rf'(name = "{name}", version = )"[^"]*"', rf'\1"{version}"', text)
    path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bazel_features, patched: Debian's Bazel reports no version, which counts as the newest."""
    target = tmp_path_factory.mktemp("features") / "bazel_features"
    directory = checkout("bazel-contrib", "bazel_features", *BAZEL_FEATURES, target)
    for path in (directory / "private").glob("*.bzl"):
        text = path.read_text(encoding="utf-8")
        version = '(native.bazel_version or "7.7.1")'
        path.write_text(text.replace("native.bazel_version", version), encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def consumer() -> Iterator[Bazel]:
    """The HIP example with a separate output base, because its repositories differ."""
    with bazel(QOLA / "rules_hip/examples/hip", directory=shared_directory("rules_cc")) as instance:
        yield instance
        instance.run("shutdown")


@pytest.mark.parametrize("version", RULES_CC)
def test_example(version: str, features: Path, consumer: Bazel, tmp_path: Path) -> None:
    """Prevents: rules_hip loads or runs only with the rules_cc that Debian packages."""
    place = tmp_path / "rules_cc"
    rules_cc = checkout("bazelbuild", "rules_cc", version, RULES_CC[version], place)
    replace_versions(rules_cc)
    modules = {"rules_cc": rules_cc, "bazel_features": features}
    options = [f"--override_module={name}={path}" for name, path in modules.items()]
    result = consumer.run("test", *options, "//:saxpy_test", "//:main", "//:saxpy_code")
    assert re.search(r"^//:saxpy_test .*PASSED", result.stdout, re.M), result.stdout
