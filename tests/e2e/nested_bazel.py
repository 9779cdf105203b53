"""Bazels for consumer modules: a copy of a workspace, in a place that the tests have in common.

There is one server, and what it fetched and analysed for one test serves the next.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from qola.cache import cache_directory
from qola.plan.model import Plan
from tools.execution_log.log import Spawn, read_spawns

QOLA = Path(__file__).resolve().parents[2]
IDLE = "--max_idle_secs=60"


def user_disk_cache() -> Path:
    """The cache this repository's own builds use: a repeated test compiles nothing."""
    return cache_directory(os.environ) / "disk"


def find_bazel() -> str:
    """The Bazel that runs the tests: named by QOLA_TEST_BAZEL, or on PATH."""
    found = os.environ.get("QOLA_TEST_BAZEL") or shutil.which("bazel") or shutil.which("bazelisk")
    assert found, "no bazel on PATH; name one in QOLA_TEST_BAZEL"
    return found


def shared_place(name: str = "one") -> Path:
    """A directory for a workspace and an output base that outlive a test.

    It goes with the output base of the Bazel around the tests (bazel clean --expunge).
    """
    runfiles = Path(os.environ.get("TEST_SRCDIR", ""))
    around = [path.parent for path in runfiles.parents if path.name == "execroot"]
    root = around[0] if around else Path(tempfile.gettempdir())
    return root / f"qola-e2e-{os.getuid()}" / name


def shared_program() -> Path:
    """A Bazel to be called by qola build, with the output base of shared_place()."""
    place = shared_place()
    place.mkdir(parents=True, exist_ok=True)
    script = place / "bazel"
    script.write_text(f"""#!/bin/sh
exec "{find_bazel()}" "--output_base={place / "output_base"}" {IDLE} "$@"
""")
    script.chmod(0o755)
    return script


def module_file(qola: Path) -> str:
    """MODULE.bazel of a consumer with one manifest, it.toml."""
    return f"""
module(name = "it")
bazel_dep(name = "qola", version = "0.1.0")
local_path_override(module_name = "qola", path = "{qola}")
qola = use_extension("@qola//rules:extensions.bzl", "qola")
qola.manifest(name = "it", file = "//:it.toml")
use_repo(qola, "qola_it")
"""


#: BUILD.bazel of a consumer with the forward library of it.toml.
BUILD_FILE = """
load("@qola//rules:defs.bzl", "qola_library")

qola_library(
    name = "it",
    library = "@qola_it//:libmha_fwd",
)
"""


@dataclass(frozen=True)
class Bazel:
    """One workspace with one output base.

    Attributes:
        workspace: directory with a MODULE.bazel.
        output_base: Bazel's directory for this workspace.
        disk_cache: shared cache of action results.
        environment: variables instead of the test's.
        run_as: command that runs another as somebody else, such as setpriv; () for nobody else.
    """

    workspace: Path
    output_base: Path
    disk_cache: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    run_as: tuple[str, ...] = ()

    def run(self, command: str, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command; its output is part of the failure when it fails."""
        argv = [
            *self.run_as,
            find_bazel(),
            f"--output_base={self.output_base}",
            IDLE,
            command,
        ]
        argv += [f"--disk_cache={self.disk_cache}", "--color=no", "--curses=no", *args]
        home = os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
        env = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("TEST_", "RUNFILES_", "BAZEL_"))
        }
        env = {**env, "HOME": home, "USER": pwd.getpwuid(os.getuid()).pw_name, **self.environment}
        result = subprocess.run(
            argv, cwd=self.workspace, env=env, text=True, capture_output=True, check=False
        )
        assert not check or result.returncode == 0, f"{' '.join(argv)}\n{result.stderr}"
        return result

    def plan_file(self) -> Path:
        """Return the path of plan.json of the manifest it.toml."""
        (file,) = self.output_base.glob("external/*[~+]qola_it/plan.json")
        return file

    def plan(self) -> Plan:
        """Return the plan of the manifest it.toml, as the last command left it."""
        return Plan.from_json(self.plan_file().read_text(encoding="utf-8"))

    def spawns(self, *args: str) -> list[Spawn]:
        """Build and return the spawned actions, those included whose result came from a cache."""
        log = self.output_base.with_suffix(".execution.json")
        self.run("build", f"--execution_log_json_file={log}", *args)
        return list(read_spawns(log))

    def runners(self, *args: str) -> Counter[tuple[str, str]]:
        """Build and count the spawned actions by mnemonic and by where the result came from."""
        return count_spawns(self.spawns(*args))


def count_spawns(spawns: Iterable[Spawn]) -> Counter[tuple[str, str]]:
    """Actions by mnemonic and by where the result came from."""
    return Counter((spawn.mnemonic, spawn.runner) for spawn in spawns)


@contextmanager
def bazel(source: Path, qola: Path, directory: Path, disk_cache: Path) -> Iterator[Bazel]:
    """A copy of a consumer's workspace below `directory`, with a Bazel.

    It is shut down after, unless `directory` is a shared_place(). The copy depends on qola by its
    absolute path, so that nothing is written into the checkout.
    """
    workspace = directory / "workspace"
    assert workspace not in _in_use, "a test has two workspaces in one place"
    shutil.rmtree(workspace, ignore_errors=True)
    shutil.copytree(source, workspace, ignore=shutil.ignore_patterns("bazel-*"))
    module = workspace / "MODULE.bazel"
    text = module.read_text(encoding="utf-8")
    module.write_text(re.sub(r'path = "[./]+"', f'path = "{qola}"', text), encoding="utf-8")
    if qola.is_relative_to("/tmp"):
        # A sandbox has a /tmp of its own, in which a dependency's directory does not show.
        with (workspace / ".bazelrc").open("a", encoding="utf-8") as file:
            file.write("build --sandbox_add_mount_pair=/tmp\n")
    instance = Bazel(workspace, directory / "output_base", disk_cache)
    _in_use.add(workspace)
    try:
        yield instance
    finally:
        _in_use.remove(workspace)
        if directory.parent != shared_place().parent:
            instance.run("shutdown", check=False)


_in_use: set[Path] = set()


def release(*args: str, cwd: Path) -> None:
    """Run the documented command, as `bazel run` does."""
    script = QOLA / "tools/release/release.py"
    env = {**os.environ, "BUILD_WORKING_DIRECTORY": str(cwd)}
    run = subprocess.run(
        [sys.executable, script, *args], env=env, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
