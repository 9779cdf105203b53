"""bazelw end to end, with Debian's mirror: minutes and gigabytes. Run with QOLA_TEST_NETWORK=1.

Runs as root (then the set-ups run as the user nobody) or as an ordinary user.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(
    os.environ.get("QOLA_TEST_NETWORK") != "1", reason="QOLA_TEST_NETWORK=1 is not set"
)
ROOT = Path(__file__).absolute().parents[2]
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")

MODULE = """\
module(name = "scratch")
bazel_dep(name = "bazel_skylib", version = "1.7.1")
bazel_dep(name = "platforms", version = "0.0.10")
bazel_dep(name = "rules_cc", version = "0.0.11")
bazel_dep(name = "rules_pkg", version = "0.9.1")
bazel_dep(name = "rules_python", version = "0.22.1")
bazel_dep(name = "rules_shell", version = "0.2.0")
"""
BUILD = """\
load("@bazel_skylib//rules:build_test.bzl", "build_test")
load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library")
load("@rules_pkg//pkg:tar.bzl", "pkg_tar")
load("@rules_python//python:defs.bzl", "py_test")
load("@rules_shell//shell:sh_test.bzl", "sh_test")

cc_library(name = "three", srcs = ["three.cc"])
cc_binary(name = "zero", srcs = ["zero.cc"], deps = [":three"])
build_test(name = "builds", targets = [":zero"])
py_test(name = "tls", srcs = ["tls.py"])
sh_test(name = "sh", srcs = ["sh.sh"])
pkg_tar(name = "tar", srcs = [":zero"])
"""
SOURCES = {
    "MODULE.bazel": MODULE,
    "BUILD.bazel": BUILD,
    "three.cc": "int three() { return 3; }\n",
    "zero.cc": "int three();\nint main() { return three() - 3; }\n",
    "tls.py": "import ssl\nassert ssl.create_default_context().get_ca_certs()\n",
    "sh.sh": "#!/bin/sh\ntest -n \"$(awk 'BEGIN { print 1 }')\"\n",
}


class Machine:
    """A fresh user with a home directory and a checkout whose path has a space."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.workspace = home / "a workspace"
        self.roots = home / ".cache/qola/roots"
        self.as_user = NOBODY if os.geteuid() == 0 else ()
        self.uid = os.getuid() or 65534
        (self.workspace / "third_party").mkdir(parents=True)
        for name in ("bazelw", ".bazelversion"):
            shutil.copy(ROOT / name, self.workspace)
        for name in ("tools/setup", "third_party/debian"):
            shutil.copytree(ROOT / name, self.workspace / name)
        for name, text in SOURCES.items():
            (self.workspace / name).write_text(text)
        (self.workspace / "sh.sh").chmod(0o755)
        if self.as_user:
            subprocess.run(["chown", "-R", "65534:65534", str(home)], check=True)

    def start(self, *args: str, **env: str) -> subprocess.Popen[str]:
        """Starts ./bazelw in a process group of its own, without the caller's environment."""
        return subprocess.Popen(
            [*self.as_user, str(self.workspace / "bazelw"), *args],
            env={"HOME": str(self.home), "PATH": "/usr/bin:/bin"} | env,
            cwd=self.workspace,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Runs ./bazelw to its end."""
        process = self.start(*args, **env)
        out, err = process.communicate(timeout=580)
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def trees(self) -> list[Path]:
        """The directories that set-ups made, finished or not."""
        return sorted(p for p in self.roots.iterdir() if p.is_dir())

    def servers(self) -> list[int]:
        """The Bazel servers that run from this machine's trees."""
        mark = f"-Dqola.tree={self.roots}/".encode()
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # the process may be gone by now
                if mark in file.read_bytes():
                    found.append(int(file.parent.name))
        return found


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """One fresh machine; the tests below run in order and build on one another."""
    # Not below pytest's directory, which only its owner may enter.
    home = Path(tempfile.mkdtemp(prefix="bazelw-test-"))
    made = Machine(home)
    yield made
    made.run("--uninstall")
    subprocess.run(["chmod", "-R", "u+w", str(home)], check=True)
    shutil.rmtree(home)


def test_interrupted_set_up_leaves_no_tree(machine: Machine) -> None:
    """Prevents a half-made tree after kill -9, and a set-up that the next call cannot continue."""
    process = machine.start("--setup-only", QOLA_BAZEL="tree")
    wait_for(lambda: list(machine.roots.glob("*.partial/debs/*.deb")), 300)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert [path.suffix for path in machine.trees()] == [".partial"]


def test_two_set_ups_at_once(machine: Machine) -> None:
    """Prevents two set-ups from writing into each other's tree."""
    start = time.monotonic()
    both = [machine.start("--setup-only", QOLA_BAZEL="tree") for _ in range(2)]
    messages = sorted((process.communicate(timeout=580)[1] for process in both), key=len)
    assert [process.returncode for process in both] == [0, 0], messages
    assert time.monotonic() - start < 300
    assert "another set-up of the same tree is running; waiting for it" in messages[0]
    assert "bazelw: set up in" in messages[1]
    assert [path.suffix for path in machine.trees()] == [""]


def test_build_and_test_without_the_registry(machine: Machine) -> None:
    """Prevents a tree in which the project's own dependencies do not resolve, compile or run."""
    result = machine.run("test", "//...", "--color=no", "--curses=no")
    assert result.returncode == 0, result.stderr
    assert "3 tests pass" in result.stderr + result.stdout


def test_overhead(machine: Machine) -> None:
    """Prevents a wrapper that is felt: less than 0.3 s above Bazel's own client."""
    machine.run("info", "workspace")
    times = []
    for _ in range(5):
        start = time.monotonic()
        assert machine.run("--version").stdout.startswith("bazel 7.7.1")
        times.append(time.monotonic() - start)
    assert min(times) < 0.3


def test_same_paths_and_environment_inside(machine: Machine) -> None:
    """Prevents outputs, configuration or variables that differ inside and outside the tree."""
    script = 'pwd; echo "$HOME"; id -u; echo "$EXTRA"; echo "${PYTHONPATH-unset}"; ls /etc/apt'
    result = machine.run("--in-tree", "sh", "-c", script, EXTRA="kept", PYTHONPATH="/x")
    lines = result.stdout.splitlines()
    own = [str(machine.workspace), str(machine.home), str(machine.uid)]
    assert lines[:5] == [*own, "kept", "unset"]
    assert sorted(lines[5:]) == sorted(os.listdir("/etc/apt"))
    compiled = machine.run("--in-tree", "hipcc", "--version")
    assert "HIP version: 7.2" in compiled.stdout


def test_the_machines_python_runs_inside(machine: Machine) -> None:
    """Prevents: no Python to build modules for, in a virtual environment of /usr/bin/python3."""
    venv = machine.home / "venv"
    make = [*machine.as_user, "/usr/bin/python3", "-m", "venv", "--without-pip", str(venv)]
    subprocess.run(make, check=True, cwd=machine.home)
    program = os.path.realpath("/usr/bin/python3")
    # As rules/private/repositories/module_python.bzl starts it.
    script = "import ctypes, sys, sysconfig; print(sys.prefix, *sys.version_info[:2])"
    words = [str(venv / "bin/python"), program, "-I", "-c", script]
    result = machine.run("--in-tree", "bash", "-c", 'exec -a "$0" "$@"', *words)
    version = program.rpartition("python")[2].split(".")
    assert result.stdout.split() == [str(venv), *version], result.stderr


def test_ctrl_c_and_termination_reach_bazel(machine: Machine) -> None:
    """Prevents builds that go on after Ctrl-C or after a CI system ends bazelw."""
    build = machine.workspace / "BUILD.bazel"
    slow = 'genrule(name = "slow", outs = ["slow.txt"], cmd = "sleep 77; touch $@")\n'
    build.write_text(BUILD + slow)

    def sleeping() -> bool:
        command = ["pgrep", "-u", str(machine.uid), "-fx", "sleep 77"]
        return subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode == 0

    for interrupt, code in ((os.killpg, 8), (os.kill, -signal.SIGTERM)):
        process = machine.start("build", "//:slow", "--color=no")
        wait_for(sleeping)
        interrupt(process.pid, signal.SIGINT if code == 8 else signal.SIGTERM)
        _, err = process.communicate(timeout=20)
        assert process.returncode == code, err
        wait_for(lambda: not sleeping())
    build.write_text(BUILD)


def test_bazel_on_path_comes_before_the_tree(machine: Machine) -> None:
    """Prevents ignoring a Bazel of the pinned version whose registry answers."""
    programs = machine.home / "programs"
    programs.mkdir()
    bazel = programs / "bazel"
    bazel.write_text(
        "#!/bin/sh\n"
        "echo started as $0 >&2\n"
        f'QOLA_BAZEL=tree exec "{machine.workspace}/bazelw" "$@"\n'
    )
    bazel.chmod(0o755)
    path = f"{programs}:/usr/bin:/bin"
    for _ in range(2):
        result = machine.run("info", "workspace", PATH=path)
        assert result.stdout == f"{machine.workspace}\n"
        assert f"started as {bazel}" in result.stderr
    assert "looking for Bazel" not in result.stderr
    bazel.unlink()
    assert "started as" not in machine.run("info", "workspace", PATH=path).stderr


def test_doctor(machine: Machine) -> None:
    """Prevents a report that does not say which way is used."""
    result = machine.run("--doctor")
    assert result.returncode == 0, result.stdout
    assert "answer      the private tree" in result.stdout
    assert "hipcc    HIP version: 7.2" in result.stdout
    assert "(1 tree)\n" in result.stdout


def test_uninstall_stops_servers_and_removes_everything(machine: Machine) -> None:
    """Prevents servers of removed trees, and gigabytes left behind."""
    machine.run("info", "workspace")
    assert machine.servers()
    result = machine.run("--uninstall")
    assert result.returncode == 0, result.stderr
    assert "stopping the Bazel server" in result.stderr
    assert not machine.roots.exists()
    assert not machine.servers()
