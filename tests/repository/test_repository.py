"""What the repository rules write: golden files, the same bytes every time, and refusals."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from qola.files import write_if_changed
from qola.repository import __main__ as repository

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


def make(folder: Path, tree: Path, text: str, name: str = "small", seed: str = "0") -> Path:
    """Plan a manifest as the repository rule does, in a process of its own."""
    manifest, output = folder / f"{name}.toml", folder / name
    output.mkdir(parents=True, exist_ok=True)
    manifest.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "qola.repository", "--name", name]
    command += ["--manifest", str(manifest), "--display", f"manifests/{name}.toml"]
    command += ["--aiter", str(tree), "--aiter-repository", "aiter", "--output", str(output)]
    env = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONHASHSEED": seed}
    subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    return output


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def small(aiter_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("first"), aiter_tree, SMALL, seed="1")


def abridged(text: str) -> str:
    """Return a generated file with its long lists of the tree's files cut to their number.

    The tree's pin is left out: a tree that is only a directory has none.
    """

    def number(match: re.Match[str]) -> str:
        return f"{match[1]}... {len(re.findall(chr(34), match[2])) // 2} files{match[3]}"

    text = re.sub(r'"id": "[^"]*"', '"id": "..."', text)
    text = re.sub(r'("files": \[)([^\]]*)(\])', number, text)
    text = re.sub(r'("inputs": \[\n    )([^\]]*)(\n  \])', number, text)
    return re.sub(r"(    headers = \[\n        )([^\]]*)(\n    \])", number, text)


def check_golden(repo_root: Path, name: str, text: str) -> None:
    text = abridged(text)
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
        ("plan.json", "plan.json"),
    ],
)
def test_the_files_of_a_manifest(repo_root: Path, small: Path, file: str, golden: str) -> None:
    """Prevents: a change of what is generated that nobody looked at."""
    check_golden(repo_root, golden, (small / file).read_text(encoding="utf-8"))


def test_nothing_generated_names_the_machine(small: Path, aiter_tree: Path) -> None:
    """Prevents: a plan, and with it every cache key, that depends on where things lie."""
    for name, data in contents(small).items():
        for path in (aiter_tree, small, Path.home(), Path(sys.prefix)):
            if len(path.parts) > 2:
                assert str(path).encode() not in data, name


@pytest.mark.thorough
def test_planning_again(small: Path, aiter_tree: Path, tmp_path: Path) -> None:
    """Prevents: an order that depends on hashing, time or place; a rebuild after each fetch."""
    copy = tmp_path / "small"
    shutil.copytree(small, copy)
    files = [path for path in copy.rglob("*") if path.is_file()]
    assert len(files) > 20
    # A file that is not written anew keeps this time; one that is missing now shows too.
    for path in files:
        os.utime(path, (1_000_000_000, 1_000_000_000))
    files[0].unlink()
    make(tmp_path, aiter_tree, SMALL, seed="2")
    assert contents(copy) == contents(small)
    touched = [path for path in files if path.stat().st_mtime != 1_000_000_000]
    assert touched == files[:1]


def test_a_bad_manifest_ends_with_its_exit_code(
    aiter_tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a repository rule that goes on after an error, or hides what is wrong."""
    manifest = tmp_path / "bad.toml"
    manifest.write_text(SMALL.replace('"bf16"', '"bf17"'))
    words = ["--name", "bad", "--manifest", str(manifest), "--display", "bad.toml"]
    words += ["--aiter", str(aiter_tree), "--aiter-repository", "aiter", "--output", str(tmp_path)]
    assert repository.main(words) == 2
    assert "bad.toml:16 [[mha_fwd_variants]].dtype" in capsys.readouterr().err
    assert not (tmp_path / "plan.json").exists()


def test_warnings_reach_the_user(
    aiter_tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: warnings that only plan.json knows, and pages of them in each build."""
    manifest = tmp_path / "w.toml"
    name = 'name = "libmha_fwd"'
    manifest.write_text(
        FWD.replace(name, f'{name}\ndrop_srcs = ["gone.cu", "gone.cu"]\nhsa_subdirs = []')
    )
    words = ["--name", "w", "--manifest", str(manifest), "--display", "w.toml"]
    words += ["--aiter", str(aiter_tree), "--aiter-repository", "aiter", "--output", str(tmp_path)]
    assert repository.main(words) == 0
    error = capsys.readouterr().err
    assert error == "qola: w.toml is planned with 1 warning, which `qola plan` shows\n"
    assert len(json.loads((tmp_path / "plan.json").read_text())["warnings"]) == 1


@pytest.mark.quick(1)
@pytest.mark.parametrize(("named", "expected"), [(True, ""), (False, "GPU_ARCHS\n")])
def test_the_variable_that_is_watched(
    aiter_tree: Path, tmp_path: Path, named: bool, expected: str
) -> None:
    """Prevents: every manifest planned anew for a GPU_ARCHS that it does not read, or none."""
    text = FWD if named else FWD.replace('architectures = ["gfx942", "gfx950"]\n', "")
    manifest = tmp_path / "small.toml"
    manifest.write_text(text, encoding="utf-8")
    words = ["--name", "small", "--manifest", str(manifest), "--display", "small.toml"]
    words += ["--aiter", str(aiter_tree), "--aiter-repository", "aiter", "--gpu-archs", "gfx942"]
    assert repository.main([*words, "--output", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out/variables.txt").read_text(encoding="utf-8") == expected
    plan = json.loads((tmp_path / "out/plan.json").read_text(encoding="utf-8"))
    assert plan["archs"] == (["gfx942", "gfx950"] if named else ["gfx942"])
