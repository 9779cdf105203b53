"""The Python modules of wheels: C structures as in the header, and no import of torch."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from qola.bundle.in_wheel import _c
from tests.support.sdk import compiler_of

BUNDLE = Path(os.environ["QOLA_TEST_BUNDLE"], "manifest.json").resolve().parent
SDK = Path(os.environ["QOLA_TEST_CLANG"]).absolute().parent.parent
WHEEL = Path(os.environ["QOLA_TEST_WHEEL"])
STRUCTURES: dict[str, type[ctypes.Structure]] = {
    "qola_tensor": _c.Tensor,
    "qola_mha_args": _c.Arguments,
}
ENUMERATED = ("FP16", "BF16", "FP32", "MASK_", "BIAS_")


def compiles(lines: list[str], directory: Path) -> str:
    """Return the compiler's messages for a C program with these assertions."""
    source = directory / "check.c"
    source.write_text("\n".join(['#include "qola_c.h"', *lines, ""]), encoding="utf-8")
    options = ["-xc", "-std=c11", "-fsyntax-only", "-Werror", f"-I{BUNDLE}/include", str(source)]
    done = subprocess.run(
        [*compiler_of(SDK), *options], capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == (done.stderr == "")
    return done.stderr


def same(found: str, wanted: int) -> str:
    return f'_Static_assert({found} == {wanted}, "");'


def test_structures_are_those_of_the_header(tmp_path: Path) -> None:
    """Prevents: a field that a library reads as another one."""
    lines = []
    for name, structure in STRUCTURES.items():
        end = 0
        for field in (one[0] for one in structure._fields_):
            of = getattr(structure, field)
            # Where each begins as the one before ends, none of C's is left out.
            assert of.offset == end, field
            end += of.size
            lines.append(same(f"offsetof({name}, {field})", of.offset))
            lines.append(same(f"sizeof((({name}*)0)->{field})", of.size))
        lines.append(same(f"sizeof({name})", end))
        assert ctypes.sizeof(structure) == end
    assert len(lines) > 150
    assert compiles(lines, tmp_path) == ""
    assert "error" in compiles([same("offsetof(qola_mha_args, mask)", 4)], tmp_path)


def test_numbers_are_those_of_the_header(tmp_path: Path) -> None:
    """Prevents: one mask or type for another."""
    numbers = {name: value for name, value in vars(_c).items() if name.startswith(ENUMERATED)}
    numbers["NO_KERNEL"] = _c._NO_KERNEL
    assert len(numbers) > 8
    assert compiles([same(f"QOLA_{name}", n) for name, n in numbers.items()], tmp_path) == ""


def test_without_torch(tmp_path: Path) -> None:
    """Prevents: a wheel that fails without torch where it need not, or not in so many words."""
    with ZipFile(WHEEL) as wheel:
        wheel.extractall(tmp_path)
    env = {"PYTHONPATH": str(tmp_path)}

    def run(program: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", "-c", program]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    assert run("import qola_forward, qola_forward._c").stderr == ""
    done = run("import qola_forward.torch")
    assert "ImportError: qola_forward.torch needs PyTorch 2.4 or later: No module" in done.stderr
    # Libraries are looked for at the first call, not before.
    done = run("from qola_forward import _c; _c.entry('mha_bwd')")
    assert "no library has mha_bwd" in done.stderr
