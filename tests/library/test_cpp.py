"""The C functions in words of C++ (qola_fmha.hpp): its examples, compiled and run."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from qola.launch.fake_hip import FakeHip, Launch, read_log
from tests.library.header import structures
from tests.support.sdk import compiler_of

FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
SDK = Path(os.environ["QOLA_TEST_CLANG"]).absolute().parent.parent
EXAMPLES = Path(__file__).resolve().parents[2] / "examples/cpp"
#: Of each example: a bundle with kernels for it, and its library.
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
        words = [
            *compiler_of(SDK),
            *("-xc++", "-std=c++17", "-pedantic", "-Wall", "-Wextra", "-Werror"),
            *("-D__HIP_PLATFORM_AMD__=1", "-isystem", f"{SDK}/rocm/include"),
            *(f"-I{bundle}/include", str(EXAMPLES / f"{name}.cpp"), "-xnone", str(linked)),
            *("-lstdc++", "-lm", "-fuse-ld=lld", "-lamdhip64", f"-Wl,-rpath,{linked.parent}"),
            *("-o", str(directory / name)),
        ]
        made = subprocess.run(words, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
    return directory


def run(program: Path, *words: str, **env: str) -> tuple[int, list[str], list[Launch]]:
    log = program.parent / "log"
    log.unlink(missing_ok=True)
    result = FakeHip(FAKE, "gfx950").run([program, *words], log, **env)
    return result.returncode, (result.stdout + result.stderr).splitlines(), read_log(log)


def test_a_forward(programs: Path) -> None:
    """Prevents: a kernel that is found and another that is launched."""
    code, said, (launch,) = run(programs / "forward")
    assert (code, said) == (0, [f"1 kernel: {launch.kernel}", "done"])
    assert launch.grid == (8, 2, 2)
    # The manifest has no masks.
    assert run(programs / "forward", "causal") == (0, ["no kernel"], [])


def test_a_backward(programs: Path) -> None:
    """Prevents: stages in another order, or without the workspace that they need."""
    code, said, launches = run(programs / "backward")
    assert code == 0, said
    marks = ("  ", "* ", "  ")
    kernels = [mark + one.kernel for mark, one in zip(marks, launches, strict=True)]
    assert said[:-1] == kernels
    assert int(said[-1].split()[0]) >= 100 * 4 * 32 * 4


def test_sequences_of_different_lengths(programs: Path) -> None:
    """Prevents: assembly kernels that are not told of, or cannot be left out."""
    code, said, (assembly, own) = run(programs / "varlen")
    assert (code, said) == (0, [f"assembly {assembly.kernel}", own.kernel])


def test_a_decode_in_splits(programs: Path) -> None:
    """Prevents: splits without the kernel that combines them, or with the workspace of others."""
    code, said, launches = run(programs / "decode")
    assert code == 0, said
    heads = [line for line in said if " splits: " in line]
    assert [int(line.split()[0]) for line in heads] == [2, 8]
    assert int(heads[1].split()[2]) > 3 * int(heads[0].split()[2])
    assert [line for line in said if line not in heads] == [one.kernel for one in launches]
    assert len(launches) == 4


def test_kernels_and_words_of_a_library(programs: Path) -> None:
    """Prevents: a list that lacks kernels, and a failure that does not say what is wrong."""
    code, (first, second), launches = run(programs / "kernels")
    assert (code, launches) == (0, [])
    listed = json.loads(first)
    plan = json.loads(Path(os.environ["QOLA_TEST_PLAN"]).read_text("utf-8"))
    module = next(module for module in plan["modules"] if module["name"] == "libmha_fwd")
    names = [plan["kernels"][index]["name"] for index in module["kernels"]]
    assert (listed["entry"], sorted(listed["kernels"])) == ("mha_fwd", sorted(names))
    assert second.startswith("-5: mha_fwd: ")
    assert "num_splits" in second


def test_a_machine_that_fails(programs: Path) -> None:
    """Prevents: an error of HIP's that nobody is told of."""
    code, said, launches = run(programs / "forward", FAKE_HIP_FAIL="hipGetDevice=101")
    assert (code, launches) == (1, [])
    assert said[-1].startswith("mha_fwd: ")


def test_each_field_has_a_word() -> None:
    """Prevents: a field of the C functions that C++ can set only past its own words."""
    text = (CI / "include/qola_fmha.hpp").read_text("utf-8")
    args = structures(CI / "include/qola_c.h")["qola_mha_args"]
    without = [field[0] for field in args._fields_ if f"args_.{field[0]}" not in text]
    # Of fp8 and of callers of AITER's own numbers: through Problem::args().
    rare = re.compile(
        r"quantization|scale_[op]|._descale|block_scale_\w+|kv_\w+|num_pages|gappy|randval|atomic16"
        r"|cache_batch_idx|d_sink|sink_size|drop_\w+_ptr|(cu_)?seqlens_[qk]"
    )
    assert [name for name in without if not rare.fullmatch(name)] == []
