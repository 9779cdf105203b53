"""A release: content and bytes of the archive, and its registry entry."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from qola.common.version import __version__
from tests.support.checkout import checkout_root
from tools.release.release import (
    MODULES,
    ReleaseError,
    main,
    module_of,
    write_archive,
    write_entries,
)

ROOT = checkout_root()
VALUES = {"MAINTAINER": "A Name", "OWNER": "somebody", "REPO": "kernels"}


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the archive of this checkout, written by the documented command."""
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", str(ROOT))
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    assert main(["archive", "--output-dir", "out"]) == 0
    return tmp_path / "out" / f"qola-{__version__}.tar.gz"


def read_source(registry: Path) -> dict[str, Any]:
    path = registry / "modules/qola" / __version__ / "source.json"
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def test_versions_agree() -> None:
    """Prevents: a release whose module and Python package have different versions."""
    assert module_of((ROOT / "MODULE.bazel").read_text()) == ("qola", __version__)
    assert module_of((ROOT / "rules_hip/MODULE.bazel").read_text()) == ("rules_hip", __version__)
    dependency = f'bazel_dep(name = "rules_hip", version = "{__version__}")'
    assert dependency in (ROOT / "MODULE.bazel").read_text()
    for part in ("gfxemu", "qola_base"):
        text = (ROOT / part / "pyproject.toml").read_text()
        assert f'\nversion = "{__version__}"\n' in text
        assert set(re.findall(r'"qola-base==([^"]*)"', text)) <= {__version__}
    with pytest.raises(ReleaseError, match="expected module"):
        module_of('bazel_dep(name = "qola", version = "1")')


DIRECTORIES = (
    *("gfxemu", "manifests", "qola", "qola_base", "qola_lab"),
    *("rules", "rules_hip", "runtime", "third_party", "tools"),
)


def test_content(archive: Path) -> None:
    """Prevents: an archive that lacks a needed file, or contains build outputs."""
    with tarfile.open(archive) as tar:
        members = {m.name.removeprefix(f"qola-{__version__}/"): m for m in tar}
        assert [m.name for m in members.values()] == sorted(m.name for m in members.values())
    assert {(m.uid, m.gid, m.uname, m.mtime, m.type) for m in members.values()} == {
        (0, 0, "", 0, tarfile.REGTYPE)
    }
    assert {m.mode for m in members.values()} == {0o644, 0o755}
    assert members["bazelw"].mode == 0o755
    expected = {"README.md", "CHANGELOG.md", "docs/guide/bazel.md", ".bcr/presubmit.yml"}
    for directory in DIRECTORIES:
        expected |= {
            path.relative_to(ROOT).as_posix()
            for path in (ROOT / directory).rglob("*")
            if path.is_file() and not {"__pycache__", "tests"} & {*path.relative_to(ROOT).parts}
        }
    assert expected <= members.keys()
    # Links are followed: a consumer that unpacks only this directory needs their files.
    assert {"rules_hip/gfxemu/engine.c", "rules_hip/tools/setup/ownership.sh"} <= members.keys()
    modules = ("examples/bazel/", "tests/e2e/own_rocm/", "tests/e2e/two_pins/")
    shipped = (*modules, "tests/manifests/", "tests/servers/")
    assert all(f"{module}MODULE.bazel" in members for module in modules)
    assert all(name.startswith(shipped) for name in members if name.startswith("tests/"))
    assert not [name for name in members if name.endswith(".pyc") or "bazel-bin" in name]


def test_archive_is_reproducible(archive: Path, tmp_path: Path) -> None:
    """Prevents: a digest that depends on the machine or the date."""
    file = tmp_path / "file"
    file.write_text("text")
    outputs = []
    for index, mode in enumerate((0o600, 0o664)):
        file.chmod(mode)
        os.utime(file, (index, index))
        output = tmp_path / f"{index}.tar.gz"
        write_archive({"b": file, "a": file}, output, "p")
        outputs.append(output.read_bytes())
    assert outputs[0] == outputs[1]
    before = archive.read_bytes()
    assert main(["archive", "--output-dir", "out"]) == 0
    assert archive.read_bytes() == before
    assert not list(archive.parent.glob("*.new"))


