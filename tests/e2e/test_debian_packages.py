"""Pinned Debian packages in a repository rule: each way they come, and each way they may not.

The packages are made here and served on the loopback interface; nothing is fetched from elsewhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.nested_bazel import QOLA, Bazel, overrides
from tests.servers import deb_files
from tests.servers.deb_files import sha256
from tests.servers.http_files import Files, serving

LIB, TOOL = "/pool/main/lib_1+b1~x_amd64.deb", "/pool/main/tool_2_amd64.deb"
TIME = "20261030T140801Z"
APT_HELPER = "/usr/lib/apt/apt-helper"
MODULE = f"""
module(name = "packages")
bazel_dep(name = "qola", version = "0.1.0")
{overrides(QOLA)}
packages = use_extension("//:packages.bzl", "packages")
use_repo(packages, "one", "two")
"""
RULE = """
load("@qola//rules/private/repositories:debian_packages.bzl", "fetch_packages")

def _impl(rctx):
    fetch_packages(
        rctx,
        Label("//:packages.lock"),
        mirrors = {mirrors},
        mirrors_line = 'line("of MODULE.bazel")',
        apt_helper = "{apt_helper}",
        snapshot = "{snapshot}",
    )
    rctx.file("BUILD.bazel", "filegroup(name = 'files', srcs = glob(['*/**']))")

_repository = repository_rule(_impl)

def _packages(mctx):
    for name in ["one", "two"]:
        _repository(name = name)

packages = module_extension(_packages)
"""


def deb(files: dict[str, str], links: dict[str, str]) -> bytes:
    """A Debian package as older ones are."""
    control = "Package: x\nVersion: 1\nArchitecture: all\n"
    return deb_files.deb(files, ".gz", control, links)


@pytest.fixture
def mirror() -> Iterator[Files]:
    """A mirror of two packages; the version of one has characters that URLs escape."""
    links = {"./usr/lib/libx.so": "/lib/libx.so.1", "./usr/lib/dangling.so": "/nowhere/else.so"}
    files = {"./lib/libx.so.1": "library\n", "./usr/share/doc/lib/copyright": "unread\n"}
    content = {LIB: deb(files, links), TOOL: deb({"./usr/bin/tool": "tool\n"}, {})}
    with serving(Files(content)) as made:
        yield made


def lock_of(mirror: Files) -> str:
    """A lock of what the mirror has."""
    lock = f"# snapshot: {TIME}\n"
    for package, path in (("lib 1+b1~x", LIB), ("tool 2", TOOL)):
        lock += f"{package} {sha256(mirror.content[path])} forky 1 {path[1:]} group\n"
    return lock


@dataclass(frozen=True)
class Workspace:
    """A workspace with two repositories of the same packages."""

    bazel: Bazel
    cache: Path
    repository_cache: Path

    def declare(
        self,
        mirrors: list[str],
        apt_helper: str = "/no/apt-helper",
        snapshot: str = "http://127.0.0.1:1",
    ) -> None:
        """Write the repository rule anew."""
        rule = RULE.format(mirrors=mirrors, apt_helper=apt_helper, snapshot=snapshot)
        self.bazel.write("packages.bzl", rule)

    @property
    def offered(self) -> Path:
        """Where bazelw keeps what stands in for the lock."""
        return self.cache / f"offered/-{TIME}"

    def fetch(self, *targets: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Build the repositories' files."""
        cache = f"--repository_cache={self.repository_cache}"
        return self.bazel.run("build", cache, *targets, check=check)

    def failure(self) -> str:
        """Standard error of a fetch that has to fail."""
        result = self.fetch("@one//:files", check=False)
        assert result.returncode != 0, "the fetch should have failed"
        return result.stderr

    def group(self, name: str) -> Path:
        """Where a repository has what was unpacked."""
        return self.bazel.repository(f"packages~{name}") / "group"


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bazel]:
    """One Bazel server for all tests."""
    directory = tmp_path_factory.mktemp("packages")
    instance = Bazel(directory / "workspace", directory / "output_base", directory / "disk")
    instance.workspace.mkdir()
    instance.write("MODULE.bazel", MODULE)
    instance.write("BUILD.bazel", "")
    yield instance
    instance.run("shutdown", check=False)


