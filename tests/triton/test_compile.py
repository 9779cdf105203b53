"""Compiles of a small kernel: what comes out, the same bytes anywhere, how failures are told."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from qola.errors import CodegenError
from qola.triton.compile import Compiled, compile_instance
from qola.triton.kernel import Instance, Kernel, expand

HERE = Path(__file__).absolute().parent
SOURCE = HERE / "kernels/scale.py"
TYPES = {"x": "*{dtype}:16", "y": "*{dtype}:16", "n": "i32", "by": "fp32"}
#: EF_AMDGPU_MACH of LLVM.
MACHINES = {"gfx90a": 0x3F, "gfx942": 0x4C, "gfx950": 0x4F, "gfx1100": 0x41, "gfx1201": 0x4E}


def instance(arch: str = "gfx942", dtype: str = "fp16", **more: str) -> Instance:
    chosen: Mapping[str, str] = {"BLOCK": "256", "dtype": dtype, **more}
    choices = {name: (value,) for name, value in chosen.items()}
    text = SOURCE.read_text("utf-8")
    (found,) = expand(Kernel("scale", "scale.py", text, "scale", choices, (arch,), TYPES))
    return found


def compiled(source: Path = SOURCE, limit: float = 0, **chosen: str) -> Compiled:
    return compile_instance(instance(**chosen), source, "scale", limit)


def machine(code: bytes) -> int:
    """Return EF_AMDGPU_MACH of a code object."""
    assert code[:4] == b"\x7fELF"
    assert struct.unpack_from("<H", code, 18) == (224,)
    (flags,) = struct.unpack_from("<I", code, 48)
    return int(flags & 0xFF)


def built(variable: str, name: str) -> tuple[bytes, dict[str, Any]]:
    """Return a code object that Bazel built, and its metadata."""
    if variable not in os.environ:
        pytest.skip("needs what Bazel builds")
    files = {Path(path).name: Path(path) for path in os.environ[variable].split()}
    told: dict[str, Any] = json.loads(files[f"{name}.json"].read_text("utf-8"))
    assert told["name"] == name
    return files[f"{name}.hsaco"].read_bytes(), told


@pytest.mark.quick(2)
@pytest.mark.parametrize("arch", MACHINES)
def test_what_the_rule_makes(arch: str) -> None:
    """Prevents: a code object of another arch, or metadata that a launch goes wrong by."""
    code, told = built("QOLA_TEST_SCALE", f"scale-BLOCK_256-dtype_bf16-{arch}")
    assert machine(code) == MACHINES[arch]
    assert (told["symbol"], told["arch"]) == ("scale", arch)
    assert told["warp_size"] == (32 if arch.startswith("gfx1") else 64)
    assert [(one["name"], one["type"]) for one in told["arguments"]] == [
        ("x", "*bf16"),
        ("y", "*bf16"),
        ("n", "i32"),
        ("by", "fp32"),
    ]
    assert told["constants"] == {"BLOCK": 256}
    # Here, in another directory, by another process.
    assert compiled(arch=arch, dtype="bf16").code == code


def test_what_manifests_make() -> None:
    """Prevents: a manifest whose kernels compile otherwise than it says, or not at all."""
    name = "attention_forward-BLOCK_M_128-BLOCK_N_64-CAUSAL_2-HDIM_128-dtype_bf16-gfx950"
    code, told = built("QOLA_TEST_FORWARD", name)
    assert machine(code) == MACHINES["gfx950"]
    assert told["arguments"][0] == {"divisible": 16, "name": "q", "type": "*bf16"}
    # What was not chosen is there as well.
    assert told["constants"] == {
        **{"BIAS": False, "BLOCK_M": 128, "BLOCK_N": 64, "CAUSAL": 2, "DROPOUT": False},
        **{"HDIM": 128, "VARLEN": False},
    }
    code, told = built("QOLA_TEST_HALVE", "halve-BLOCK_256-gfx942")
    assert (machine(code), told["symbol"]) == (MACHINES["gfx942"], "halve")


def test_the_same_bytes_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: code that depends on a path, on lines above it, on a cache or the environment."""
    first = compiled()
    other = tmp_path / "some where/else"
    other.mkdir(parents=True)
    shutil.copy(SOURCE, other)
    for name, value in {
        "AMDGCN_USE_BUFFER_OPS": "0",
        "TRITON_CACHE_DIR": str(tmp_path / "cache"),
        "TRITON_DEFAULT_FP_FUSION": "0",
        "TRITON_DISABLE_LINE_INFO": "0",
        "TRITON_INTERPRET": "1",
    }.items():
        monkeypatch.setenv(name, value)
    second = compiled(other / "scale.py")
    assert second == first
    assert not (tmp_path / "cache").exists()
    assert str(tmp_path) not in second.text + second.metadata
    assert b"scale.py" not in second.code
    assert os.environ["TRITON_INTERPRET"] == "1"


