"""One manifest, built twice without a cache: other path, user, HOME, PATH and LANG, same bytes.

Where something differs, the failure says which action did first, from Bazel's execution logs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from qola.report.execution_log import Spawn
from tests.e2e.nested_bazel import BUILD_FILE, EXAMPLE, LEFT, QOLA, Bazel, find_bazel, module_file
from tools.execution_log import first_difference as execlog

RULESET = ("BUILD.bazel", "LICENSE", "MODULE.bazel", "cc", "qola", "rules", "third_party", "tools")
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
    """A finished build: its actions, and digests of its outputs and plan.json by path."""

    spawns: list[Spawn]
    files: dict[str, str]


def copy_ruleset(target: Path) -> None:
    """Copy what a consumer needs of qola, which another user may not be able to read."""
    target.mkdir()
    for name in RULESET:
        source = QOLA / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target / name)


def make(directory: Path, environment: dict[str, str]) -> Bazel:
    """Write a workspace with its own copy of qola, output base, HOME and (empty) cache."""
    workspace, home, qola = (directory / name for name in ("workspace", "home", "qola"))
    workspace.mkdir(parents=True)
    copy_ruleset(qola)
    for name, text in {
        ".bazelrc": (EXAMPLE / ".bazelrc").read_text(encoding="utf-8")
        # A sandbox has a /tmp of its own, in which a dependency's directory does not show.
        + f"build --sandbox_add_mount_pair={directory}\n",
        ".bazelversion": (EXAMPLE / ".bazelversion").read_text(encoding="utf-8"),
        "BUILD.bazel": BUILD,
        "MODULE.bazel": module_file(qola),
        # Two kernels, a dispatch, AITER's sources, embedded code objects.
        "it.toml": LEFT,
    }.items():
        (workspace / name).write_text(text, encoding="utf-8")
    # Where packages come from is the machine's affair, not what is tested here.
    pip = Path(os.environ.get("HOME", "/nonexistent")) / ".config/pip/pip.conf"
    (home / ".config/pip").mkdir(parents=True)
    if pip.is_file():
        shutil.copy(pip, home / ".config/pip/pip.conf")
    paths = {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache"), "TMPDIR": str(home)}
    output_base, cache = directory / "output_base", directory / "cache"
    return Bazel(workspace, output_base, cache, {**paths, **environment})


def as_nobody(bazel: Bazel, directory: Path) -> Bazel:
    """The same Bazel run by another user, where this one may do that; otherwise as it was."""
    run_as = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return bazel
    probe = [*run_as, "test", "-r", find_bazel()]
    if subprocess.run(probe, check=False, capture_output=True).returncode != 0:
        return bazel
    for path in [directory, *directory.rglob("*")]:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    user = {"USER": "nobody", "LOGNAME": "nobody"}
    return replace(bazel, environment={**bazel.environment, **user}, run_as=run_as)


def build(bazel: Bazel) -> Built:
    """Build everything and take the digests of what was made."""
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
    """Two builds of one manifest, as different as users are."""
    # Not pytest's directory: another user could not enter it.
    with (
        tempfile.TemporaryDirectory(dir="/tmp", prefix="qola-") as one,
        tempfile.TemporaryDirectory(dir="/tmp", prefix="qola-twice-") as other,
    ):
        first = make(Path(one), {"LANG": "C.UTF-8"})
        deeper = Path(other, "further", "down")
        tools = Path(other, "bin")
        tools.mkdir()
        second = as_nobody(
            make(
                deeper,
                {
                    "LANG": "tr_TR.UTF-8",
                    "LC_ALL": "tr_TR.UTF-8",
                    "PATH": f"{tools}:{os.environ['PATH']}:/nonexistent",
                    "SOURCE_DATE_EPOCH": "1",
                    "TZ": "Pacific/Chatham",
                },
            ),
            Path(other),
        )
        try:
            yield build(first), build(second)
        finally:
            for bazel in (first, second):
                # As it was set up: files of a fetched repository may be read-only.
                bazel.run("clean", "--expunge", check=False)


def difference(one: Built, other: Built) -> str:
    """Which action differed first, for the message of a failure."""
    found = execlog.first_difference(one.spawns, other.spawns)
    return execlog.render(found) if found else "all actions are the same"


def test_really_built_twice(builds: tuple[Built, Built]) -> None:
    """Prevents: a cache that makes the two builds one, so that they cannot differ."""
    for built in builds:
        assert len(built.spawns) > 5
        cached = [spawn.label for spawn in built.spawns if spawn.cached]
        assert cached == []
        compiles = [spawn for spawn in built.spawns if spawn.mnemonic == "QolaCompile"]
        read = {Path(path).name for spawn in compiles for path in spawn.input_digests}
        assert len([name for name in read if name.startswith("fmha_fwd_d32_fp16_batch")]) >= 2


def test_same_bytes(builds: tuple[Built, Built]) -> None:
    """Prevents: a path, user, locale or variable that gets into a library, a bundle or a plan."""
    one, other = builds
    assert "plan.json" in one.files
    assert [name for name in one.files if name.endswith(".so")]
    assert [name for name in one.files if name.endswith(".tar")]
    differing = sorted(
        name for name in {*one.files, *other.files} if one.files.get(name) != other.files.get(name)
    )
    assert not differing, f"{differing}\n{difference(one, other)}"


def test_same_actions(builds: tuple[Built, Built]) -> None:
    """Prevents: a cache that one user fills and another misses."""
    one, other = builds
    assert execlog.first_difference(one.spawns, other.spawns) is None, difference(one, other)
