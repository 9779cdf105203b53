"""The scripts of examples/serving, by which an image loses the files of AITER's JIT."""

from __future__ import annotations

import re
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


def remove_jit(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [SERVING / "remove-jit", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_removes_what_only_the_jit_reads(tmp_path: Path) -> None:
    """Prevents: a compiler that stays in the image, or a file that a server reads at run time."""
    write(tmp_path, *KEPT, *REMOVED)
    (tmp_path / "rocm/llvm").symlink_to("lib/llvm")
    ran = remove_jit(tmp_path / "rocm", tmp_path / "site/aiter/__init__.py")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert [name for name in KEPT if not (tmp_path / name).is_file()] == []
    assert [name for name in REMOVED if (tmp_path / name).exists()] == []
    assert len(re.findall(r"^ *\d+ MB  (?:compiler|Composable Kernel)  /", ran.stdout, re.M)) >= 3


def test_a_checkout_of_aiter(tmp_path: Path) -> None:
    """Prevents: hsa/ and Composable Kernel that stay if AITER is installed for development."""
    files = ("csrc/pa.cu", "aiter/__init__.py")
    removed = ("hsa/gfx942/pa.co", "3rdparty/composable_kernel/ck.hpp")
    write(tmp_path, *files, *removed, "rocm/lib/libamdhip64.so")
    assert remove_jit(tmp_path / "rocm", tmp_path / "aiter/__init__.py").returncode == 0
    assert [(tmp_path / name).exists() for name in (*files, *removed)] == [True, True, False, False]


def test_a_wrong_directory(tmp_path: Path) -> None:
    """Prevents: an image that keeps everything, because a variable is empty."""
    write(tmp_path, *REMOVED)
    ran = remove_jit(tmp_path / "none", tmp_path / "site/aiter/__init__.py")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"{tmp_path}/none: not a directory; expected: remove-jit ROCM" in ran.stderr
    assert all((tmp_path / name).exists() for name in REMOVED)


@pytest.mark.parametrize("value", ["a b\n c=d", ""])
def test_the_environment_of_the_image(tmp_path: Path, value: str) -> None:
    """Prevents: a server without the variables of its image, or of `docker run -e`."""
    program, file = SERVING / "with-environment", tmp_path / "environment"
    image = {"PATH": "/usr/bin:/bin:/own", "A": value, "B": "image's", "HOME": "/image"}
    own = {"IMAGE_ENVIRONMENT": str(file)}
    proxies = {"http_proxy": "http://user:password@host", "HTTPS_PROXY": "http://host"}
    subprocess.run([program, "--save"], env={**image, **own, **proxies}, check=True)
    started = {"PATH": "/usr/bin:/bin", "B": "own", "HOME": "/root", **own}
    ran = subprocess.run([program, "env", "-0"], env=started, capture_output=True, check=True)
    found = dict(one.split("=", 1) for one in ran.stdout.decode().split("\0") if one)
    kept = {"PATH": image["PATH"], "A": value, "B": "own", "HOME": "/root", **own}
    assert {name: found[name] for name in kept} == kept
    assert not proxies.keys() & found.keys(), "Docker sets them for the build only"


def test_the_dockerfile_copies_files_that_are_here() -> None:
    """Prevents: a step whose file the example does not have."""
    text = (SERVING / "Dockerfile").read_text("utf-8")
    (copied,) = re.findall(r"^COPY dist/\*\.whl (.+) /tmp/qola/$", text, re.M)
    assert sorted(copied.split()) == ["remove-jit", "with-environment"]
    for name in copied.split():
        assert (SERVING / name).stat().st_mode & 0o111
        assert f"/tmp/qola/{name}" in text
