"""Use qola from its release archive: by bazel_dep from a registry, and unpacked."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from qola.common.version import __version__
from tests.e2e.nested_bazel import Bazel, bazel, release, shared_directory, unpack, unpack_release

OVERRIDE = """\
local_path_override(
    module_name = "qola",
    path = "{0}",
)

local_path_override(
    module_name = "rules_hip",
    path = "{0}/rules_hip",
)
"""


@dataclass(frozen=True)
class Release:
    """The archive of this checkout, a registry with this archive, and the unpacked archive."""

    archive: Path
    registry: Path
    unpacked: Path


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """Build the archive, and add it to a registry on the local disk."""
    directory = tmp_path_factory.mktemp("release")
    unpacked = unpack_release(directory)
    archive = directory / f"qola-{__version__}.tar.gz"
    rules_hip = archive.with_name(f"rules_hip-{__version__}.tar.gz")
    entry = ["entry", "--archive", str(archive), "--archive", str(rules_hip)]
    entry += ["--registry", "registry", "--owner", "nobody", "--maintainer", "nobody"]
    release(*entry, "--url", directory.as_uri(), cwd=directory)
    return Release(archive, directory / "registry", unpacked)


@pytest.fixture(scope="module")
def consumer(released: Release) -> Iterator[Bazel]:
    """The archive's consumer, which declares qola only with bazel_dep."""
    with (
        bazel(released.unpacked / "examples/bazel", released.unpacked) as instance,
        instance.rewritten("MODULE.bazel", OVERRIDE.format(released.unpacked), ""),
    ):
        yield instance


def test_bazel_dep_only(released: Release, consumer: Bazel) -> None:
    """Prevents: the release needs a file of the checkout, or Bazel cannot resolve its entry."""
    registry = f"--registry={released.registry.as_uri()}"
    consumer.run("build", registry, "//:program", "//:left_tar")
    graph = consumer.run("mod", registry, "graph", "--depth=1").stdout
    assert f"qola@{__version__}" in graph
    (root,) = consumer.output_base.glob("external/qola[~+]/MODULE.bazel")
    # Every package of both loads, as for editors and linters.
    consumer.run("query", registry, "@qola//...")
    # Bazel fetched the archive: the directory is not a link to the source.
    assert not root.is_symlink()
    assert root.resolve().is_relative_to(consumer.output_base)
    answers = subprocess.check_output([consumer.workspace / "bazel-bin/program"], text=True)
    assert answers.count(": -3\n") == 4


def test_hip_alone(released: Release, consumer: Bazel) -> None:
    """Prevents: rules_hip needs qola, or its archive lacks a file of the rules or the emulator."""
    source = unpack(released.archive.parent, "rules_hip") / "examples/hip"
    with bazel(source, released.unpacked, shared_directory("hip_alone")) as example:
        module = (example.workspace / "MODULE.bazel").read_text(encoding="utf-8")
        example.write("MODULE.bazel", module.partition("local_path_override")[0])
        registry = f"--registry={released.registry.as_uri()}"
        graph = example.run("mod", registry, "graph").stdout
        assert "rules_hip@" in graph
        assert "qola@" not in graph
        emulated = "--@rules_hip//hip:run=emulated"
        result = example.run("run", registry, emulated, "//:saxpy_program")
        assert "saxpy: 1000 values are right" in result.stdout
        example.run("query", registry, "@rules_hip//...")


def test_a_changed_archive_is_refused(released: Release, consumer: Bazel) -> None:
    """Prevents: Bazel accepts a changed archive because the entry's integrity is not checked."""
    directory = released.registry.parent / "changed"
    shutil.copytree(released.registry, directory / "registry")
    changed = directory / released.archive.name
    changed.write_bytes(released.archive.read_bytes() + b"\n")
    (source,) = directory.glob("registry/modules/qola/*/source.json")
    text = source.read_text(encoding="utf-8")
    source.write_text(text.replace(released.archive.as_uri(), changed.as_uri()), encoding="utf-8")
    registry = f"--registry={(directory / 'registry').as_uri()}"
    # Otherwise Bazel would read the archive from the repository cache by its digest.
    no_repository_cache = "--repository_cache="
    failed = consumer.failure("--nobuild", registry, no_repository_cache, "//:program")
    assert "Checksum was" in failed


def test_a_clone_and_a_consumer_have_the_same_keys(released: Release, consumer: Bazel) -> None:
    """Prevents: a consumer compiles kernels again that a clone of qola already built."""
    manifest = (released.unpacked / "manifests/quickstart.toml").read_text(encoding="utf-8")
    consumer.write("left.toml", manifest)
    elsewhere = shared_directory("elsewhere")
    with bazel(released.unpacked, released.unpacked, elsewhere) as clone:
        clone_keys = clone.kernel_keys("@qola_quickstart//:libmha_fwd")
    # The consumer takes qola from the unpacked directory instead of a registry.
    module = (consumer.workspace / "MODULE.bazel").read_text(encoding="utf-8")
    overridden = module + OVERRIDE.format(released.unpacked)
    with consumer.rewritten("MODULE.bazel", module, overridden):
        consumer_keys = consumer.kernel_keys("@qola_left//:libmha_fwd")
    assert clone_keys
    assert clone_keys == consumer_keys
    # Paths do not name the repositories of the manifest and of AITER: consumers choose their names.
    repositories = set(re.findall(r"external/([^/]+)/", str(clone_keys)))
    assert {re.split("[~+]", name)[0] for name in repositories} == {"rules_hip"}
