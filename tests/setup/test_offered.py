"""A mirror with newer packages in signed suites, but without the locked packages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.servers.deb_files import deb, sha256
from tests.setup.machines import DEBIAN, PACKAGES, TIME, Machine, lock, replace
from tests.support.folders import write

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
CONF = "suite forky\npackage alpha\npackage base-files\n"
ROCM_CONF = """group compiler
suite forky
only clang-{llvm}
only libamdhip64-dev
group sysroot
suite forky
only base-files
"""
HIP = "HIP_VERSION_MAJOR=9\nHIP_VERSION_MINOR=8\nHIP_VERSION_PATCH=7\n"
SDK = {
    "clang_version": "22.1.8",
    "hip_version": "7.2.53211",
    "rocm_version": "7.2.4",
    "optional_flags": ["-f"],
}

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("apt-get", "dpkg-deb", "gpg"))), reason="needs apt, dpkg and gpg"
)


class Archive:
    """A signed archive with one suite."""

    def __init__(self, directory: Path, machine: Machine) -> None:
        self.directory = directory
        self.machine = machine
        self.packages = ""
        home = directory / "gnupg"
        home.mkdir(mode=0o700)
        options = ("--batch", "--yes", "--pinentry-mode", "loopback")
        self.gpg = ["gpg", "--homedir", str(home), *options]
        key = ("--quick-generate-key", "test", "rsa2048", "sign", "never")
        self.call(*self.gpg, "--passphrase", "", *key)
        keyring = directory / "keyring.gpg"
        keyring.write_bytes(self.call(*self.gpg, "--export"))
        replace(machine.workspace / "tools/setup/resolve.sh", KEYRING, str(keyring))

    def call(self, *command: str) -> bytes:
        """Run a program that must succeed, and return its output."""
        return subprocess.run(command, check=True, capture_output=True).stdout

    def add(
        self, name: str, version: str, files: dict[str, str], architecture: str = "all"
    ) -> None:
        """Build a package and add it to the suite."""
        control = (
            f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n"
            "Installed-Size: 1\n"
            "Maintainer: nobody <nobody@example.org>\nDescription: test\n"
        )
        data = deb({f"./{path}": text for path, text in files.items()}, control=control)
        # Files of the pool have no epoch in their names.
        file = f"pool/main/{name}_{version.partition(':')[2] or version}_{architecture}.deb"
        self.machine.server.content[f"/own/{file}"] = data
        self.packages += f"{control}Filename: {file}\nSize: {len(data)}\nSHA256: {sha256(data)}\n\n"

    def publish(self) -> None:
        """Sign the suite and serve it."""
        content, index = self.machine.server.content, self.packages.encode()
        release = (
            DEBIAN.decode() + "Codename: forky\nArchitectures: amd64\nComponents: main\nSHA256:\n"
        )
        release += f" {sha256(index)} {len(index)} main/binary-amd64/Packages\n"
        file = self.directory / "Release"
        file.write_text(release)
        signed = self.call(*self.gpg, "--clearsign", "--output", "-", str(file))
        content["/own/dists/forky/InRelease"] = signed
        content["/own/dists/forky/main/binary-amd64/Packages"] = index


@pytest.fixture
def updated_mirror(machine: Machine, tmp_path: Path) -> Archive:
    """A machine whose mirror has only newer versions, and which cannot reach a snapshot."""
    (tmp_path / "archive").mkdir()
    archive = Archive(tmp_path / "archive", machine)
    archive.add("alpha", "1:2-1", {"usr/lib/alpha": "new"})
    archive.add("base-files", "14", {"usr/lib/base": "new"})
    archive.add("clang-31", "1:31.2.4-1+b2", {"usr/lib/clang": "new"}, "amd64")
    archive.add("libamdhip64-dev", "9.8.1+dfsg-1~exp2", {"usr/share/hip/version": HIP}, "amd64")
    archive.publish()
    machine.sources("own")
    files = {
        "debian/packages.conf": CONF,
        "rocm/packages.conf": ROCM_CONF,
        "rocm/packages.lock": lock(PACKAGES),
        "rocm/llvm_major": "31\n",
        "rocm/sdk.json": json.dumps(SDK, indent=2) + "\n",
        "rocm_headers/packages.conf": CONF,
        "rocm_headers/packages.lock": lock(PACKAGES),
    }
    write(machine.workspace / "third_party", files)
    return archive


def replacement_lock(machine: Machine, name: str) -> Path:
    """Return the directory of the lock that replaces a lock of the checkout."""
    home = machine.variables.get("QOLA_CACHE_HOME", str(machine.directory / ".cache/qola"))
    return Path(home) / f"offered/third_party-{name}-{TIME}"


def test_the_tree_uses_newer_packages(updated_mirror: Archive) -> None:
    """Prevents: the README's first command fails after a mirror deleted the locked packages."""
    machine = updated_mirror.machine
    # A cache in the checkout, as in CI.
    machine.variables["QOLA_CACHE_HOME"] = str(machine.workspace / ".cache/qola")
    pinned = (machine.workspace / "third_party/debian/packages.lock").read_text()
    # The last step needs programs of Debian, which this tree lacks.
    finish = "tree_finish() { :; }; old=$TREE; "
    result = machine.run(
        f'{finish} make_some_tree; echo "$old"; echo "$TREE"; cat "$TREE/usr/lib/alpha"'
    )
    assert result.returncode == 0, result.stderr
    old, tree, text = result.stdout.splitlines()
    assert text == "new"
    assert old != tree, "another lock must have another tree"
    assert "3 of 3 packages that third_party/debian/packages.lock pins" in result.stderr
    assert "WARNING: NOT the packages that third_party/debian/packages.lock pins" in result.stderr
    assert (machine.workspace / "third_party/debian/packages.lock").read_text() == pinned
    new_lock = (replacement_lock(machine, "debian") / "packages.lock").read_text()
    assert re.search(
        r"^alpha 1:2-1 [0-9a-f]{64} forky \d+ pool/main/alpha_2-1_all.deb all$", new_lock, re.M
    )
    # The next call uses the replacement lock.
    result = machine.run('warn_of_offered; echo "$TREE"')
    assert result.stdout == f"{tree}\n"
    assert (
        f"to try the pinned ones again: rm -r {replacement_lock(machine, 'debian')}"
        in result.stderr
    )


