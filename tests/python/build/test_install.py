"""The output directory: whole files, no lost result, nothing old that looks new."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qola.build.install import BuildResult, ModuleRecord, install, not_made, summarize
from tests.python.folders import read


def record(output: Path, **built: bool) -> BuildResult:
    """A record of modules by name."""
    modules = [
        ModuleRecord(
            name=name,
            md_name=f"te_{name}",
            success=success,
            error="" if success else "x.cpp:1:1: error: no",
            so_path=str(output / f"lib/te_{name}.so") if success else None,
            duration_s=1.5,
            size=3 if success else None,
            failed=[],
        )
        for name, success in built.items()
    ]
    return BuildResult(
        generated_at="2026-01-31T00:00:00+00:00",
        aiter="amd-aiter 0.1.7",
        aiter_root=None,
        manifest_src="/m.toml",
        bundle_error="",
        lazy=False,
        gpu_archs="gfx942;gfx950",
        modules=modules,
        summary=summarize(modules),
    )


def library(tmp_path: Path, text: str) -> Path:
    """A built library: read-only and executable, as Bazel leaves it."""
    path = tmp_path / "built.so"
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o555)
    return path


def test_layout(tmp_path: Path) -> None:
    """Prevents: files that QoLA's users do not find, read-only ones they cannot replace."""
    output = tmp_path / "deep" / "out"
    files: dict[str, Path | str] = {"include/qola_config.h": "// text\n"}
    files["lib/te_fwd.so"] = library(tmp_path, "new")
    install(output, files, [], record(output, fwd=True))
    assert list(read(output)) == ["include/qola_config.h", "lib/te_fwd.so", "manifest.json"]
    assert (output / "lib/te_fwd.so").stat().st_mode & 0o777 == 0o755
    assert (output / "include/qola_config.h").stat().st_mode & 0o777 == 0o644
    written = json.loads((output / "manifest.json").read_text())
    assert written == record(output, fwd=True)
    assert written["summary"] == {"total": 1, "success": 1, "failed": 0}


def test_failed_module_keeps_its_earlier_library_aside(tmp_path: Path) -> None:
    """Prevents: an earlier library lost, or one that looks like this build's."""
    output = tmp_path / "out"
    both = {f"lib/te_{m}.so": library(tmp_path, "first") for m in ("fwd", "bwd")}
    install(output, both, [], record(output, fwd=True, bwd=True))
    second = {"lib/te_fwd.so": library(tmp_path, "second")}
    install(output, second, ["lib/te_bwd.so"], record(output, fwd=True, bwd=False))
    assert list(read(output)) == ["lib/te_bwd.so.previous", "lib/te_fwd.so", "manifest.json"]
    assert (output / "lib/te_fwd.so").read_text() == "second"
    assert (output / "lib/te_bwd.so.previous").read_text() == "first"
    third = {"lib/te_bwd.so": library(tmp_path, "third")}
    install(output, third, [], record(output, bwd=True))
    # fwd is of another group this time: it stays.
    assert list(read(output)) == ["lib/te_bwd.so", "lib/te_fwd.so", "manifest.json"]


def test_failure_changes_nothing(tmp_path: Path) -> None:
    """Prevents: half an installation, and a good one lost, when a file cannot be written."""
    output = tmp_path / "out"
    install(output, {"lib/te_fwd.so": library(tmp_path, "1")}, [], record(output, fwd=True))
    before = (output / "manifest.json").read_text()
    files: dict[str, Path | str] = {
        "lib/te_fwd.so": library(tmp_path, "2"),
        "lib/te_bwd.so": tmp_path / "absent",
    }
    with pytest.raises(OSError, match="absent"):
        install(output, files, [], record(output, fwd=True, bwd=True))
    assert (output / "lib/te_fwd.so").read_text() == "1"
    assert (output / "manifest.json").read_text() == before
    assert list(read(output)) == ["lib/te_fwd.so", "manifest.json"]


