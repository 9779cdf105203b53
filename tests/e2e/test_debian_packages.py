"""Pinned Debian packages in a repository rule: all sources of packages, and all refused sources.

The tests build the packages and serve them on the loopback interface, without other network access.
"""

from __future__ import annotations

import os
import shutil
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
bazel_dep(name = "rules_hip", version = "0.1.0")
{overrides(QOLA)}
packages = use_extension("//:packages.bzl", "packages")
use_repo(packages, "one", "two")
"""
RULE = """
load("@rules_hip//repositories:debian_packages.bzl", "fetch_packages")

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
    """Build a Debian package in the format of older packages."""
    control = "Package: x\nVersion: 1\nArchitecture: all\n"
    return deb_files.deb(files, ".gz", control, links)


@pytest.fixture
def mirror() -> Iterator[Files]:
    """A mirror of two packages. The version of the first has characters that URLs escape."""
    links = {"./usr/lib/libx.so": "/lib/libx.so.1", "./usr/lib/dangling.so": "/nowhere/else.so"}
    files = {"./lib/libx.so.1": "library\n", "./usr/share/doc/lib/copyright": "unread\n"}
    content = {LIB: deb(files, links), TOOL: deb({"./usr/bin/tool": "tool\n"}, {})}
    with serving(Files(content)) as files_of_mirror:
        yield files_of_mirror


def make_lock(mirror: Files) -> str:
    """Return a lock of the mirror's packages."""
    lock = f"# snapshot: {TIME}\n"
    for package, path in (("lib 1+b1~x", LIB), ("tool 2", TOOL)):
        lock += f"{package} {sha256(mirror.content[path])} forky 1 {path[1:]} group\n"
    return lock


@dataclass(frozen=True)
class Workspace:
    """A workspace with two repositories that have equal packages."""

    bazel: Bazel
    cache: Path
    repository_cache: Path

    def declare(
        self,
        mirrors: list[str],
        apt_helper: str = "/no/apt-helper",
        snapshot: str = "http://127.0.0.1:1",
    ) -> None:
        """Write the repository rule again."""
        rule = RULE.format(mirrors=mirrors, apt_helper=apt_helper, snapshot=snapshot)
        self.bazel.write("packages.bzl", rule)

    @property
    def offered(self) -> Path:
        """The directory of bazelw's replacement for the lock."""
        return self.cache / f"offered/-{TIME}"

    @property
    def _cache_option(self) -> str:
        return f"--repository_cache={self.repository_cache}"

    def fetch(self, *targets: str) -> str:
        """Build the files of the repositories; return standard error."""
        return self.bazel.run("build", self._cache_option, *targets).stderr

    def failure(self) -> str:
        """Return standard error of a fetch that must fail."""
        return self.bazel.failure(self._cache_option, "@one//:files")

    def group(self, name: str) -> Path:
        """The directory of the unpacked packages in a repository."""
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
    """A workspace with empty caches, and the mirror with a lock of its packages."""
    monkeypatch.setenv("QOLA_CACHE_HOME", str(tmp_path / "cache"))
    # Bazel must not reuse repositories of another test.
    nested.write("packages.lock", f"# {tmp_path}\n{make_lock(mirror)}")
    found = Workspace(nested, tmp_path / "cache", tmp_path / "repositories")
    found.declare([mirror.url])
    return found


def content(directory: Path) -> dict[str, str]:
    """Return the text or link target of each file below a directory, by relative path."""
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
    """Prevents: links leave the packages; a race breaks the store; each workspace has a copy."""
    workspace.fetch("@one//:files", "@two//:files")
    one, two = workspace.group("one"), workspace.group("two")
    assert content(one) == UNPACKED
    assert content(two) == UNPACKED
    tool = (one / "usr/bin/tool").stat()
    assert tool.st_ino == (two / "usr/bin/tool").stat().st_ino
    assert tool.st_mode & 0o222 == 0
    assert len(list((workspace.cache / "unpacked").iterdir())) == 1


def test_unpacked_packages_need_no_mirror(workspace: Workspace, mirror: Files) -> None:
    """Prevents: each workspace downloads the packages again."""
    workspace.fetch("@one//:files")
    shutil.rmtree(workspace.repository_cache)
    mirror.requests.clear()
    workspace.declare(["http://127.0.0.1:1"])
    workspace.fetch("@one//:files")
    assert content(workspace.group("one")) == UNPACKED
    assert not mirror.requests


@pytest.mark.parametrize("pattern", ["", "unpacked", "unpacked/*"])
def test_a_cache_writable_by_others_is_not_used(
    workspace: Workspace, mirror: Files, pattern: str
) -> None:
    """Prevents: Bazel runs a compiler that another user wrote into the shared cache."""
    workspace.fetch("@one//:files")
    (tool,) = (workspace.cache / "unpacked").glob("*/usr/bin/tool")
    tool.unlink()
    tool.write_text("planted\n", encoding="utf-8")
    (shared,) = workspace.cache.glob(pattern) if pattern else (workspace.cache,)
    shared.chmod(0o777)
    text = workspace.fetch("@two//:files")
    assert f"{shared} is writable by " in text
    assert content(workspace.group("two")) == UNPACKED
    assert tool.read_text(encoding="utf-8") == "planted\n"


