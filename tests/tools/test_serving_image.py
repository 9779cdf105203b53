"""The scripts of examples/serving, which remove files of AITER's JIT from an image."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SERVING = Path(__file__).parents[2] / "examples/serving"
KEPT = (
    *("rocm/bin/hipconfig", "rocm/bin/rocminfo", "rocm/lib/libamdhip64.so.7"),
    *("rocm/lib/llvm/lib/libomp.so", "rocm/lib/libamd_comgr.so.3"),
    *("site/aiter/__init__.py", "site/aiter_meta/csrc/cpp_itfs/utils.py", "site/hsa/of_others"),
)
REMOVED = (
    *("rocm/bin/hipcc", "rocm/bin/hipcc.bin", "rocm/bin/amdclang++", "rocm/include/hip/hip.h"),
    *("rocm/lib/llvm/bin/clang", "rocm/lib/llvm/lib/clang/22/include/stddef.h"),
    *("rocm/lib/llvm/lib/libLLVM.so.22", "rocm/amdgcn/bitcode/ocml.bc"),
    *("site/aiter_meta/hsa/gfx942/pa.co", "site/aiter_meta/3rdparty/composable_kernel/ck.hpp"),
)


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x" * 1000)


def remove_jit(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [SERVING / "remove-jit", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_removes_files_that_only_the_jit_reads(tmp_path: Path) -> None:
    """Prevents: a compiler left in the image, or a removed file that a server needs at run time."""
    write(tmp_path, *KEPT, *REMOVED)
    (tmp_path / "rocm/llvm").symlink_to("lib/llvm")
    result = remove_jit(tmp_path / "rocm", tmp_path / "site/aiter/__init__.py")
    assert (result.returncode, result.stderr) == (0, "")
    assert [name for name in KEPT if not (tmp_path / name).is_file()] == []
    assert [name for name in REMOVED if (tmp_path / name).exists()] == []
    assert (
        len(re.findall(r"^ *\d+ MB  (?:compiler|Composable Kernel)  /", result.stdout, re.M)) >= 3
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("lib/llvm/bin/clang-99", False),
        ("bin/amdclang-99", False),
        ("core/toolchain/cc", True),
        ("lib/llvm-amdgpu/bin/clang++", True),
    ],
)
def test_compilers_with_other_names(tmp_path: Path, name: str, found: bool) -> None:
    """Prevents: a ROCm with other names or directories leaves a compiler in the image."""
    wrapper = os.environ.get("QOLA_TEST_CLANG")
    clang = Path(wrapper).resolve().parents[1] / "libexec/clang" if wrapper else None
    clang = clang or Path(shutil.which("clang") or "none")
    if not clang.is_file():
        pytest.skip("needs clang")
    compiler = tmp_path / "rocm" / name
    write(tmp_path, "rocm/bin/hipconfig", "rocm/lib/libamd_comgr.so.3", "site/aiter/__init__.py")
    # A real compiler; comgr, which has one inside, is no program.
    for place in (compiler, tmp_path / "rocm/lib/libamd_comgr.so.3"):
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(clang, place)
    result = remove_jit(tmp_path / "rocm", tmp_path / "site/aiter/__init__.py")
    assert result.returncode == (1 if found else 0), result.stderr
    assert (str(compiler) in result.stderr.splitlines()) == compiler.exists() == found
    assert (tmp_path / "rocm/lib/libamd_comgr.so.3").is_file()


def test_checkout_of_aiter(tmp_path: Path) -> None:
    """Prevents: hsa/ and Composable Kernel of a checkout of AITER left in the image."""
    files = ("csrc/pa.cu", "aiter/__init__.py")
    removed = ("hsa/gfx942/pa.co", "3rdparty/composable_kernel/ck.hpp")
    write(tmp_path, *files, *removed, "rocm/lib/libamdhip64.so")
    assert remove_jit(tmp_path / "rocm", tmp_path / "aiter/__init__.py").returncode == 0
    assert [(tmp_path / name).exists() for name in (*files, *removed)] == [True, True, False, False]


def test_wrong_directory(tmp_path: Path) -> None:
    """Prevents: an image with all files of the JIT because a variable is empty."""
    write(tmp_path, *REMOVED)
    result = remove_jit(tmp_path / "none", tmp_path / "site/aiter/__init__.py")
    assert (result.returncode, result.stdout) == (2, "")
    assert f"{tmp_path}/none: not a directory; expected: remove-jit ROCM" in result.stderr
    assert all((tmp_path / name).exists() for name in REMOVED)


@pytest.mark.parametrize("value", ["a b\n c=d", ""])
def test_environment_of_the_image(tmp_path: Path, value: str) -> None:
    """Prevents: a server without the variables of its image, or of `docker run -e`."""
    program, file = SERVING / "with-environment", tmp_path / "environment"
    image = {"PATH": "/usr/bin:/bin:/own", "A": value, "B": "image's", "HOME": "/image"}
    settings = {"IMAGE_ENVIRONMENT": str(file)}
    proxies = {"http_proxy": "http://user:password@host", "HTTPS_PROXY": "http://host"}
    subprocess.run([program, "--save"], env={**image, **settings, **proxies}, check=True)
    started = {"PATH": "/usr/bin:/bin", "B": "own", "HOME": "/root", **settings}
    result = subprocess.run([program, "env", "-0"], env=started, capture_output=True, check=True)
    found = dict(
        variable.split("=", 1) for variable in result.stdout.decode().split("\0") if variable
    )
    expected = {"PATH": image["PATH"], "A": value, "B": "own", "HOME": "/root", **settings}
    assert {name: found[name] for name in expected} == expected
    assert not proxies.keys() & found.keys(), "Docker sets them for the build only"


def test_dockerfile_copies_existing_files() -> None:
    """Prevents: a step of the Dockerfile that needs a missing file."""
    text = (SERVING / "Dockerfile").read_text("utf-8")
    (copied,) = re.findall(r"^COPY dist/\*\.whl (.+) /tmp/qola/$", text, re.M)
    assert sorted(copied.split()) == ["remove-jit", "with-environment"]
    for name in copied.split():
        assert (SERVING / name).stat().st_mode & 0o111
        assert f"/tmp/qola/{name}" in text