def test_a_mapped_library_stays_whole(tmp_path: Path) -> None:
    """Prevents: a crash of a process that uses the library while it is replaced."""
    output = tmp_path / "out"
    install(output, {"lib/te_fwd.so": library(tmp_path, "old")}, [], record(output, fwd=True))
    with (output / "lib/te_fwd.so").open() as opened:
        files = {"lib/te_fwd.so": library(tmp_path, "new and longer")}
        install(output, files, [], record(output, fwd=True))
        assert opened.read() == "old"


def test_sources_of_an_earlier_library_go(tmp_path: Path) -> None:
    """Prevents: kernels compiled with headers of another AITER; packs of the user's own lost."""
    output = tmp_path / "out"
    sources = {f"share/qola/te/fwd/{name}": "1" for name in ("kernels.index", "include/a/old.h")}
    others = {"share/qola/te/bwd/kernels.index": "1", "bin/qola-kernels": "1"}
    install(output, {**sources, **others}, [], record(output, fwd=True))
    pack = output / "share/qola/te/packs/mine.qpack"
    pack.parent.mkdir()
    pack.write_text("pack")
    again: dict[str, Path | str] = {"share/qola/te/fwd/kernels.index": "2"}
    install(output, again, [], record(output, fwd=True), ["share/qola/te/fwd"])
    kept = ["manifest.json", pack.relative_to(output).as_posix()]
    assert list(read(output)) == sorted([*again, *others, *kept])
    assert not (output / "share/qola/te/fwd/include").exists(), "empty directories are left"
    own = [*("share/qola/te/fwd", "share/qola/te/bwd", "share/qola/te/absent"), "bin/qola-kernels"]
    install(output, {}, [], record(output, fwd=True), own)
    assert list(read(output)) == sorted(kept)
    assert not (output / "bin").exists()
    pack.unlink()
    install(output, {}, [], record(output, fwd=True), ["share/qola/te/packs"])
    assert [path.name for path in output.iterdir()] == ["manifest.json"]


def test_what_speaks_of_other_libraries() -> None:
    """Prevents: an archive, package or SBOM of an earlier build beside libraries of this one."""
    static = "lib/libqola_te.a"
    package = ["lib/cmake/qola/qola-config.cmake", "lib/cmake/qola/qola-mha_fwd.cmake"]
    files = ["sbom.spdx.json", *package, "lib/pkgconfig/qola-mha-fwd.pc"]
    left = not_made("te", ["libmha_fwd", "libmha_bwd", "module_aiter_enum"], files)
    assert static in left
    assert "lib/cmake/qola/qola-mha_bwd.cmake" in left
    assert "lib/pkgconfig/qola-static.pc" in left
    assert not set(left) & set(files)
    assert set(files) <= set(not_made("te", ["libmha_fwd"], []))
    # Modules that Python imports have no part in any of it.
    assert not_made("te", ["module_aiter_enum"], files) == []


def test_what_is_there_already_is_left_alone(tmp_path: Path) -> None:
    """Prevents: a user's whole project compiled again because its headers look new."""
    output = tmp_path / "out"
    files: dict[str, Path | str] = {"include/qola_config.h": "// text\n"}
    files["lib/te_fwd.so"] = library(tmp_path, "same")
    install(output, files, [], record(output, fwd=True))
    before = {name: (output / name).stat() for name in files}
    (output / "lib/te_fwd.so.previous").write_text("of a build that failed between")
    install(output, files, [], record(output, fwd=True))
    for name, status in before.items():
        after = (output / name).stat()
        assert (after.st_ino, after.st_mtime_ns) == (status.st_ino, status.st_mtime_ns), name
    assert not (output / "lib/te_fwd.so.previous").exists()
    (output / "lib/te_fwd.so").chmod(0o644)
    install(output, {**files, "include/qola_config.h": "// other\n"}, [], record(output, fwd=True))
    assert (output / "include/qola_config.h").read_text() == "// other\n"
    assert (output / "lib/te_fwd.so").stat().st_mode & 0o777 == 0o755