@pytest.fixture
def workspace(
    nested: Bazel, mirror: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Workspace:
    """Empty caches, and a lock of what the mirror has."""
    monkeypatch.setenv("QOLA_CACHE_HOME", str(tmp_path / "cache"))
    # Another test's repositories must not serve this one.
    nested.write("packages.lock", f"# {tmp_path}\n{lock_of(mirror)}")
    return Workspace(nested, tmp_path / "cache", tmp_path / "repositories")


def content(directory: Path) -> dict[str, str]:
    """Relative path -> text or link target of everything below a directory."""
    return {
        str(path.relative_to(directory)): f"-> {os.readlink(path)}"
        if path.is_symlink()
        else path.read_text(encoding="utf-8")
        for path in sorted(directory.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


UNPACKED = {
    "lib/libx.so.1": "library\n",
    "usr/bin/tool": "tool\n",
    "usr/lib/libx.so": "-> ../../lib/libx.so.1",
}


def test_two_repositories_at_once_share_files(workspace: Workspace, mirror: Files) -> None:
    """Prevents: links out of the packages, half a store under a race, a copy per workspace."""
    workspace.declare([mirror.url])
    workspace.fetch("@one//:files", "@two//:files")
    one, two = workspace.group("one"), workspace.group("two")
    assert content(one) == UNPACKED
    assert content(two) == UNPACKED
    tool = (one / "usr/bin/tool").stat()
    assert tool.st_ino == (two / "usr/bin/tool").stat().st_ino
    assert tool.st_mode & 0o222 == 0
    assert len(list((workspace.cache / "unpacked").iterdir())) == 1


def test_what_is_unpacked_needs_no_mirror(workspace: Workspace, mirror: Files) -> None:
    """Prevents: a download per workspace."""
    workspace.declare([mirror.url])
    workspace.fetch("@one//:files")
    shutil.rmtree(workspace.repository_cache)
    mirror.requests.clear()
    workspace.declare(["http://127.0.0.1:1"])
    workspace.fetch("@one//:files")
    assert content(workspace.group("one")) == UNPACKED
    assert not mirror.requests


@pytest.mark.parametrize("place", ["", "unpacked", "unpacked/*"])
def test_what_another_user_unpacked(workspace: Workspace, mirror: Files, place: str) -> None:
    """Prevents: a compiler that another user put where packages are shared."""
    workspace.declare([mirror.url])
    workspace.fetch("@one//:files")
    (tool,) = (workspace.cache / "unpacked").glob("*/usr/bin/tool")
    tool.unlink()
    tool.write_text("planted\n", encoding="utf-8")
    (shared,) = workspace.cache.glob(place) if place else (workspace.cache,)
    shared.chmod(0o777)
    text = workspace.fetch("@two//:files").stderr
    assert f"{shared} is writable by " in text
    assert content(workspace.group("two")) == UNPACKED
    assert tool.read_text(encoding="utf-8") == "planted\n"


def test_repository_cache_needs_no_mirror(
    workspace: Workspace, mirror: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Prevents: a machine whose --repository_cache has every package and that fails offline."""
    workspace.declare([mirror.url])
    workspace.fetch("@one//:files")
    mirror.requests.clear()
    # A file where the directory would be: unwritable for root too.
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("QOLA_CACHE_HOME", str(tmp_path / "file"))
    workspace.declare([])
    workspace.fetch("@one//:files")
    assert content(workspace.group("one")) == UNPACKED
    assert not mirror.requests


def test_tampered_package_is_refused_by_name(workspace: Workspace, mirror: Files) -> None:
    """Prevents: a compiler that is not the pinned one, or a refusal that does not say which."""
    pinned = sha256(mirror.content[TOOL])
    mirror.content[TOOL] += b"\n"
    workspace.declare([mirror.url])
    text = workspace.failure()
    assert f"tool 2, pool/main/tool_2_amd64.deb, sha256 {pinned}\n" in text
    assert f"Download from {mirror.url}/pool/main/tool_2_amd64.deb failed" in text
    assert f"Checksum was {sha256(mirror.content[TOOL])} but wanted {pinned}" in text
    assert not list((workspace.cache / "unpacked").glob("*"))


def test_all_that_is_nowhere_is_named_with_its_date(workspace: Workspace, mirror: Files) -> None:
    """Prevents: one missing package a try, without a date, and a bazelw that cannot go on."""
    del mirror.content[LIB], mirror.content[TOOL]
    workspace.declare([mirror.url])
    text = workspace.failure()
    assert "packages.lock, as of 2026-10-30 14:08 UTC\n" in text
    assert "nobody has 2 of 2 (the warnings above say what each answered):\n" in text
    assert "            lib 1+b1~x, pool/main/lib_1+b1~x_amd64.deb, sha256 " in text
    assert "            tool 2, pool/main/tool_2_amd64.deb, sha256 " in text
    assert f"Download from {mirror.url}/pool/main/lib_1%2Bb1%7Ex_amd64.deb failed" in text
    asked = f"              {mirror.url}\n              http://127.0.0.1:1/{TIME}\n"
    assert f"            asked:\n{asked}" in text
    assert 'line("of MODULE.bazel") names one, as does QOLA_DEBIAN_MIRROR' in text
    assert [path.name for path in workspace.offered.iterdir()] == ["wanted"]


def test_the_snapshot_has_what_mirrors_lost(workspace: Workspace, mirror: Files) -> None:
    """Prevents: Debian alone as the place where a compiler can be fetched, and this year alone."""
    below = f"/snapshot/{TIME}"
    mirror.content[below + LIB] = mirror.content.pop(LIB)
    workspace.declare([mirror.url], snapshot=f"{mirror.url}/snapshot")
    workspace.fetch("@one//:files")
    assert content(workspace.group("one")) == UNPACKED
    asked = [path.replace("%2B", "+").replace("%7E", "~") for path in mirror.paths()]
    assert asked.index(LIB) < asked.index(below + LIB)
    assert below + TOOL not in asked, "the mirror had it"
    assert [path.name for path in workspace.offered.iterdir()] == ["fetched"]


def test_what_bazelw_resolved_stands_in(workspace: Workspace, mirror: Files) -> None:
    """Prevents: a rule that goes on asking for what is nowhere, or takes others silently."""
    workspace.declare([mirror.url])
    workspace.offered.mkdir(parents=True)
    newer = "/pool/main/tool_3_amd64.deb"
    mirror.content = {newer: deb({"./usr/bin/tool": "newer\n"}, {})}
    line = f"tool 3 {sha256(mirror.content[newer])} forky 1 {newer[1:]} group\n"
    (workspace.offered / "packages.lock").write_text(line, encoding="utf-8")
    result = workspace.fetch("@one//:files")
    assert content(workspace.group("one")) == {"usr/bin/tool": "newer\n"}
    assert "qola: NOT the packages that" in result.stderr


@pytest.mark.skipif(not Path(APT_HELPER).exists(), reason="needs apt")
def test_apt_fetches_and_verifies(
    workspace: Workspace, mirror: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Prevents: files of apt that nobody verified, or that the repository cache does not keep."""
    (tmp_path / "none").mkdir()
    (tmp_path / "sources.list").write_text(f"deb {mirror.url} forky main\n", encoding="utf-8")
    configuration = f'Dir::Etc::sourcelist "{tmp_path}/sources.list";\n'
    configuration += f'Dir::Etc::sourceparts "{tmp_path}/none";\n'
    (tmp_path / "apt.conf").write_text(configuration, encoding="utf-8")
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    release = "/dists/forky/InRelease"
    mirror.content[release] = b"Origin: Debian\n"
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    good = mirror.content[TOOL]
    mirror.content[TOOL] += b"\n"
    workspace.declare([], APT_HELPER)
    text = workspace.failure()
    assert sha256(good) in text
    assert sha256(mirror.content[TOOL]) in text
    assert "nobody has 1 of 2" in text

    mirror.content[TOOL] = good
    mirror.requests.clear()
    workspace.fetch("@one//:files")
    assert content(workspace.group("one")) == UNPACKED
    # The package that was right the first time came from the repository cache.
    assert mirror.paths() == [release, TOOL]


def test_without_dpkg(
    workspace: Workspace, mirror: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Prevents: other files on a distribution without dpkg than on Debian."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for directory in os.get_exec_path():
        for program in Path(directory).glob("*"):
            link = programs / program.name
            # Of two directories the first counts, also where its program is a link to nothing.
            if not program.name.startswith("dpkg") and not os.path.lexists(link):
                link.symlink_to(program)
    monkeypatch.setenv("PATH", str(programs))
    workspace.declare([mirror.url])
    workspace.fetch("@one//:files")
    assert content(workspace.group("one")) == UNPACKED
