"""The output directory: complete files, no lost results, no old files that look new."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from qola.build.bazel import BuildOptions
from qola.build.build import Built, build_all, install_build
from qola.build.events import DEFAULT_OUTPUTS, TargetResult
from qola.build.install import BuildResult, ModuleRecord, Summary, install, not_made
from qola.build.setup import resolve_build
from qola.build.workspace import BUNDLE_FILE, Workspace
from qola.plan.spec import BuildRequest, Forms
from tests.support.fake_bazel import write_bazel
from tests.support.folders import read, write


def make_record(output: Path, **built: bool) -> BuildResult:
    """Return a record of modules, by name and success."""
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
    success = sum(built.values())
    return BuildResult(
        generated_at="2026-01-31T00:00:00+00:00",
        aiter="amd-aiter==0.1.7",
        aiter_root=None,
        manifest_src="/m.toml",
        bundle_error="",
        lazy=False,
        gpu_archs="gfx942;gfx950",
        modules=modules,
        summary=Summary(total=len(built), success=success, failed=len(built) - success),
    )


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "deep/out"


def install_files(
    output: Path,
    files: Mapping[str, Path | str],
    failed: Sequence[str] = (),
    owned: Sequence[str] = (),
    **built: bool,
) -> None:
    """Install files of a build; by default, module fwd is built."""
    texts = output.parent / "texts"
    write(texts, {name: text for name, text in files.items() if isinstance(text, str)})
    paths = {name: texts / name if isinstance(f, str) else f for name, f in files.items()}
    install(output, paths, failed, make_record(output, **built or {"fwd": True}), owned)


def write_library(output: Path, text: str) -> Path:
    """Write a built library: read-only and executable, as Bazel leaves it."""
    path = output.with_name(f"{text}.so")
    write(output.parent, {path.name: text})
    path.chmod(0o555)
    return path


def test_layout(output: Path) -> None:
    """Prevents: files that QoLA's users do not find, or cannot replace since they are read-only."""
    install_files(
        output,
        {"include/qola_config.h": "// text\n", "lib/te_fwd.so": write_library(output, "new")},
    )
    assert list(read(output)) == ["include/qola_config.h", "lib/te_fwd.so", "manifest.json"]
    assert (output / "lib/te_fwd.so").stat().st_mode & 0o777 == 0o755
    assert (output / "include/qola_config.h").stat().st_mode & 0o777 == 0o644
    written = json.loads((output / "manifest.json").read_text())
    assert written == make_record(output, fwd=True)
    assert written["summary"] == {"total": 1, "success": 1, "failed": 0}


def test_library_of_a_failed_module_is_renamed(output: Path) -> None:
    """Prevents: an earlier library lost, or an earlier library that looks like this build's."""
    fwd, bwd = "lib/te_fwd.so", "lib/te_bwd.so"
    first, second, third = (write_library(output, text) for text in ("first", "second", "third"))
    install_files(output, {fwd: first, bwd: first}, fwd=True, bwd=True)
    install_files(output, {fwd: second}, failed=[bwd], fwd=True, bwd=False)
    assert list(read(output)) == ["lib/te_bwd.so.previous", fwd, "manifest.json"]
    assert (output / fwd).read_text() == "second"
    assert (output / "lib/te_bwd.so.previous").read_text() == "first"
    install_files(output, {bwd: third}, bwd=True)
    # This build, for example of another group, does not include fwd: it must not remove te_fwd.so.
    assert list(read(output)) == [bwd, fwd, "manifest.json"]


def test_failure_changes_nothing(output: Path) -> None:
    """Prevents: a partial installation that replaces a good one when a file cannot be written."""
    install_files(output, {"lib/te_fwd.so": write_library(output, "1")})
    before = read(output)
    files = {"lib/te_fwd.so": write_library(output, "2"), "lib/te_bwd.so": output / "absent"}
    with pytest.raises(OSError, match="absent"):
        install_files(output, files, fwd=True, bwd=True)
    assert read(output) == before


def test_mapped_library_is_not_overwritten(output: Path) -> None:
    """Prevents: a crash of a process that uses the library while it is replaced."""
    install_files(output, {"lib/te_fwd.so": write_library(output, "old")})
    with (output / "lib/te_fwd.so").open() as opened:
        install_files(output, {"lib/te_fwd.so": write_library(output, "new and longer")})
        assert opened.read() == "old"


