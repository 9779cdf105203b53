"""The workspace of qola build: its files and its directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from qola.build import workspace
from qola.build.setup import ResolvedBuild, resolve_build
from qola.checkout.source import AiterSource, GitSource, LocalSource, WheelSource
from qola.manifest.load import loads
from qola.plan.spec import BuildRequest, BuildSpec, Forms
from tests.support.folders import read, write

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden" / "workspace"
CACHE = Path("/home/user/.cache/qola")
ATTENTION = '[[modules]]\nname = "libmha_fwd"\n[[modules]]\nname = "libmha_bwd"\n'
FOR_AITER = '[build]\nmode = "aiter"\n'
TRITON_KERNEL = '[[triton]]\nkernels = ["scale"]\nfile = "kernels/mine.py"\n'


def make_workspace(
    text: str = ATTENTION,
    file: Path = Path("/a/te-manifest.toml"),
    ruleset: Path = Path("/opt/qola"),
    cache: Path = CACHE,
    **chosen: Any,
) -> workspace.Workspace:
    """Return the workspace of a manifest's text; `chosen` has fields of a ResolvedBuild."""
    manifest = loads(text, file=file.name)
    values = {"aiter": AiterSource(WheelSource("0.1.7", "a" * 64)), **chosen}
    resolved = ResolvedBuild(manifest, file, manifest.modules, **values)
    return workspace.Workspace(resolved, (), ruleset, cache)


PLAIN = make_workspace()


def compare_golden(name: str, text: str) -> None:
    """Compare a text with a golden file. QOLA_UPDATE_GOLDEN=1 writes the file instead."""
    if os.environ.get("QOLA_UPDATE_GOLDEN"):
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()


@pytest.mark.parametrize("name", ["MODULE.bazel", "BUILD.bazel", ".bazelrc"])
def test_files(name: str) -> None:
    """Prevents: unnoticed changes of the workspace, which change builds."""
    files = PLAIN.files(CACHE / "workspaces/it", CACHE / "outputs/abc-1/base")
    compare_golden(f"{name.lstrip('.')}.txt", files[name])
    assert files["te_manifest.toml"] == ATTENTION


def test_every_option_is_written() -> None:
    """Prevents: an option of the command line that Bazel does not get."""
    everything = make_workspace(
        aiter=AiterSource(LocalSource(Path("/src/aiter")), Path("/src/patches")),
        spec=BuildSpec(("gfx942", "gfx950"), "cpp_itfs", "filtered", override_aiter_commit=True),
    )
    files = everything.files(CACHE, CACHE)
    compare_golden("spec.json", files["te_manifest.json"])
    compare_golden("everything.txt", files["MODULE.bazel"])


@pytest.mark.parametrize("kind", ["", "lazy", "split", "static"])
def test_bundle(kind: str) -> None:
    """Prevents: a bundle of other libraries than were built."""
    wheel = "1.0" if kind == "split" else ""
    forms = Forms(kind == "lazy", kind == "static", kind == "split", wheel, jax=bool(wheel))
    text = PLAIN.bundle_file(PLAIN.modules, forms)
    compare_golden(f"{kind and f'{kind}_'}bundle.txt", text)


def test_modules_for_aiter_s_python() -> None:
    """Prevents: a bundle or wheel without a module, or one that needs an installed qola."""
    changed = make_workspace(f'{FOR_AITER}[[modules]]\nname = "module_norm"\n')
    text = changed.bundle_file(["module_norm", "module_quant"], Forms(wheel="1.2"))
    compare_golden("aiter_bundle.txt", text)


def test_functions_of_aiter_s_second_jit() -> None:
    """Prevents: functions of a manifest that `qola build` omits, or a bundle without functions."""
    changed = make_workspace(f'{FOR_AITER}[[functions]]\nname = "pa"\n')
    assert (
        'name = "functions",\n    srcs = ["@qola_te_manifest//:functions"],' in changed.build_file()
    )
    bundle = changed.bundle_file(["functions"], Forms())
    assert 'functions = "@qola_te_manifest//:functions",\n    libraries = [],' in bundle


def test_files_of_triton_kernels(tmp_path: Path) -> None:
    """Prevents: a manifest that cannot be planned because the workspace lacks its Python files."""
    write(tmp_path, {"kernels/mine.py": "import triton\n"})
    changed = make_workspace(TRITON_KERNEL, tmp_path / "m.toml")
    assert changed.files(CACHE, CACHE)["kernels/mine.py"] == "import triton\n"


def test_library_of_triton_kernels() -> None:
    """Prevents: Triton kernels of a manifest that `qola build` omits, or a bundle without them."""
    changed = make_workspace(f'{ATTENTION}[[triton]]\nkernels = ["attention_forward"]\n')
    compare_golden("triton_BUILD.bazel.txt", changed.build_file())
    lazy = Forms(lazy=True, wheel="1.2")
    compare_golden("triton_bundle.txt", changed.bundle_file(["libmha_fwd", "triton"], lazy))
    compare_golden("triton_alone_bundle.txt", changed.bundle_file(["triton"], Forms(static=True)))
    assert workspace.targets(["triton"], True) == ["//:triton"]


