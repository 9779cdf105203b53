"""Output of the repository rules: golden files, reproducible bytes, and errors."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from qola.repository import __main__ as repository
from qola_base.files import write_if_changed

SMALL = """\
[qola]
namespace = "small"

[build]
architectures = ["gfx942", "gfx950"]
mode = "cpp_itfs"

[[modules]]
name = "libmha_fwd"

[[modules]]
name = "libmha_bwd"
receipt = 700

[[modules]]
name = "module_aiter_enum"
mode = "pybind"

[[mha_fwd_variants]]
dtype = "bf16"
hdim = 128
mode = "group"
has_bias = false
has_alibi = false
has_mask = true
has_lse = true
has_dropout = false
has_skip = false

[[mha_bwd_variants]]
dtype = "bf16"
hdim = 128
mode = "group"
has_bias = false
has_alibi = false
has_dbias = false
has_mask = true
has_dropout = false
deterministic = false
"""
FWD = SMALL.replace('[[modules]]\nname = "libmha_bwd"\nreceipt = 700\n', "").partition("[[mha_bwd")[
    0
]
UPDATE = "QOLA_UPDATE_GOLDEN"


def run_rule(folder: Path, tree: Path, text: str, name: str = "small", seed: str = "0") -> Path:
    """Plan a manifest in a separate process, as the repository rule does."""
    manifest, output = folder / f"{name}.toml", folder / name
    output.mkdir(parents=True, exist_ok=True)
    manifest.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "qola.repository", "--name", name]
    command += ["--manifest", str(manifest), "--display", f"manifests/{name}.toml"]
    command += ["--aiter", str(tree), "--aiter-repository", "aiter", "--output", str(output)]
    env = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONHASHSEED": seed}
    subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    return output


def read_files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def run_main(folder: Path, tree: Path, text: str, *more: str) -> int:
    """Plan a manifest m.toml in this process, into a directory; return the exit code."""
    manifest = folder / "m.toml"
    manifest.write_text(text, encoding="utf-8")
    args = ["--name", "m", "--manifest", str(manifest), "--display", "m.toml", "--aiter", str(tree)]
    return repository.main([*args, "--aiter-repository", "aiter", "--output", str(folder), *more])


@pytest.fixture(scope="module")
def small(aiter_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_rule(tmp_path_factory.mktemp("first"), aiter_tree, SMALL, seed="1")


def abridge(text: str) -> str:
    """Replace long lists of the tree's files in a generated file by the number of files.

    Also replace the id of the tree: a tree that is only a directory has none.
    """

    def number(match: re.Match[str]) -> str:
        return f"{match[1]}... {len(re.findall(chr(34), match[2])) // 2} files{match[3]}"

    text = re.sub(r'"id": "[^"]*"', '"id": "..."', text)
    text = re.sub(r'("files": \[)([^\]]*)(\])', number, text)
    text = re.sub(r'("inputs": \[\n    )([^\]]*)(\n  \])', number, text)
    return re.sub(r"(    headers = \[\n        )([^\]]*)(\n    \])", number, text)


def check_golden(repo_root: Path, name: str, text: str) -> None:
    text = abridge(text)
    golden = repo_root / "tests/golden/plan" / name
    if os.environ.get(UPDATE):
        write_if_changed(golden, text)
    hint = f"if that is meant: {UPDATE}=1 python -m pytest tests/repository"
    assert golden.is_file(), f"no {golden.name}; {hint}"
    assert text == golden.read_text(encoding="utf-8"), f"{golden.name} differs; {hint}"


@pytest.mark.parametrize(
    ("file", "golden"),
    [
        ("BUILD.bazel", "manifest.BUILD.txt"),
        ("include/qola_config.h", "qola_config.h"),
        ("include/qola_mha_fwd.h", "qola_mha_fwd.h"),
        ("include/qola_mha_bwd.h", "qola_mha_bwd.h"),
        ("libmha_fwd/entry/mha_fwd.cpp", "mha_fwd.cpp"),
        ("libmha_bwd/entry/mha_bwd.cpp", "mha_bwd.cpp"),
        ("libmha_fwd/entry/kernel_names.cpp", "fwd_kernel_names.cpp"),
        ("libmha_fwd.exports", "libmha_fwd.exports"),
        ("libmha_bwd.exports", "libmha_bwd.exports"),
        ("module_aiter_enum.exports", "module_aiter_enum.exports"),
        ("plan.json", "plan.json"),
    ],
)
def test_generated_files_are_golden(repo_root: Path, small: Path, file: str, golden: str) -> None:
    """Prevents: unreviewed changes of generated files."""
    check_golden(repo_root, golden, (small / file).read_text(encoding="utf-8"))


def test_generated_files_contain_no_local_paths(small: Path, aiter_tree: Path) -> None:
    """Prevents: a plan, and every cache key, that depends on local directories."""
    for name, data in read_files(small).items():
        for path in (aiter_tree, small, Path.home(), Path(sys.prefix)):
            if len(path.parts) > 2:
                assert str(path).encode() not in data, name


@pytest.mark.thorough
def test_planning_is_reproducible(small: Path, aiter_tree: Path, tmp_path: Path) -> None:
    """Prevents: an order that depends on hashing, time or paths, or a rebuild after each fetch."""
    copy = tmp_path / "small"
    shutil.copytree(small, copy)
    files = [path for path in copy.rglob("*") if path.is_file()]
    assert len(files) > 20
    # An unchanged file keeps this time. The deleted file must be written again.
    for path in files:
        os.utime(path, (1_000_000_000, 1_000_000_000))
    files[0].unlink()
    run_rule(tmp_path, aiter_tree, SMALL, seed="2")
    assert read_files(copy) == read_files(small)
    rewritten = [path for path in files if path.stat().st_mtime != 1_000_000_000]
    assert rewritten == files[:1]


def test_invalid_manifest_exit_code(
    aiter_tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a repository rule that continues after an error, or hides the error."""
    assert run_main(tmp_path, aiter_tree, SMALL.replace('"bf16"', '"bf17"')) == 2
    assert "m.toml:20 [[mha_fwd_variants]].dtype" in capsys.readouterr().err
    assert not (tmp_path / "plan.json").exists()


def test_warnings_are_summarized(
    aiter_tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: warnings that only plan.json contains, or pages of warnings in each build."""
    name = 'name = "libmha_fwd"'
    text = FWD.replace(name, f'{name}\ndrop_srcs = ["gone.cu", "gone.cu"]\nhsa_subdirs = []')
    assert run_main(tmp_path, aiter_tree, text) == 0
    error = capsys.readouterr().err
    assert error == "qola: m.toml is planned with 1 warning, which `qola plan` shows\n"
    assert len(json.loads((tmp_path / "plan.json").read_text())["warnings"]) == 1


@pytest.mark.quick(1)
@pytest.mark.parametrize(("has_archs", "expected"), [(True, ""), (False, "GPU_ARCHS\n")])
def test_watched_variables(
    aiter_tree: Path, tmp_path: Path, has_archs: bool, expected: str
) -> None:
    """Prevents: a new plan for a change of an ignored GPU_ARCHS, or no new plan for a used one."""
    text = FWD if has_archs else FWD.replace('architectures = ["gfx942", "gfx950"]\n', "")
    assert run_main(tmp_path, aiter_tree, text, "--gpu-archs=gfx942") == 0
    assert (tmp_path / "variables.txt").read_text(encoding="utf-8") == expected
    plan = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert plan["archs"] == (["gfx942", "gfx950"] if has_archs else ["gfx942"])
