"""The workspace of qola build: its files and its directory."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from qola.build import workspace
from qola.build.setup import resolve_build
from qola.checkout.prepare import GitSource, LocalSource, WheelSource
from qola.checkout.source import AiterSource
from qola.plan.spec import BuildRequest, BuildSpec, Forms

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden" / "workspace"
PLAIN = workspace.Workspace(
    name="te_manifest",
    manifest='[[modules]]\nname = "libmha_fwd"\n',
    modules=("libmha_fwd", "libmha_bwd"),
    ruleset=Path("/opt/qola"),
    aiter=AiterSource(WheelSource("0.1.7", "a" * 64)),
    disk_cache=Path("/home/user/.cache/qola/disk"),
)


def compare_golden(name: str, text: str) -> None:
    """Compare a text with a golden file. QOLA_UPDATE_GOLDEN=1 writes the file instead."""
    if os.environ.get("QOLA_UPDATE_GOLDEN"):
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()


@pytest.mark.parametrize("name", ["MODULE.bazel", "BUILD.bazel", ".bazelrc"])
def test_files(name: str) -> None:
    """Prevents: unnoticed changes of the workspace, which change builds."""
    cache = Path("/home/user/.cache/qola")
    files = PLAIN.files("7.7.1\n", cache / "workspaces/it", cache / "outputs/abc-1/base")
    compare_golden(f"{name.lstrip('.')}.txt", files[name])
    assert files[".bazelversion"] == "7.7.1\n"
    assert files["te_manifest.toml"] == PLAIN.manifest


def test_every_option_is_written() -> None:
    """Prevents: an option of the command line that Bazel does not get."""
    everything = replace(
        PLAIN,
        aiter=AiterSource(LocalSource(Path("/src/aiter")), Path("/src/patches")),
        spec=BuildSpec(("gfx942", "gfx950"), "cpp_itfs", "filtered", override_aiter_commit=True),
    )
    compare_golden("spec.json", everything.manifest_files()["te_manifest.json"])
    compare_golden("everything.txt", everything.module_file())


@pytest.mark.parametrize("kind", ["", "lazy", "split", "static"])
def test_bundle(kind: str) -> None:
    """Prevents: a bundle of other libraries than were built."""
    wheel = "1.0" if kind == "split" else ""
    forms = Forms(kind == "lazy", kind == "static", kind == "split", wheel, jax=bool(wheel))
    text = PLAIN.bundle_file(PLAIN.modules, forms)
    compare_golden(f"{kind and f'{kind}_'}bundle.txt", text)


def test_modules_for_aiter_s_python() -> None:
    """Prevents: a bundle or wheel without a module, or one that needs an installed qola."""
    changed = replace(PLAIN, for_aiter=True)
    text = changed.bundle_file(["module_norm", "module_quant"], Forms(wheel="1.2"))
    compare_golden("aiter_bundle.txt", text)


def test_functions_of_aiter_s_second_jit() -> None:
    """Prevents: functions of a manifest that `qola build` omits, or a bundle without functions."""
    changed = replace(PLAIN, modules=(), for_aiter=True, functions=True)
    assert (
        'name = "functions",\n    srcs = ["@qola_te_manifest//:functions"],' in changed.build_file()
    )
    bundle = changed.bundle_file(["functions"], Forms())
    assert 'functions = "@qola_te_manifest//:functions",\n    libraries = [],' in bundle


def test_files_of_triton_kernels() -> None:
    """Prevents: a manifest that cannot be planned because the workspace lacks its Python files."""
    changed = replace(PLAIN, python={"kernels/mine.py": "import triton\n"})
    places = (Path("/workspace"), Path("/outputs"))
    files = changed.files("7.7.1\n", *places)
    assert files.items() - PLAIN.files("7.7.1\n", *places).items() == {
        ("kernels/mine.py", "import triton\n")
    }


def test_library_of_triton_kernels() -> None:
    """Prevents: Triton kernels of a manifest that `qola build` omits, or a bundle without them."""
    changed = replace(PLAIN, triton=True)
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
    assert "module_aiter_enum_lazy" not in replace(PLAIN, modules=modules).build_file()


def test_space_in_the_cache_path() -> None:
    """Prevents: a path with a space that Bazel reads as two options."""
    changed = replace(PLAIN, disk_cache=Path("/home/a user/disk"))
    files = changed.files("", Path("/cache/it"), Path("/home/a user/base"))
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
    assert "/tmp" not in PLAIN.files("", cache, base)[".bazelrc"]
    local = AiterSource(LocalSource(Path("/tmp/aiter")))
    for changed, *places in (
        (PLAIN, Path("/tmp/it"), base),
        (PLAIN, cache, Path("/tmp/base")),
        (replace(PLAIN, ruleset=Path("/tmp/qola")), cache, base),
        (replace(PLAIN, aiter=local), cache, base),
    ):
        assert "--sandbox_add_mount_pair=/tmp" in changed.files("", *places)[".bazelrc"]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("te-manifest.toml", "te_manifest"),
        ("Te.v2.toml", "te_v2"),
        ("rocm.toml", "m_rocm"),
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
    cache, manifest, ruleset = Path("/cache"), Path("/a/te.toml"), Path("/opt/qola")
    first = workspace.directory_of(cache, manifest, ruleset)
    assert first == workspace.directory_of(cache, manifest, ruleset)
    assert first.parent == Path("/cache/workspaces")
    others = {
        workspace.directory_of(cache, Path("/b/te.toml"), ruleset),
        workspace.directory_of(cache, manifest, Path("/other/qola")),
    }
    assert len({first, *others}) == 3


def test_unchanged_workspace_is_not_rewritten(tmp_path: Path) -> None:
    """Prevents: new time stamps that make Bazel plan again, or a manifest of an earlier build."""
    workspace.write(tmp_path, {"MODULE.bazel": "a\n", "old.toml": ""})
    before = (tmp_path / "MODULE.bazel").stat().st_mtime_ns
    workspace.write(tmp_path, {"MODULE.bazel": "a\n", "new.toml": ""})
    assert (tmp_path / "MODULE.bazel").stat().st_mtime_ns == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["MODULE.bazel", "new.toml"]
