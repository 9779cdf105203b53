"""Build one manifest twice without a cache, with other path, user, HOME, PATH, LANG: equal bytes.

If outputs differ, the failure names the first action that differs in Bazel's execution logs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from qola.report.execution_log import Spawn
from tests.e2e.nested_bazel import (
    BUILD_FILE,
    EXAMPLE,
    LEFT,
    Bazel,
    copy_checkout,
    find_bazel,
    module_file,
)
from tests.support.running import run
from tools.execution_log import first_difference as execlog

NOBODY = 65534

BUILD = f"""{BUILD_FILE}
load("@qola//rules:defs.bzl", "qola_bundle")

qola_bundle(
    name = "bundle",
    libraries = [":it"],
)
"""
TARGETS = ("//:it", "//:bundle", "//:bundle_tar")


@dataclass(frozen=True)
class Built:
    """Result of a build: its actions, and digests of its outputs and plan.json by path."""

    spawns: list[Spawn]
    files: dict[str, str]


def make_workspace(directory: Path, environment: dict[str, str]) -> Bazel:
    """Write a workspace with a separate copy of qola, output base, HOME and (empty) cache."""
    workspace, home, qola = (directory / name for name in ("workspace", "home", "qola"))
    workspace.mkdir(parents=True)
    # Another user may not be able to read the original.
    copy_checkout(qola)
    for name, text in {
        ".bazelrc": (EXAMPLE / ".bazelrc").read_text(encoding="utf-8")
        # A sandbox has a private /tmp that does not contain a dependency's directory.
        + f"build --sandbox_add_mount_pair={directory}\n",
        ".bazelversion": (EXAMPLE / ".bazelversion").read_text(encoding="utf-8"),
        "BUILD.bazel": BUILD,
        "MODULE.bazel": module_file(qola),
        # Two kernels, a dispatch, AITER's sources, embedded code objects.
        "it.toml": LEFT,
    }.items():
        (workspace / name).write_text(text, encoding="utf-8")
    # The source of pip packages is machine configuration: use the user's pip.conf.
    pip = Path(os.environ.get("HOME", "/nonexistent")) / ".config/pip/pip.conf"
    (home / ".config/pip").mkdir(parents=True)
    if pip.is_file():
        shutil.copy(pip, home / ".config/pip/pip.conf")
    paths = {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache"), "TMPDIR": str(home)}
    output_base, cache = directory / "output_base", directory / "cache"
    return Bazel(workspace, output_base, cache, {**paths, **environment})


def as_nobody(bazel: Bazel, directory: Path) -> Bazel:
    """Return the Bazel run by user nobody; without permission for that, return it unchanged."""
    run_as = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return bazel
    probe = [*run_as, "test", "-r", find_bazel()]
    if run(probe).returncode != 0:
        return bazel
    for path in [directory, *directory.rglob("*")]:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    user = {"USER": "nobody", "LOGNAME": "nobody"}
    return replace(bazel, environment={**bazel.environment, **user}, run_as=run_as)


def build(bazel: Bazel) -> Built:
    """Build all targets, and compute the digests of their outputs."""
    spawns = bazel.spawns(*TARGETS)
    listed = bazel.run("cquery", "--output=files", " + ".join(TARGETS)).stdout.split()
    files = {"plan.json": bazel.plan_file()}
    for name in listed:
        path = bazel.workspace / name
        found = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
        files.update((str(p.relative_to(bazel.workspace)), p) for p in found)
    digests = {name: hashlib.sha256(p.read_bytes()).hexdigest() for name, p in files.items()}
    return Built(spawns, digests)


@pytest.fixture(scope="module")
def builds() -> Iterator[tuple[Built, Built]]:
    """Two builds of one manifest in environments that differ as users' do."""
    # Not in pytest's directory: another user cannot enter it.
    with (
        tempfile.TemporaryDirectory(dir="/tmp", prefix="qola-") as first_directory,
        tempfile.TemporaryDirectory(dir="/tmp", prefix="qola-twice-") as second_directory,
    ):
        first = make_workspace(Path(first_directory), {"LANG": "C.UTF-8"})
        deeper = Path(second_directory, "further", "down")
        tools = Path(second_directory, "bin")
        tools.mkdir()
        second = as_nobody(
            make_workspace(
                deeper,
                {
                    "LANG": "tr_TR.UTF-8",
                    "LC_ALL": "tr_TR.UTF-8",
                    "PATH": f"{tools}:{os.environ['PATH']}:/nonexistent",
                    "SOURCE_DATE_EPOCH": "1",
                    "TZ": "Pacific/Chatham",
                },
            ),
            Path(second_directory),
        )
        try:
            yield build(first), build(second)
        finally:
            for bazel in (first, second):
                # Run as the user of the build: files of a fetched repository may be read-only.
                bazel.run("clean", "--expunge", check=False)


def difference(first: Built, second: Built) -> str:
    """Return the first action that differs, for the message of a failure."""
    found = execlog.first_difference(first.spawns, second.spawns)
    return execlog.render(found) if found else "all actions are the same"


def test_really_built_twice(builds: tuple[Built, Built]) -> None:
    """Prevents: a cache answers the second build, so that the builds cannot differ."""
    for built in builds:
        assert len(built.spawns) > 5
        cached = [spawn.label for spawn in built.spawns if spawn.cached]
        assert cached == []
        compiles = [spawn for spawn in built.spawns if spawn.mnemonic == "QolaCompile"]
        read = {Path(path).name for spawn in compiles for path in spawn.inputs}
        assert len([name for name in read if name.startswith("fmha_fwd_d32_fp16_batch")]) >= 2


def test_same_bytes(builds: tuple[Built, Built]) -> None:
    """Prevents: a library, bundle or plan contains a path, user, locale or variable."""
    first, second = builds
    assert "plan.json" in first.files
    assert [name for name in first.files if name.endswith(".so")]
    assert [name for name in first.files if name.endswith(".tar")]
    differing = sorted(
        name
        for name in {*first.files, *second.files}
        if first.files.get(name) != second.files.get(name)
    )
    assert not differing, f"{differing}\n{difference(first, second)}"


def test_same_actions(builds: tuple[Built, Built]) -> None:
    """Prevents: a cache that one user fills has no hits for another user."""
    first, second = builds
    assert execlog.first_difference(first.spawns, second.spawns) is None, difference(first, second)
