"""Compiles of a small kernel: results, reproducible bytes, and error messages."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from qola.triton.compile import Compiled, compile_instance
from qola.triton.kernel import Instance, Kernel, expand
from qola_base.errors import CodegenError

HERE = Path(__file__).absolute().parent
SOURCE = HERE / "kernels/scale.py"
TYPES = {"x": "*{dtype}:16", "y": "*{dtype}:16", "n": "i32", "by": "fp32"}
#: EF_AMDGPU_MACH of LLVM.
MACHINES = {"gfx90a": 0x3F, "gfx942": 0x4C, "gfx950": 0x4F, "gfx1100": 0x41, "gfx1201": 0x4E}


def instance(arch: str = "gfx942", dtype: str = "fp16", **constexprs: str) -> Instance:
    values: Mapping[str, str] = {"BLOCK": "256", "dtype": dtype, **constexprs}
    choices = {name: (value,) for name, value in values.items()}
    text = SOURCE.read_text("utf-8")
    (found,) = expand(Kernel("scale", "scale.py", text, "scale", choices, (arch,), TYPES))
    return found


def compile_scale(source: Path = SOURCE, timeout: float = 0, **constexprs: str) -> Compiled:
    return compile_instance(instance(**constexprs), source, "scale", timeout)


def machine(code: bytes) -> int:
    """Return EF_AMDGPU_MACH of a code object."""
    assert code[:4] == b"\x7fELF"
    assert struct.unpack_from("<H", code, 18) == (224,)
    (flags,) = struct.unpack_from("<I", code, 48)
    return int(flags & 0xFF)


def read_built(variable: str, name: str) -> tuple[bytes, dict[str, Any]]:
    """Return a code object built by Bazel, and its metadata."""
    if variable not in os.environ:
        pytest.skip("needs what Bazel builds")
    files = {Path(path).name: Path(path) for path in os.environ[variable].split()}
    metadata: dict[str, Any] = json.loads(files[f"{name}.json"].read_text("utf-8"))
    assert metadata["name"] == name
    return files[f"{name}.hsaco"].read_bytes(), metadata


@pytest.mark.quick(2)
@pytest.mark.parametrize("arch", MACHINES)
def test_code_object_of_the_rule(arch: str) -> None:
    """Prevents: a code object for another arch, or metadata that breaks launches."""
    code, metadata = read_built("QOLA_TEST_SCALE", f"scale-BLOCK_256-dtype_bf16-{arch}")
    assert machine(code) == MACHINES[arch]
    assert (metadata["symbol"], metadata["arch"]) == ("scale", arch)
    assert metadata["warp_size"] == (32 if arch.startswith("gfx1") else 64)
    assert [(argument["name"], argument["type"]) for argument in metadata["arguments"]] == [
        ("x", "*bf16"),
        ("y", "*bf16"),
        ("n", "i32"),
        ("by", "fp32"),
    ]
    assert metadata["constants"] == {"BLOCK": 256}
    # The compile in this process and directory gives identical code.
    assert compile_scale(arch=arch, dtype="bf16").code == code


def test_code_objects_of_manifests() -> None:
    """Prevents: kernels of a manifest are not compiled, or with other values."""
    name = "attention_forward-BLOCK_M_128-BLOCK_N_64-CAUSAL_2-HDIM_128-dtype_bf16-gfx950"
    code, metadata = read_built("QOLA_TEST_FORWARD", name)
    assert machine(code) == MACHINES["gfx950"]
    assert metadata["arguments"][0] == {"divisible": 16, "name": "q", "type": "*bf16"}
    # The defaults of constexprs are listed, too.
    assert metadata["constants"] == {
        **{"BIAS": False, "BLOCK_M": 128, "BLOCK_N": 64, "CAUSAL": 2, "DROPOUT": False},
        **{"HDIM": 128, "VARLEN": False},
    }
    code, metadata = read_built("QOLA_TEST_HALVE", "halve-BLOCK_256-gfx942")
    assert (machine(code), metadata["symbol"]) == (MACHINES["gfx942"], "halve")


def test_compile_is_reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: code depends on a path, on line numbers, on a cache or on the environment."""
    first = compile_scale()
    directory = tmp_path / "some where/else"
    directory.mkdir(parents=True)
    shutil.copy(SOURCE, directory)
    for name, value in {
        "AMDGCN_USE_BUFFER_OPS": "0",
        "TRITON_CACHE_DIR": str(tmp_path / "cache"),
        "TRITON_DEFAULT_FP_FUSION": "0",
        "TRITON_DISABLE_LINE_INFO": "0",
        "TRITON_INTERPRET": "1",
    }.items():
        monkeypatch.setenv(name, value)
    second = compile_scale(directory / "scale.py")
    assert second == first
    assert not (tmp_path / "cache").exists()
    assert str(tmp_path) not in second.text + second.metadata
    assert b"scale.py" not in second.code
    assert os.environ["TRITON_INTERPRET"] == "1"