def test_sources_of_an_earlier_library_are_removed(output: Path) -> None:
    """Prevents: kernels compiled with headers of another AITER, or the user's packs lost."""
    fwd, bwd, packs = (f"share/qola/te/{name}" for name in ("fwd", "bwd", "packs"))
    others = {f"{bwd}/kernels.index": "1", "bin/qola-kernels": "1"}
    install_files(output, {f"{fwd}/kernels.index": "1", f"{fwd}/include/a/old.h": "1", **others})
    pack = write(output, {f"{packs}/mine.qpack": "pack"}) / packs / "mine.qpack"
    install_files(output, {f"{fwd}/kernels.index": "2"}, owned=[fwd])
    remaining = ["manifest.json", f"{packs}/mine.qpack"]
    assert list(read(output)) == sorted([f"{fwd}/kernels.index", *others, *remaining])
    assert not (output / fwd / "include").exists(), "empty directories are left"
    install_files(output, {}, owned=[fwd, bwd, "share/qola/te/absent", "bin/qola-kernels"])
    assert list(read(output)) == sorted(remaining)
    assert not (output / "bin").exists()
    pack.unlink()
    install_files(output, {}, owned=[packs])
    assert [path.name for path in output.iterdir()] == ["manifest.json"]


def test_files_about_other_libraries_are_removed() -> None:
    """Prevents: an archive, package or SBOM of an earlier build that describes other libraries."""
    static = "lib/libqola_te.a"
    package = ["lib/cmake/qola/qola-config.cmake", "lib/cmake/qola/qola-mha_fwd.cmake"]
    files = ["sbom.spdx.json", *package, "lib/pkgconfig/qola-mha-fwd.pc"]
    removed = not_made("te", ["libmha_fwd", "libmha_bwd", "module_aiter_enum"], files)
    assert static in removed
    assert "lib/cmake/qola/qola-mha_bwd.cmake" in removed
    assert "lib/pkgconfig/qola-static.pc" in removed
    assert not set(removed) & set(files)
    assert set(files) <= set(not_made("te", ["libmha_fwd"], []))
    # Archives, packages and SBOMs do not contain modules that Python imports.
    assert not_made("te", ["module_aiter_enum"], files) == []


def test_unchanged_files_are_not_rewritten(output: Path) -> None:
    """Prevents: a user's whole project recompiled because unchanged headers look new."""
    header, so = output / "include/qola_config.h", output / "lib/te_fwd.so"
    same = write_library(output, "same")

    def times() -> list[tuple[int, int]]:
        return [(file.stat().st_ino, file.stat().st_mtime_ns) for file in (header, so)]

    install_files(output, {"include/qola_config.h": "// text\n", "lib/te_fwd.so": same})
    before = times()
    write(output, {"lib/te_fwd.so.previous": "of a build that failed between"})
    install_files(output, {"include/qola_config.h": "// text\n", "lib/te_fwd.so": same})
    assert times() == before
    assert not (output / "lib/te_fwd.so.previous").exists()
    so.chmod(0o644)
    install_files(output, {"include/qola_config.h": "// other\n", "lib/te_fwd.so": same})
    assert header.read_text() == "// other\n"
    assert so.stat().st_mode & 0o777 == 0o755


FUNCTIONS = """\
[build]
architectures = ["gfx942"]
mode = "aiter"
[[functions]]
name = "pa"
arguments = { mtp = [1, 2] }
"""


