"""Run Bazel for consumer modules, in copies of their workspaces in a shared directory.

The tests use one server, so a test reuses what an earlier test fetched and analysed.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from qola.common.layout import KERNEL_COMPILE
from qola.common.version import __version__
from qola.plan.model import Plan
from qola.report.execution_log import Spawn, read_spawns
from qola_base.cache import cache_directory
from tests.support.running import output_of, run

QOLA = Path(__file__).resolve().parents[2]
EXAMPLE = QOLA / "examples/bazel"
#: A manifest of few kernels, and the pinned AITER wheel.
LEFT = (EXAMPLE / "left.toml").read_text(encoding="utf-8")
PIN: dict[str, str] = json.loads((QOLA / "third_party/aiter/wheel.json").read_text("utf-8"))
IDLE = "--max_idle_secs=60"


def user_disk_cache() -> Path:
    """Return the disk cache of this repository's builds: a repeated test compiles nothing."""
    return cache_directory(os.environ) / "disk"


def disk_cache_option() -> str:
    """Return the option for qola's commands that selects this cache."""
    return f"--bazel-arg=--disk_cache={user_disk_cache()}"


def find_bazel() -> str:
    """Return the Bazel that runs the tests: QOLA_TEST_BAZEL, or a program on PATH."""
    found = os.environ.get("QOLA_TEST_BAZEL") or shutil.which("bazel") or shutil.which("bazelisk")
    assert found, "no bazel on PATH; name one in QOLA_TEST_BAZEL"
    return found


def shared_directory(name: str = "one") -> Path:
    """Return a directory for a workspace and an output base that outlive a test.

    `bazel clean --expunge` of the Bazel that runs the tests deletes it.
    """
    runfiles = Path(os.environ.get("TEST_SRCDIR", ""))
    execroot_parents = [path.parent for path in runfiles.parents if path.name == "execroot"]
    root = execroot_parents[0] if execroot_parents else Path(tempfile.gettempdir())
    return root / f"qola-e2e-{os.getuid()}" / name


def shared_bazel() -> Path:
    """Write a script that qola build runs as Bazel, with the output base of shared_directory()."""
    directory = shared_directory()
    directory.mkdir(parents=True, exist_ok=True)
    script = directory / "bazel"
    script.write_text(f"""#!/bin/sh
exec "{find_bazel()}" "--output_base={directory / "output_base"}" {IDLE} "$@"
""")
    script.chmod(0o755)
    return script


def pip(*args: str | Path) -> None:
    """Run pip without the import path of this test, where pip would find qola already installed."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *args]
    output_of(command, env=env)


def environment(*without: str) -> dict[str, str]:
    """Return the user's environment without variables that begin with one of these prefixes."""
    prefixes = ("TEST_", "RUNFILES_", "BAZEL_", *without)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(prefixes)}
    account = pwd.getpwuid(os.getuid())
    home = os.environ.get("HOME") or account.pw_dir
    return {**kept, "HOME": home, "USER": account.pw_name}