@pytest.mark.thorough
def test_each_constexpr_changes_the_code() -> None:
    """Prevents: a constexpr or option has no effect."""
    default = compile_scale()
    assert compile_scale(num_warps="8").launch["num_warps"] == 8
    others = {
        compile_scale(dtype="bf16").code,
        compile_scale(BLOCK="1024").code,
        compile_scale(num_warps="8").code,
        compile_scale(arch="gfx950").code,
    }
    assert len(others) == 4
    assert default.code not in others


@pytest.mark.parametrize(
    ("text", "timeout", "expected"),
    [
        ("raise RuntimeError('not today')", 0, "RuntimeError: not today"),
        ("import os; os._exit(7)", 0, "the compiler ended with 7"),
        ("import os; os.kill(os.getpid(), 9)", 0, "the compiler ended with -9"),
        ("import time; time.sleep(60)", 0.5, "not done after 0.5 seconds"),
    ],
)
def test_failures_name_the_kernel(tmp_path: Path, text: str, timeout: float, expected: str) -> None:
    """Prevents: a failed compile gives an empty code object, or an error without its kernel."""
    source = tmp_path / "scale.py"
    source.write_text(f"{text}\n{SOURCE.read_text('utf-8')}")
    with pytest.raises(CodegenError) as caught:
        compile_scale(source, timeout)
    (finding,) = caught.value.findings
    assert expected in finding.found
    assert finding.place == f"{source}: scale: gfx942 BLOCK=256 dtype=fp16"
    assert "scale-BLOCK_256-dtype_fp16-gfx942 was not compiled" in str(caught.value)


def test_error_of_triton_has_the_line(tmp_path: Path) -> None:
    """Prevents: an error of Triton omits the source line."""
    source = tmp_path / "scale.py"
    source.write_text(SOURCE.read_text("utf-8").replace("tl.store(y + at,", "tl.store(z + at,"))
    with pytest.raises(CodegenError, match=r"tl\.store\(z \+ at"):
        compile_scale(source)


def test_error_in_a_called_function_is_reported(tmp_path: Path) -> None:
    """Prevents: an error shows only the call, not the error in the called function."""
    source = tmp_path / "scale.py"
    text = SOURCE.read_text("utf-8").replace("tl.store(y + at,", "tl.store(inner(y) + at,")
    source.write_text(
        f"{text}\n\n@triton.jit\ndef inner(y):\n    n = 1\n    return y + n[None, :]\n"
    )
    with pytest.raises(CodegenError, match=r"(?s)inner\(y\) \+ at.*n\[None, :\].*rank 0"):
        compile_scale(source)


@pytest.mark.thorough
def test_kernel_with_too_much_lds(tmp_path: Path) -> None:
    """Prevents: a code object that no device can launch."""
    source = tmp_path / "scale.py"
    text = SOURCE.read_text("utf-8")
    # A product of two tiles uses LDS.
    begin, _, _ = text.partition("    tl.store(")
    source.write_text(
        f"{begin}    i = tl.arange(0, BLOCK)\n    p = x + i[:, None] * BLOCK + i[None, :]\n"
        "    a = tl.load(p)\n    tl.store(p, tl.dot(a, tl.trans(a)).to(a.dtype))\n"
    )
    with pytest.raises(CodegenError) as caught:
        compile_scale(source, BLOCK="256")
    (finding,) = caught.value.findings
    assert "bytes of LDS" in finding.found
    assert finding.expected == "at most 65536 bytes on gfx942"