def test_functions_are_installed_for_aiter(output: Path, tmp_path: Path) -> None:
    """Prevents: a function without a record, or an earlier function that the manifest lacks."""
    (tmp_path / "serve.toml").write_text(FUNCTIONS)
    resolved = resolve_build(BuildRequest(tmp_path / "serve.toml"), {})
    names = ("pa_1", "pa_2")
    libraries = tuple(tmp_path / f"{name}.so" for name in names)
    write(tmp_path, {library.name: library.name for library in libraries})
    bundle = {f"aiter_jit/build/{name}/lib.so": f"{name}.so" for name in names}
    records = [{"name": name, "call": f"pa(mtp={name[-1]})"} for name in names]
    bundle["manifest.json"] = json.dumps({"modules": records})
    write(tmp_path / "bundle", bundle)
    write(output, {"aiter_jit/build/pa_3/lib.so": "of an earlier build"})
    result = TargetResult(True, 1.0, {DEFAULT_OUTPUTS: libraries})
    built = Built({"functions": result}, {}, {"functions": []}, tmp_path / "bundle")
    result_record = install_build(resolved, built, output)
    assert [(m["name"], m["md_name"], m["success"]) for m in result_record["modules"]] == [
        ("pa_1", "pa_1", True),
        ("pa_2", "pa_2", True),
    ]
    assert result_record["summary"] == {"total": 2, "success": 2, "failed": 0}
    installed = read(output)
    assert {name for name in installed if name.startswith("aiter_jit")} == {
        *(name for name in bundle if name.startswith("aiter_jit"))
    }
    record = json.loads(installed["manifest.json"])
    assert [module["call"] for module in record["modules"]] == ["pa(mtp=1)", "pa(mtp=2)"]
    # The record of a failed function contains Bazel's error.
    result = TargetResult(False, 1.0, {})
    failed = Built({"functions": result}, {"functions": "no such header"}, {"functions": ["pa_1"]})
    (module,) = install_build(resolved, failed, output)["modules"]
    assert (module["success"], module["error"]) == (False, "no such header")


TWO_MODULES = """\
[qola]
namespace = "two"
[build]
architectures = ["gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
[[modules]]
name = "libmha_bwd"
"""

BAZEL = """
broken = Path("broken").read_text().split()
for target in targets:
    if target in broken:
        fail(target, "error: no")
    elif target == "//bundle:bundle":
        build(target, Path("outputs/bundle/manifest.json").absolute())
    elif target == "//bundle:wheel":
        build(target, Path("outputs/qola_two-1.0-py3-none-any.whl").absolute())
    else:
        build(target, Path("outputs", target.removeprefix("//:") + ".so").absolute())
finish(1 if broken else 0)
"""


def build(directory: Path, broken: str) -> tuple[Workspace, Built]:
    """Build a manifest of two modules and a wheel. `broken` lists failing targets."""
    write(directory, {"two.toml": TWO_MODULES, ".bazelversion": "9.0"})
    bazel = write_bazel(directory, BAZEL)
    resolved = resolve_build(BuildRequest(directory / "two.toml", forms=Forms(wheel="1.0")), {})
    workspace = Workspace(resolved, [str(bazel)], directory, directory / "cache")
    with workspace.opened():
        write(workspace.directory, {"broken": broken})
        return workspace, build_all(workspace, BuildOptions(), os.environ)


@pytest.mark.parametrize("broken", ["//:libmha_bwd", "//:libmha_fwd //:libmha_bwd"])
def test_failed_module_prevents_the_wheel(tmp_path: Path, broken: str) -> None:
    """Prevents: a wheel without a failed module, or an earlier wheel that looks current."""
    workspace, built = build(tmp_path, broken)
    names = ", ".join(broken.replace("//:", "").split())
    file = (tmp_path / "two.toml").as_posix()
    assert built.wheels == ()
    assert f"found     failed: {names}\n" in built.bundle_error
    assert built.bundle_error.endswith(f"qola build {file} --wheel 1.0")
    all_failed = "libmha_fwd" in broken
    assert (built.bundle is None) == all_failed
    assert all_failed or "qola_wheel" not in (workspace.directory / BUNDLE_FILE).read_text()
    output = tmp_path / "out"
    earlier, other = "dist/qola_two-1.0-py3-none-any.whl", "dist/qola_two-0.9-py3-none-any.whl"
    write(output, {earlier: "earlier", other: "other"})
    result = install_build(workspace.chosen, built, output)
    assert "wheel" not in result
    assert result["bundle_error"] == built.bundle_error
    assert [path for path in read(output) if "dist" in path] == [other, f"{earlier}.previous"]


def test_complete_build_has_a_wheel(tmp_path: Path) -> None:
    """Prevents: a wheel refused although all modules were built."""
    workspace, built = build(tmp_path, "")
    assert (len(built.wheels), built.bundle_error) == (1, "")
    result = install_build(workspace.chosen, built, tmp_path / "out")
    assert result["wheel"] == str(tmp_path / "out/dist/qola_two-1.0-py3-none-any.whl")