def test_entry(archive: Path, tmp_path: Path) -> None:
    """Prevents: an entry that Bazel refuses because of a wrong digest, prefix or placeholder."""
    registry = tmp_path / "registry"
    rules_hip = archive.with_name(f"rules_hip-{__version__}.tar.gz")
    write_entries([archive, rules_hip], registry, VALUES, "")
    entry_source = read_source(registry)
    digest = base64.b64encode(hashlib.sha256(archive.read_bytes()).digest()).decode()
    name = f"qola-{__version__}.tar.gz"
    assert entry_source == {
        "integrity": f"sha256-{digest}",
        "strip_prefix": f"qola-{__version__}",
        "url": f"https://github.com/somebody/kernels/releases/download/v{__version__}/{name}",
    }
    with tarfile.open(archive) as tar:
        assert {m.name.split("/")[0] for m in tar} == {entry_source["strip_prefix"]}
    hip = registry / "modules/rules_hip" / __version__
    hip_source = json.loads((hip / "source.json").read_text(encoding="utf-8"))
    assert hip_source["strip_prefix"] == f"rules_hip-{__version__}"
    assert hip_source["url"] == entry_source["url"].replace("qola-", "rules_hip-")
    assert (hip / "MODULE.bazel").read_bytes() == (ROOT / "rules_hip/MODULE.bazel").read_bytes()
    directory = registry / "modules/qola"
    assert not [p for p in registry.rglob("*") if p.is_file() and "{OWNER}" in p.read_text()]
    assert (directory / __version__ / "MODULE.bazel").read_bytes() == (
        ROOT / "MODULE.bazel"
    ).read_bytes()
    metadata = json.loads((directory / "metadata.json").read_text())
    assert metadata["versions"] == [__version__]
    assert metadata["repository"] == ["github:somebody/kernels"]
    assert metadata["maintainers"] == [{"name": "A Name"}]


def test_release_is_never_changed(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a released version that changes later, or earlier versions that are lost."""
    registry = tmp_path / "registry"
    known = registry / "modules/qola/metadata.json"
    known.parent.mkdir(parents=True)
    known.write_text(
        json.dumps({"versions": ["0.0.9", "0.10.0"], "yanked_versions": {"0.0.9": "broken"}})
    )
    command = ["entry", "--archive", str(archive), "--registry", "registry"]
    command += ["--owner", "me", "--maintainer", "A Name"]
    url = "https://example.org/files"
    assert main([*command, "--url", url]) == 0
    assert read_source(registry)["url"] == f"{url}/{archive.name}"
    metadata = json.loads(known.read_text())
    # In Bazel's order, which the registry checks.
    assert metadata["versions"] == ["0.0.9", __version__, "0.10.0"]
    assert metadata["yanked_versions"] == {"0.0.9": "broken"}
    before = {p: p.read_bytes() for p in registry.rglob("*") if p.is_file()}
    assert main(command) == 1
    assert f"has version {__version__} already" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in registry.rglob("*") if p.is_file()} == before


def test_archive_of_another_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a registry with an incomplete entry."""
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    (tmp_path / "file").write_text("text")
    write_archive({"README.md": tmp_path / "file"}, tmp_path / "x.tar.gz", "x")
    command = ["entry", "--archive", "x.tar.gz", "--registry", "registry"]
    command += ["--owner", "me", "--maintainer", "A Name"]
    assert main(command) == 1
    assert "no .bcr/metadata.template.json" in capsys.readouterr().err
    assert not (tmp_path / "registry").exists()


def test_modules_of_a_release() -> None:
    """Prevents: a module that publish-to-bcr omits, or publishes with other templates."""
    roots = yaml.safe_load((ROOT / ".bcr/config.yml").read_text())["moduleRoots"]
    assert [f"{root}/" if root != "." else "" for root in roots] == list(MODULES)


@pytest.mark.parametrize("root", MODULES)
def test_presubmit_of_the_registry(archive: Path, root: str) -> None:
    """Prevents: a presubmit whose test module is not in the archive, or uses another module."""
    presubmit = yaml.safe_load((ROOT / ".bcr" / root / "presubmit.yml").read_text())
    module = presubmit["bcr_test_module"]
    name = root.rstrip("/") or "qola"
    with tarfile.open(archive.with_name(f"{name}-{__version__}.tar.gz")) as tar:
        top = f"{name}-{__version__}/{module['module_path']}"
        file = tar.extractfile(f"{top}/MODULE.bazel")
        assert file is not None
        text = file.read().decode()
    override = f'local_path_override(\n    module_name = "{name}",\n    path = "../..",\n)'
    assert override in text
    assert os.path.normpath(os.path.join(module["module_path"], "../..")) == "."
    for task in module["tasks"].values():
        assert task["build_targets"]
        assert task["platform"] == "${{ platform }}"
        assert task["bazel"] == "${{ bazel }}"
    major = (ROOT / ".bazelversion").read_text().split(".")[0]
    assert f"{major}.x" in module["matrix"]["bazel"]