@dataclass(frozen=True)
class User:
    """A user who runs programs in a directory, with caches below it."""

    directory: Path

    def environment(self) -> dict[str, str]:
        """Return an environment that contains this checkout's qola and the shared Bazel."""
        return {
            **environment("GPU_ARCHS", "PYTHON"),
            "PYTHONPATH": os.pathsep.join([str(QOLA), *filter(None, sys.path)]),
            "QOLA_BAZEL": str(shared_bazel()),
            "XDG_CACHE_HOME": str(self.directory / "cache"),
        }

    def start(
        self,
        *command: str | Path,
        cwd: Path | None = None,
        code: int | None = 0,
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program and check its exit code; None accepts every code."""
        environ = {**self.environment(), **variables}
        result = run(command, cwd=cwd or self.directory, env=environ)
        text = result.stdout + result.stderr
        assert code in (None, result.returncode), f"{result.returncode}\n{text}"
        return result

    def qola(
        self, *args: str, code: int | None = 0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run qola."""
        command = (sys.executable, "-m", "qola", *args)
        return self.start(*command, cwd=None, code=code, **variables)

    def build(
        self, manifest: str, *args: str, code: int = 0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run qola build into out/, with the shared cache of compiled kernels."""
        command = ("build", "-m", manifest, "-o", "out", disk_cache_option(), *args)
        return self.qola(*command, code=code, **variables)


def copy_checkout(target: Path) -> None:
    """Copy the checkout without build outputs, such as those behind Bazel's links."""
    everywhere = shutil.ignore_patterns("bazel-*", ".git", "__pycache__", "*.egg-info")
    in_root = {"build", "dist", "out", "venv", ".venv"}

    def ignored(place: str, names: list[str]) -> set[str]:
        return {*everywhere(place, names), *(in_root if Path(place) == QOLA else ())}

    shutil.copytree(QOLA, target, ignore=ignored, symlinks=True)


def check_out(directory: Path, remote: str, ref: str, commit: str = "FETCH_HEAD") -> None:
    """Fetch a ref into a new repository and check a commit out. Skip the test without network."""
    for command in (
        ("init", "-q"),
        ("fetch", "-q", "--depth=1", remote, ref),
        ("checkout", "-q", commit),
    ):
        result = run(["git", "-C", directory, *command])
        if result.returncode:
            pytest.skip(f"no {remote}: {result.stderr}")


def check_sbom(output: Path) -> None:
    """Compare each file that an installed SBOM lists with the installed file."""
    files = json.loads((output / "sbom.spdx.json").read_text(encoding="utf-8"))["files"]
    assert "./manifest.json" not in [file["fileName"] for file in files]
    assert len(files) > 100
    for file in files:
        content = (output / file["fileName"]).read_bytes()
        checksums = {c["algorithm"]: c["checksumValue"] for c in file["checksums"]}
        assert checksums == {
            "SHA1": hashlib.sha1(content, usedforsecurity=False).hexdigest(),
            "SHA256": hashlib.sha256(content).hexdigest(),
        }, file["fileName"]


def places(qola: Path) -> dict[str, Path]:
    """Return the directory of each module of a checkout or release."""
    return {"qola": qola, "rules_hip": qola / "rules_hip"}


def overrides(qola: Path) -> str:
    """Return the lines of a MODULE.bazel that take qola from a directory."""
    return "\n".join(
        f'local_path_override(module_name = "{name}", path = "{place}")'
        for name, place in places(qola).items()
    )


def module_file(qola: Path, tags: str = "", *, aiter: str = "aiter") -> str:
    """Return MODULE.bazel of a consumer with one manifest, it.toml, and further tags."""
    return f"""
module(name = "it")
bazel_dep(name = "qola", version = "0.1.0")
{overrides(qola)}
qola = use_extension("@qola//rules:extensions.bzl", "qola")
qola.manifest(name = "it", aiter = "{aiter}", file = "//:it.toml")
{tags}
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
    """A workspace with an output base.

    Attributes:
        environment: variables that override those of the test.
        run_as: command prefix that changes the user, such as setpriv; () for the current user.
    """

    workspace: Path
    output_base: Path
    disk_cache: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    run_as: tuple[str, ...] = ()

    def run(self, command: str, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command; if it fails, the assertion contains its standard error."""
        argv = [*self.run_as, find_bazel(), f"--output_base={self.output_base}", IDLE, command]
        argv += [f"--disk_cache={self.disk_cache}", "--color=no", "--curses=no", *args]
        env = {**environment(), **self.environment}
        result = run(argv, cwd=self.workspace, env=env)
        assert not check or result.returncode == 0, f"{' '.join(argv)}\n{result.stderr}"
        return result

    def failure(self, *args: str) -> str:
        """Return standard error of a build that must fail."""
        result = self.run("build", *args, check=False)
        assert result.returncode != 0, "the build should have failed"
        return result.stderr

    def declare(self, tags: str = "", manifest: str = LEFT, *, aiter: str = "aiter") -> None:
        """Write MODULE.bazel with one manifest called `it` and further tags, and its it.toml."""
        self.write("MODULE.bazel", module_file(QOLA, tags, aiter=aiter))
        self.write("it.toml", manifest)

    def write(self, name: str, text: str) -> None:
        """Write a file of the workspace."""
        (self.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (self.workspace / name).write_text(text, encoding="utf-8")

    @contextmanager
    def rewritten(self, name: str, old: str, new: str) -> Iterator[None]:
        """Replace text in a file of the workspace, and restore the file afterwards."""
        text = (self.workspace / name).read_text(encoding="utf-8")
        assert old in text
        self.write(name, text.replace(old, new))
        try:
            yield
        finally:
            self.write(name, text)

    def repository(self, name: str) -> Path:
        """Return the directory of a repository by its apparent name."""
        (found,) = self.output_base.glob(f"external/*[~+]{name}")
        return found

    def plan_file(self, name: str = "it") -> Path:
        """Return the path of a manifest's plan.json."""
        return self.repository(f"qola_{name}") / "plan.json"

    def plan(self, name: str = "it") -> Plan:
        """Return the plan of a manifest that the last command wrote."""
        return Plan.from_json(self.plan_file(name).read_text(encoding="utf-8"))

    def spawns(self, *args: str) -> list[Spawn]:
        """Build and return the spawned actions, including cache hits."""
        log = self.output_base.with_suffix(".execution.json")
        self.run("build", f"--execution_log_json_file={log}", *args)
        return list(read_spawns(log))

    def kernel_keys(self, target: str) -> dict[str, tuple[str, ...]]:
        """Return the inputs of the cache key of each kernel compile below a target, by kernel name.

        These are the command line and the paths of the input files. Nothing is compiled.
        """
        text = self.run("aquery", f'mnemonic("{KERNEL_COMPILE}", deps({target}))').stdout
        keys = {}
        for action in text.split("action 'Compiling ")[1:]:
            (inputs,) = re.findall(r"^  Inputs: \[(.*)\]$", action, re.MULTILINE)
            (name,) = re.findall(r"^  Outputs: \[.*/(\S+)\.pic\.o\]$", action, re.MULTILINE)
            command = action.partition("  Command Line: ")[2].partition("\n#")[0]
            # The execution log has mapped paths; aquery prints unmapped paths.
            paths = re.sub(r"bazel-out/[^/]+/", "bazel-out/cfg/", inputs).split(", ")
            keys[name] = (command, *sorted(paths))
        return keys

    def runners(self, *args: str) -> Counter[tuple[str, str]]:
        """Build and count the spawned actions by mnemonic and by source of the result."""
        return count_spawns(self.spawns(*args))


def count_spawns(spawns: Iterable[Spawn]) -> Counter[tuple[str, str]]:
    """Count actions by mnemonic and by source of the result."""
    return Counter((spawn.mnemonic, spawn.runner) for spawn in spawns)


@contextmanager
def bazel(
    source: Path = EXAMPLE, qola: Path = QOLA, directory: Path | None = None
) -> Iterator[Bazel]:
    """Copy a consumer's workspace below `directory`, a shared_directory(), and yield its Bazel.

    Afterwards, shut the server down unless `directory` is a shared_directory(). The copy depends on
    qola by its absolute path, so that Bazel writes nothing into the checkout.
    """
    directory = directory or shared_directory()
    workspace = directory / "workspace"
    assert workspace not in _in_use, "a test has two workspaces in one directory"
    shutil.rmtree(workspace, ignore_errors=True)
    shutil.copytree(source, workspace, ignore=shutil.ignore_patterns("bazel-*"))
    module = workspace / "MODULE.bazel"
    text = module.read_text(encoding="utf-8")
    for name, place in places(qola).items():
        override = rf'(module_name = "{name}",\n    path = )"[^"]*"'
        text = re.sub(override, rf'\1"{place}"', text)
    module.write_text(text, encoding="utf-8")
    if qola.is_relative_to("/tmp"):
        # A sandbox has a private /tmp that does not contain a dependency's directory.
        with (workspace / ".bazelrc").open("a", encoding="utf-8") as file:
            file.write("build --sandbox_add_mount_pair=/tmp\n")
    instance = Bazel(workspace, directory / "output_base", user_disk_cache())
    _in_use.add(workspace)
    try:
        yield instance
    finally:
        _in_use.remove(workspace)
        if directory.parent != shared_directory().parent:
            instance.run("shutdown", check=False)


_in_use: set[Path] = set()


@contextmanager
def library(qola: Path = QOLA, directory: Path | None = None) -> Iterator[Bazel]:
    """A consumer with the forward library of it.toml, which the test writes."""
    with bazel(EXAMPLE, qola, directory) as nested:
        nested.write("MODULE.bazel", module_file(qola))
        nested.write("BUILD.bazel", BUILD_FILE)
        yield nested


def release(*args: str, cwd: Path) -> None:
    """Run the documented command in the way of `bazel run`."""
    script = QOLA / "tools/release/release.py"
    env = {**os.environ, "BUILD_WORKING_DIRECTORY": str(cwd)}
    output_of([sys.executable, script, *args], env=env)


def unpack_release(directory: Path) -> Path:
    """Build the release's archives in a directory; return the unpacked directory of qola's."""
    release("archive", "--output-dir", ".", cwd=directory)
    return unpack(directory, "qola")


def unpack(directory: Path, module: str) -> Path:
    """Unpack the archive of a module in its directory; return the unpacked directory."""
    with tarfile.open(directory / f"{module}-{__version__}.tar.gz") as tar:
        tar.extractall(directory, filter="data")
    return directory / f"{module}-{__version__}"
