"""The layout of the pinned ROCm: which headers stay, how a program is started."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rules.rocm.lay_out_sdk import (
    LayoutError,
    is_foreign,
    main,
    move,
    unused_kernel_headers,
    wrapper,
)


def test_kernel_headers_that_others_include_stay() -> None:
    """Prevents: a C header that includes one of Linux which is not there."""
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
def test_headers_of_other_processors_go(name: str, foreign: bool) -> None:
    """Prevents: 16 MB of headers in every action, or one of HIP's missing."""
    assert is_foreign(name) is foreign


def test_a_program_runs_from_anywhere_by_a_relative_path(tmp_path: Path) -> None:
    """Prevents: a program that finds its loader or its companions only where it was made."""
    for place in ("bin", "lib", "libexec"):
        (tmp_path / "deep/sdk" / place).mkdir(parents=True)
    script = tmp_path / "deep/sdk/bin/clang++"
    script.write_text(wrapper("clang"))
    script.chmod(0o755)
    loader = tmp_path / "deep/sdk/lib/ld-linux-x86-64.so.2"
    loader.write_text('#!/bin/sh\necho "$PWD" >directory\necho "$PATH" "$@"\n')
    loader.chmod(0o755)
    said = subprocess.run(
        ["deep/sdk/bin/clang++", "-c", "a b.cpp"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin", "PWD": "/elsewhere"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split(" ")
    here = "deep/sdk/bin/.."
    assert said[0] == f"{here}/bin"
    assert said[said.index("--argv0") + 1] == "deep/sdk/bin/clang++"
    assert said[said.index("--library-path") + 1] == f"{here}/lib:{here}/lib-tools"
    assert said[-4:] == [f"{here}/libexec/clang", "-c", "a", "b.cpp\n"]
    # Whatever a worker sets it to: the compiler makes paths absolute by it.
    assert (tmp_path / "directory").read_text() == "/proc/self/cwd\n"


def test_a_file_that_is_in_no_package(tmp_path: Path) -> None:
    """Prevents: an SDK without a program that shows only when a kernel needs it."""
    with pytest.raises(LayoutError, match=r"libfoo\.so is in none of the pinned"):
        move(tmp_path / "libfoo.so", tmp_path / "out/libfoo.so")
    (tmp_path / "compiler").mkdir()
    assert main([str(tmp_path), str(tmp_path / "sdk")]) == 1


def test_two_names_of_a_file_share_it(tmp_path: Path) -> None:
    """Prevents: a library moved away under one name while another program asks for the other."""
    (tmp_path / "libz.so.1.3").write_text("z")
    (tmp_path / "libz.so.1").symlink_to("libz.so.1.3")
    move(tmp_path / "libz.so.1", tmp_path / "lib/libz.so.1")
    assert (tmp_path / "lib/libz.so.1").samefile(tmp_path / "libz.so.1.3")
    assert not (tmp_path / "lib/libz.so.1").is_symlink()