def test_selected_parts_of_a_manifest(tmp_path: Path) -> None:
    """Prevents: a manifest with only [[triton]] refused, or kernels built that --group excludes."""
    manifest = tmp_path / "m.toml"
    triton = '[build]\narchitectures = ["gfx942"]\n[[triton]]\nkernels = ["attention_forward"]\n'
    manifest.write_text(triton)
    assert resolve_build(BuildRequest(manifest), {}).names == ["triton"]
    manifest.write_text(f'{triton}[[modules]]\nname = "libmha_fwd"\ngroup = "a"\n')
    assert resolve_build(BuildRequest(manifest), {}).names == ["libmha_fwd", "triton"]
    resolved = resolve_build(BuildRequest(manifest, groups=("a",)), {})
    assert resolved.names == ["libmha_fwd"]
    head = '[build]\narchitectures = ["gfx942"]\nmode = "aiter"\n[[functions]]\nname = "pa"\n'
    manifest.write_text(f'{head}[[modules]]\nname = "module_norm"\ngroup = "a"\n')
    resolved = resolve_build(BuildRequest(manifest), {})
    assert (resolved.names, resolved.is_whole) == (["module_norm", "functions"], True)
    resolved = resolve_build(BuildRequest(manifest, groups=("a",)), {})
    assert (resolved.names, resolved.is_whole) == (["module_norm"], False)


def test_modules_without_a_lazy_form() -> None:
    """Prevents: a lazy target of a Python module, which does not exist and breaks every build."""
    modules = ("libmha_fwd", "module_aiter_enum")
    assert workspace.targets(modules, True) == ["//:libmha_fwd_lazy", "//:module_aiter_enum"]
    assert workspace.targets(modules) == ["//:libmha_fwd", "//:module_aiter_enum"]
    text = "".join(f'[[modules]]\nname = "{name}"\n' for name in modules)
    assert "module_aiter_enum_lazy" not in make_workspace(text).build_file()


def test_space_in_the_cache_path() -> None:
    """Prevents: a path with a space that Bazel reads as two options."""
    changed = make_workspace(cache=Path("/home/a user"))
    files = changed.files(Path("/cache/it"), Path("/home/a user/base"))
    lines = files[".bazelrc"].splitlines()
    assert "common '--disk_cache=/home/a user/disk'" in lines
    assert "startup '--output_base=/home/a user/base'" in lines


def test_commit() -> None:
    """Prevents: a commit that is built from another remote, or from the wheel."""
    tag = AiterSource(GitSource("https://example.invalid/aiter.git", "b" * 40)).to_starlark()
    lines = [f'    commit = "{"b" * 40}",', '    remote = "https://example.invalid/aiter.git",']
    assert tag.splitlines() == ["qola.aiter_git(", *lines, ")"]


def test_sandbox_mounts_sources_below_tmp() -> None:
    """Prevents: sources below /tmp that actions cannot read: the sandbox has a separate /tmp."""
    cache, base = Path("/cache/it"), Path("/cache/base")
    assert "/tmp" not in PLAIN.files(cache, base)[".bazelrc"]
    local = AiterSource(LocalSource(Path("/tmp/aiter")))
    for changed, *places in (
        (PLAIN, Path("/tmp/it"), base),
        (PLAIN, cache, Path("/tmp/base")),
        (make_workspace(ruleset=Path("/tmp/qola")), cache, base),
        (make_workspace(aiter=local), cache, base),
    ):
        assert "--sandbox_add_mount_pair=/tmp" in changed.files(*places)[".bazelrc"]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("te-manifest.toml", "te_manifest"),
        ("Te.v2.toml", "te_v2"),
        ("python.toml", "m_python"),
        ("torch.toml", "m_torch"),
        ("pip_a.toml", "m_pip_a"),
        ("2.toml", "m_2"),
        ("ü.toml", "m_"),
    ],
)
def test_repository_name(file: str, name: str) -> None:
    """Prevents: a file name that yields an invalid repository name."""
    assert workspace.repository_name(Path(file)) == name


def test_directory_is_stable() -> None:
    """Prevents: a second build from scratch, or manifests that share a workspace."""
    assert PLAIN.directory == make_workspace().directory
    assert PLAIN.directory.parent == CACHE / "workspaces"
    others = {
        make_workspace(file=Path("/b/te-manifest.toml")).directory,
        make_workspace(ruleset=Path("/other/qola")).directory,
    }
    assert len({PLAIN.directory, *others}) == 3


def test_unchanged_workspace_is_not_rewritten(tmp_path: Path) -> None:
    """Prevents: new time stamps that make Bazel plan again, or a manifest of an earlier build."""
    ruleset, directory = write(tmp_path / "qola", {".bazelversion": "7.7.1\n"}), tmp_path / "it"
    workspace.write(directory, ruleset, {"MODULE.bazel": "a\n", "old.toml": ""})
    before = (directory / "MODULE.bazel").stat().st_mtime_ns
    write(directory, {"bazel.log": "of the last build"})
    workspace.write(directory, ruleset, {"MODULE.bazel": "a\n", "new.toml": ""})
    assert (directory / "MODULE.bazel").stat().st_mtime_ns == before
    assert [*read(directory)] == [".bazelversion", "MODULE.bazel", "new.toml"]