def test_suites_without_a_valid_signature_are_refused(updated_mirror: Archive) -> None:
    """Prevents: a manipulated mirror can supply a compiler when the pinned one is missing."""
    content = updated_mirror.machine.server.content
    content["/own/dists/forky/InRelease"] = content["/own/dists/forky/InRelease"].replace(
        b"2026", b"2027"
    )
    result = updated_mirror.machine.run("offer third_party/debian")
    assert result.returncode == 36
    assert "no mirror serves Debian's suites: forky" in result.stderr
    assert not (replacement_lock(updated_mirror.machine, "debian") / "packages.lock").exists()


BAZEL = """#!/bin/sh
echo "$@" >>calls
[ -e {place}/packages.lock ] && exit 0
mkdir -p {place}; : >{place}/wanted
exit 7
"""


def test_bazel_runs_again_with_another_compiler(updated_mirror: Archive, tmp_path: Path) -> None:
    """Prevents: a build stops because no server has the pinned compiler."""
    machine = updated_mirror.machine
    bazel = tmp_path / "bazel"
    bazel.write_text(BAZEL.format(place=replacement_lock(machine, "rocm")))
    bazel.chmod(0o755)
    machine.variables["QOLA_BAZEL"] = str(bazel)
    result = machine.run('"$WORKSPACE/bazelw" build "//a b" && cat calls')
    assert result.returncode == 0, result.stderr
    assert [
        line.split("--bazelrc")[-1].split(" ", 1)[1] for line in result.stdout.splitlines()
    ] == ["build //a b"] * 2
    assert "WARNING: NOT the packages that third_party/rocm/packages.lock pins" in result.stderr
    sdk = json.loads((replacement_lock(machine, "rocm") / "sdk.json").read_text())
    assert sdk == {
        "clang_version": "31.2.4",
        "hip_version": "9.8.7",
        "rocm_version": "9.8.1",
        "optional_flags": ["-f"],
    }
    # bazelw also replaces packages that a later build requests, after the compiler.
    rocm = replacement_lock(machine, "rocm")
    (rocm / "wanted").rename(rocm / "fetched")
    bazel.write_text(BAZEL.format(place=replacement_lock(machine, "rocm_headers")))
    assert machine.run('"$WORKSPACE/bazelw" build').returncode == 7
    assert machine.run('"$WORKSPACE/bazelw" build').returncode == 0
    # bazelw returns the exit code of other failures.
    bazel.write_text("#!/bin/sh\nexit 5\n")
    assert machine.run('"$WORKSPACE/bazelw" build').returncode == 5


def test_refresh_updates_all_files_that_depend_on_the_lock(updated_mirror: Archive) -> None:
    """Prevents: after a refresh, versions, dates and sizes belong to the old lock."""
    machine = updated_mirror.machine
    docs = machine.workspace / "docs/guide"
    docs.mkdir(parents=True)
    (docs / "setup.md").write_text("| Download | 436 MB, 338 packages |\n")
    (docs / "bazel.md").write_text("It is fetched (117 MB) when\n")
    result = machine.run("refresh-lock")
    assert result.returncode == 0, result.stderr
    lines = (machine.workspace / "third_party/rocm/packages.lock").read_text().splitlines()
    # Six hours after the suite was signed.
    assert "# snapshot: 20261030T140801Z" in lines
    assert [line.split()[0] for line in lines if line[0] != "#"] == [
        "clang-31",
        "libamdhip64-dev",
        "base-files",
    ]
    sdk = json.loads((machine.workspace / "third_party/rocm/sdk.json").read_text())
    assert (sdk["clang_version"], sdk["hip_version"], sdk["rocm_version"]) == (
        "31.2.4",
        "9.8.7",
        "9.8.1",
    )
    assert "but for optional_flags: ./bazelw test //tests/setup:test_sdk" in result.stderr
    assert (docs / "setup.md").read_text() == "| Download | 0 MB, 2 packages |\n"
    assert (docs / "bazel.md").read_text() == "It is fetched (0 MB) when\n"
    # State after an interrupted refresh.
    (machine.workspace / "third_party/rocm/sdk.json").write_text(json.dumps(SDK, indent=2) + "\n")
    result = machine.run("refresh-lock")
    assert "third_party/rocm/packages.lock is up to date" in result.stderr
    assert json.loads((machine.workspace / "third_party/rocm/sdk.json").read_text()) == sdk