def test_repository_cache_needs_no_mirror(
    workspace: Workspace, mirror: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Prevents: a fetch fails offline although --repository_cache has each package."""
    workspace.fetch("@one//:files")
    mirror.requests.clear()
    # A file instead of the directory: not writable, even for root.
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("QOLA_CACHE_HOME", str(tmp_path / "file"))
    workspace.declare([])
    workspace.fetch("@one//:files")
    assert content(workspace.group("one")) == UNPACKED
    assert not mirror.requests


def test_tampered_package_is_refused_by_name(workspace: Workspace, mirror: Files) -> None:
    """Prevents: a changed compiler is used, or the error does not name the package."""
    pinned = sha256(mirror.content[TOOL])
    mirror.content[TOOL] += b"\n"
    text = workspace.failure()
    assert f"tool 2, pool/main/tool_2_amd64.deb, sha256 {pinned}\n" in text
    assert f"Download from {mirror.url}/pool/main/tool_2_amd64.deb failed" in text
    assert f"Checksum was {sha256(mirror.content[TOOL])} but wanted {pinned}" in text
    assert not list((workspace.cache / "unpacked").glob("*"))


def test_an_error_lists_all_missing_packages(workspace: Workspace, mirror: Files) -> None:
    """Prevents: an error lists one missing package per try; bazelw cannot replace the lock."""
    del mirror.content[LIB], mirror.content[TOOL]
    text = workspace.failure()
    assert "packages.lock, as of 2026-10-30 14:08 UTC\n" in text
    assert "nobody has 2 of 2 (the warnings above say what each answered):\n" in text
    assert "            lib 1+b1~x, pool/main/lib_1+b1~x_amd64.deb, sha256 " in text
    assert "            tool 2, pool/main/tool_2_amd64.deb, sha256 " in text
    assert f"Download from {mirror.url}/pool/main/lib_1%2Bb1%7Ex_amd64.deb failed" in text
    servers = f"              {mirror.url}\n              http://127.0.0.1:1/{TIME}\n"
    assert f"            asked:\n{servers}" in text
    assert 'line("of MODULE.bazel") names one, as does QOLA_DEBIAN_MIRROR' in text
    assert [path.name for path in workspace.offered.iterdir()] == ["wanted"]


def test_packages_that_mirrors_deleted_come_from_the_snapshot(
    workspace: Workspace, mirror: Files
) -> None:
    """Prevents: a compiler cannot be fetched after the mirrors deleted its packages."""
    prefix = f"/snapshot/{TIME}"
    mirror.content[prefix + LIB] = mirror.content.pop(LIB)
    workspace.declare([mirror.url], snapshot=f"{mirror.url}/snapshot")
    workspace.fetch("@one//:files")
    assert content(workspace.group("one")) == UNPACKED
    requested = [path.replace("%2B", "+").replace("%7E", "~") for path in mirror.paths()]
    assert requested.index(LIB) < requested.index(prefix + LIB)
    assert prefix + TOOL not in requested, "the mirror had it"
    assert [path.name for path in workspace.offered.iterdir()] == ["fetched"]


def test_packages_that_bazelw_resolved_are_used(workspace: Workspace, mirror: Files) -> None:
    """Prevents: the rule requests missing packages again, or uses other packages silently."""
    workspace.offered.mkdir(parents=True)
    newer = "/pool/main/tool_3_amd64.deb"
    mirror.content = {newer: deb({"./usr/bin/tool": "newer\n"}, {})}
    line = f"tool 3 {sha256(mirror.content[newer])} forky 1 {newer[1:]} group\n"
    (workspace.offered / "packages.lock").write_text(line, encoding="utf-8")
    text = workspace.fetch("@one//:files")
    assert content(workspace.group("one")) == {"usr/bin/tool": "newer\n"}
    assert "qola: NOT the packages that" in text


@pytest.mark.skipif(not Path(APT_HELPER).exists(), reason="needs apt")
def test_apt_fetches_and_verifies(
    workspace: Workspace, mirror: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Prevents: Bazel uses unverified files of apt, or does not cache them."""
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
    # The first fetch stored the correct package in the repository cache.
    assert mirror.paths() == [release, TOOL]


def test_without_dpkg(
    workspace: Workspace, mirror: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Prevents: a distribution without dpkg unpacks other files than Debian."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for directory in os.get_exec_path():
        for program in Path(directory).glob("*"):
            link = programs / program.name
            # The first directory on PATH wins, even if its program is a dangling link.
            if not program.name.startswith("dpkg") and not os.path.lexists(link):
                link.symlink_to(program)
    monkeypatch.setenv("PATH", str(programs))
    workspace.fetch("@one//:files")
    assert content(workspace.group("one")) == UNPACKED
