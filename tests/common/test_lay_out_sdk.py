"""The layout of the pinned ROCm: selected headers, and the wrappers that start programs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rules_hip.rocm.lay_out_sdk import (
    LayoutError,
    is_foreign,
    main,
    move,
    unused_kernel_headers,
    wrapper,
)


def test_included_kernel_headers_are_kept() -> None:
    """Prevents: a C header that includes a removed Linux header."""
    texts = {
        "errno.h": "#include <bits/errno.h>\n",
        "linux/drm.h": "#include <linux/types.h>\n",
        "linux/errno.h": "# include <asm/errno.h>\n",
        "linux/types.h": "",
        "x86_64-linux-gnu/asm/errno.h": '#include "generic.h"\n',
        "x86_64-linux-gnu/asm/generic.h": "",
        "x86_64-linux-gnu/bits/errno.h": "#  include <linux/errno.h>\n",
    }
    assert unused_kernel_headers(texts) == ["linux/drm.h", "linux/types.h"]


@pytest.mark.parametrize(
    ("name", "foreign"),
    [
        ("arm_neon.h", True),
        ("riscv_vector.h", True),
        ("openmp_wrappers/cmath", True),
        ("cuda_wrappers/new", False),
        ("immintrin.h", False),
        ("stddef.h", False),
    ],
)
def test_headers_of_other_processors_are_removed(name: str, foreign: bool) -> None:
    """Prevents: 16 MB of unused headers in every action, or a missing header of HIP."""
    assert is_foreign(name) is foreign


def test_program_runs_by_a_relative_path(tmp_path: Path) -> None:
    """Prevents: a program that finds its loader or libraries only where it was built."""
    for place in ("bin", "lib", "libexec"):
        (tmp_path / "deep/sdk" / place).mkdir(parents=True)
    script = tmp_path / "deep/sdk/bin/clang++"
    script.write_text(wrapper("clang"))
    script.chmod(0o755)
    loader = tmp_path / "deep/sdk/lib/ld-linux-x86-64.so.2"
    loader.write_text('#!/bin/sh\necho "$PWD" >directory\necho "$PATH" "$@"\n')
    loader.chmod(0o755)
    arguments = subprocess.run(
        ["deep/sdk/bin/clang++", "-c", "a b.cpp"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin", "PWD": "/elsewhere"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split(" ")
    here = "deep/sdk/bin/.."
    assert arguments[0] == f"{here}/bin"
    assert arguments[arguments.index("--argv0") + 1] == "deep/sdk/bin/clang++"
    assert arguments[arguments.index("--library-path") + 1] == f"{here}/lib:{here}/lib-tools"
    assert arguments[-4:] == [f"{here}/libexec/clang", "-c", "a", "b.cpp\n"]
    # The wrapper overrides the PWD of a worker: the compiler makes paths absolute with PWD.
    assert (tmp_path / "directory").read_text() == "/proc/self/cwd\n"


def test_file_missing_in_all_packages(tmp_path: Path) -> None:
    """Prevents: an SDK without a program, reported only when a kernel needs the program."""
    with pytest.raises(LayoutError, match=r"libfoo\.so is in none of the pinned"):
        move(tmp_path / "libfoo.so", tmp_path / "out/libfoo.so")
    (tmp_path / "compiler").mkdir()
    assert main([str(tmp_path), str(tmp_path / "sdk")]) == 1


def test_library_with_two_names(tmp_path: Path) -> None:
    """Prevents: a library moved by one name while another program needs its other name."""
    (tmp_path / "libz.so.1.3").write_text("z")
    (tmp_path / "libz.so.1").symlink_to("libz.so.1.3")
    move(tmp_path / "libz.so.1", tmp_path / "lib/libz.so.1")
    assert (tmp_path / "lib/libz.so.1").samefile(tmp_path / "libz.so.1.3")
    assert not (tmp_path / "lib/libz.so.1").is_symlink()
