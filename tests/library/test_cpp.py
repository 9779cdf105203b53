"""Compile and run the examples of the C++ API (qola_fmha.hpp)."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from gfxemu.fake_hip import FakeHip, Launch, read_log
from gfxemu.tests.sdk import compiler_of
from tests.library.header import structures
from tests.support.running import output_of

FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
SDK = Path(os.environ["QOLA_TEST_CLANG"]).absolute().parent.parent
EXAMPLES = Path(__file__).resolve().parents[2] / "examples/cpp"
#: The manifest and the library of each example.
LIBRARIES = {
    "forward": ("CI", "fwd"),
    "backward": ("CI", "bwd"),
    "kernels": ("CI", "fwd"),
    "varlen": ("ASM", "fwd"),
    "decode": ("SPLITKV", "fwd"),
}
CI = Path(os.environ["QOLA_TEST_CI"]).resolve()


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("programs")
    for name, (manifest, library) in LIBRARIES.items():
        bundle = Path(os.environ[f"QOLA_TEST_{manifest}"]).resolve()
        (linked,) = (bundle / "lib").glob(f"*_libmha_{library}.so")
        command = [
            *compiler_of(SDK),
            *("-xc++", "-std=c++17", "-pedantic", "-Wall", "-Wextra", "-Werror"),
            *("-D__HIP_PLATFORM_AMD__=1", "-isystem", f"{SDK}/rocm/include"),
            *(f"-I{bundle}/include", str(EXAMPLES / f"{name}.cpp"), "-xnone", str(linked)),
            *("-lstdc++", "-lm", "-fuse-ld=lld", "-lamdhip64", f"-Wl,-rpath,{linked.parent}"),
            *("-o", str(directory / name)),
        ]
        output_of(command)
    return directory


def run(program: Path, *arguments: str, **env: str) -> tuple[int, list[str], list[Launch]]:
    log = program.parent / "log"
    log.unlink(missing_ok=True)
    result = FakeHip(FAKE, "gfx950").run([program, *arguments], log, **env)
    return result.returncode, (result.stdout + result.stderr).splitlines(), read_log(log)


def test_a_forward(programs: Path) -> None:
    """Prevents: the launched kernel differs from the reported kernel."""
    code, lines, (launch,) = run(programs / "forward")
    assert (code, lines) == (0, [f"1 kernel: {launch.kernel}", "done"])
    assert launch.grid == (8, 2, 2)
    # The manifest has no masks.
    assert run(programs / "forward", "causal") == (0, ["no kernel"], [])


def test_a_backward(programs: Path) -> None:
    """Prevents: stages run in another order, or without a sufficient workspace."""
    code, lines, launches = run(programs / "backward")
    assert code == 0, lines
    marks = ("  ", "* ", "  ")
    kernels = [mark + launch.kernel for mark, launch in zip(marks, launches, strict=True)]
    assert lines[:-1] == kernels
    assert int(lines[-1].split()[0]) >= 100 * 4 * 32 * 4


def test_sequences_of_different_lengths(programs: Path) -> None:
    """Prevents: assembly kernels are not reported, or cannot be excluded."""
    code, lines, (assembly, ck) = run(programs / "varlen")
    assert (code, lines) == (0, [f"assembly {assembly.kernel}", ck.kernel])


def test_a_decode_in_splits(programs: Path) -> None:
    """Prevents: splits run without the combine kernel, or with a wrong workspace size."""
    code, lines, launches = run(programs / "decode")
    assert code == 0, lines
    heads = [line for line in lines if " splits: " in line]
    assert [int(line.split()[0]) for line in heads] == [2, 8]
    assert int(heads[1].split()[2]) > 3 * int(heads[0].split()[2])
    assert [line for line in lines if line not in heads] == [launch.kernel for launch in launches]
    assert len(launches) == 4


def test_kernels_and_errors_of_a_library(programs: Path) -> None:
    """Prevents: the kernel list omits kernels, or an error does not name the field."""
    code, (first, second), launches = run(programs / "kernels")
    assert (code, launches) == (0, [])
    listed = json.loads(first)
    plan = json.loads(Path(os.environ["QOLA_TEST_PLAN"]).read_text("utf-8"))
    module = next(module for module in plan["modules"] if module["name"] == "libmha_fwd")
    names = [plan["kernels"][index]["name"] for index in module["kernels"]]
    assert (listed["entry"], sorted(listed["kernels"])) == ("mha_fwd", sorted(names))
    assert second.startswith("-5: mha_fwd: ")
    assert "num_splits" in second


def test_a_hip_failure(programs: Path) -> None:
    """Prevents: the C++ API hides a HIP error."""
    code, lines, launches = run(programs / "forward", FAKE_HIP_FAIL="hipGetDevice=101")
    assert (code, launches) == (1, [])
    assert lines[-1].startswith("mha_fwd: ")


def test_each_field_has_a_method() -> None:
    """Prevents: the C++ API has no method for a common field of the C API."""
    text = (CI / "include/qola_fmha.hpp").read_text("utf-8")
    args = structures(CI / "include/qola_c.h")["qola_mha_args"]
    without = [field[0] for field in args._fields_ if f"args_.{field[0]}" not in text]
    # Fields for fp8 and AITER internals: callers set them through Problem::args().
    rare = re.compile(
        r"quantization|scale_[op]|._descale|block_scale_\w+|kv_\w+|num_pages|gappy|randval|atomic16"
        r"|cache_batch_idx|d_sink|sink_size|drop_\w+_ptr|(cu_)?seqlens_[qk]"
    )
    assert [name for name in without if not rare.fullmatch(name)] == []