@pytest.mark.thorough
def test_each_choice_counts() -> None:
    """Prevents: a choice that has a name and no effect."""
    plain = compiled()
    assert compiled(num_warps="8").launch["num_warps"] == 8
    others = {
        compiled(dtype="bf16").code,
        compiled(BLOCK="1024").code,
        compiled(num_warps="8").code,
        compiled(arch="gfx950").code,
    }
    assert len(others) == 4
    assert plain.code not in others


@pytest.mark.parametrize(
    ("text", "limit", "words"),
    [
        ("raise RuntimeError('not today')", 0, "RuntimeError: not today"),
        ("import os; os._exit(7)", 0, "the compiler ended with 7"),
        ("import os; os.kill(os.getpid(), 9)", 0, "the compiler ended with -9"),
        ("import time; time.sleep(60)", 0.5, "not done after 0.5 seconds"),
    ],
)
def test_failures_name_the_choices(tmp_path: Path, text: str, limit: float, words: str) -> None:
    """Prevents: an empty code object for a kernel that failed or took too long; no word which."""
    source = tmp_path / "scale.py"
    source.write_text(f"{text}\n{SOURCE.read_text('utf-8')}")
    with pytest.raises(CodegenError) as caught:
        compiled(source, limit)
    (finding,) = caught.value.findings
    assert words in finding.found
    assert finding.place == f"{source}: scale: gfx942 BLOCK=256 dtype=fp16"
    assert "scale-BLOCK_256-dtype_fp16-gfx942 was not compiled" in str(caught.value)


def test_what_triton_refuses_is_told(tmp_path: Path) -> None:
    """Prevents: an error of Triton without the line it means."""
    source = tmp_path / "scale.py"
    source.write_text(SOURCE.read_text("utf-8").replace("tl.store(y + at,", "tl.store(z + at,"))
    with pytest.raises(CodegenError, match=r"tl\.store\(z \+ at"):
        compiled(source)


def test_what_a_called_function_does_wrong_is_told(tmp_path: Path) -> None:
    """Prevents: an error that names the call alone, and not what is wrong in it."""
    source = tmp_path / "scale.py"
    text = SOURCE.read_text("utf-8").replace("tl.store(y + at,", "tl.store(inner(y) + at,")
    source.write_text(
        f"{text}\n\n@triton.jit\ndef inner(y):\n    n = 1\n    return y + n[None, :]\n"
    )
    with pytest.raises(CodegenError, match=r"(?s)inner\(y\) \+ at.*n\[None, :\].*rank 0"):
        compiled(source)


@pytest.mark.thorough
def test_more_lds_than_there_is(tmp_path: Path) -> None:
    """Prevents: a code object that no device can launch."""
    source = tmp_path / "scale.py"
    text = SOURCE.read_text("utf-8")
    # A product of two tiles goes through LDS.
    begin, _, _ = text.partition("    tl.store(")
    source.write_text(
        f"{begin}    i = tl.arange(0, BLOCK)\n    p = x + i[:, None] * BLOCK + i[None, :]\n"
        "    a = tl.load(p)\n    tl.store(p, tl.dot(a, tl.trans(a)).to(a.dtype))\n"
    )
    with pytest.raises(CodegenError) as caught:
        compiled(source, BLOCK="256")
    (finding,) = caught.value.findings
    assert "bytes of LDS" in finding.found
    assert finding.expected == "at most 65536 bytes on gfx942"
