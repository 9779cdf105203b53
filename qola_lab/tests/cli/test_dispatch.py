"""`qola dispatch` with a problem as arguments: the kernel, or why no kernel matches."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from qola.build import programs
from qola.build.programs import BuiltProgram
from qola.cli import command_line as cli
from qola_lab.cli import run as command
from qola_lab.problems.fields import REQUIRED, WORDS, parse_lines
from tests.support.folders import write

MANIFEST = """\
[qola]
namespace = "mine"
[build]
architectures = ["gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
receipt = 700
[[mha_fwd_variants]]
dtype = "bf16"
hdim = 128
[[triton]]
kernels = ["attention_forward"]
dtypes = "fp16"
hdims = 64
causal = ["no", "bottom_right"]
choices = { BLOCK_M = 128, BLOCK_N = 64 }
"""


class Result(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache for all tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def dispatch(
    tmp_path: Path, aiter_tree: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], Result]:
    """Return a function that runs `qola dispatch` with the manifest above."""
    write(tmp_path, {"mine.toml": MANIFEST})

    def call(arguments: str) -> Result:
        options = ["-q", "--aiter-root", str(aiter_tree)]
        environ = {"QOLA_CACHE_HOME": str(cache)}
        command = ["dispatch", "mine.toml", *arguments.split(), *options]
        code = cli.main(command, environ, directory=tmp_path)
        return Result(code, *capsys.readouterr())

    return call


Dispatch = Callable[[str], Result]


def test_the_kernel_of_a_problem(dispatch: Dispatch) -> None:
    """Prevents: `qola dispatch` does not report the name and the kind of a problem's kernel."""
    result = dispatch("dtype=bf16 seqlen_q=4096 hdim=128 mask_type=causal nhead_q=16 nhead_k=8")
    assert (result.code, result.err) == (0, "")
    title, name, *facts = result.out.splitlines()
    assert title.startswith("gfx950 direction=fwd dtype=bf16 hdim=128 seqlen_q=4096 seqlen_k=4096 ")
    assert re.fullmatch(r"  fmha_fwd_d128_bf16_batch_b128x64x\w+_mask_lse_\w+_gfx950", name)
    assert facts[0] == "    kind      CK instance"
    assert "    library   mine_libmha_fwd.so, fwd" in facts
    assert any(line.startswith("    tile      b128x64x32x128x16x128_") for line in facts)
    assert any("256 threads" in line for line in facts)
    assert any("assembly kernels may serve it instead" in line for line in facts)
    # A short problem has another kernel: the command reads the dispatch, not a table of names.
    short = dispatch(
        "dtype=bf16 seqlen_q=16 hdim=128 mask_type=causal return_lse=yes"
    ).out.splitlines()
    assert short[1].startswith("  fmha_fwd_d128_bf16_batch_b16x32x")
    (line,) = dispatch("dtype=bf16 seqlen_q=16 hdim=128 mask_type=causal --json").out.splitlines()
    values = json.loads(line)
    assert (values["arch"], values["problem"]["hdim_q"]) == ("gfx950", 128)
    assert values["kernels"][0]["name"] == short[1].strip()


def test_a_padded_head_dimension(dispatch: Dispatch) -> None:
    """Prevents: the output hides that the kernel pads the head dimension."""
    result = dispatch("dtype=bf16 seqlen_q=77 hdim=100 return_lse=yes")
    assert "    hdim      128x128, which pads the problem's 100x100\n" in result.out


@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        ("dtype=bf16 seqlen_q=4096 hdim=128 return_lse=no", "return_lse=yes"),
        ("dtype=fp16 seqlen_q=4096 hdim=128 return_lse=yes", "dtype=bf16"),
        ("dtype=bf16 seqlen_q=4096 hdim=300 return_lse=yes", "hdim_q <= 128, hdim_v <= 128"),
        ("dtype=bf16 seqlen_q=99 hdim=128 return_lse=yes logits_soft_cap=2", "logits_soft_cap=no"),
        ("dtype=bf16 seqlen_q=9,90 hdim=128 return_lse=no mode=group", "return_lse=yes"),
    ],
)
def test_the_reason_for_no_kernel(dispatch: Dispatch, arguments: str, needs: str) -> None:
    """Prevents: "no kernel" without the field to change, or without the nearest kernel."""
    result = dispatch(arguments)
    assert result.code == 2
    _, reason, name, needed, *_ = result.out.splitlines()
    assert reason.startswith("  no kernel: 44 kernels of mine_libmha_fwd.so for gfx950, none")
    assert name.startswith("    fmha_fwd_d128_bf16_")
    assert needed == f"      needs   {needs}"


def test_return_lse_by_default(dispatch: Dispatch) -> None:
    """Prevents: no kernel for the README's problem, because receipt 700 always stores the LSE."""
    result = dispatch("dtype=bf16 seqlen_q=4096 hdim=128")
    assert result.code == 0
    assert "note: return_lse=yes: the library has no kernel for it without the LSE" in result.out


def test_kernels_in_triton(dispatch: Dispatch) -> None:
    """Prevents: a problem that only a Triton kernel serves is reported as unserved."""
    result = dispatch("dtype=fp16 seqlen_q=4096 hdim=64 mask_type=causal return_lse=yes")
    assert result.code == 0
    pattern = r"^  attention_forward-.*CAUSAL_2-HDIM_64.*\n    kind      Triton$"
    assert re.search(pattern, result.out, re.MULTILINE)
    assert "CAUSAL_0" not in result.out


def test_directions_without_a_library(dispatch: Dispatch) -> None:
    """Prevents: a traceback, or an answer for another direction."""
    result = dispatch("dtype=bf16 seqlen_q=4096 hdim=128 direction=bwd")
    assert result.code == 2
    assert "no kernel: no library has kernels of the direction bwd" in result.out


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        ("dtype=bf16 hdim=128 sequlen_q=3", ["did you mean seqlen_q=3?", "no seqlen_q"]),
        (
            "dtype=bf16 hdim=128x seqlen_q=x return_lse=perhaps",
            ["error: hdim=128x", "192x128", "error: seqlen_q=x", "error: return_lse=perhaps"],
        ),
        ("dtype=bf17 hdim=128 seqlen_q=3", ["dtype", "bf17", "one of fp32"]),
        ("dtype=bf16 hdim=128 seqlen_q=3 dtype=fp16", ["error: dtype=bf16 dtype=fp16", "twice"]),
        ("dtype=bf16 hdim=128 seqlen_q=3 batch=99999999999999999999", ["error: batch=9999"]),
        ("dtype=bf16 hdim=128 seqlen_q=3 batch=2000000000", ["1 to 65536"]),
        ("dtype=bf16 hdim=128 seqlen_q=8,8 batch=65536", ["at most 65536 sequences"]),
        (
            "dtype=bf16 hdim=128 seqlen_q=3 num_splits=4",
            ["error: num_splits", "no num_splits: arg"],
        ),
        ("dtype=bf16 hdim=128 seqlen_q=1,2 seqlen_k=1", ["error: seqlen_q, seqlen_k\n"]),
        (
            "dtype=bf16 hdim=128 seqlen_q=3 window_size_left=-5",
            ["these words do not describe a problem", "error: window_size_left\n"],
        ),
        ("", ["no problem", "qola dispatch mine.toml dtype=bf16 seqlen_q=4096"]),
        ("dtype=bf16 --problems sweep", ["a problem, dtype=bf16, and --problems"]),
    ],
)
def test_invalid_problems(dispatch: Dispatch, arguments: str, messages: list[str]) -> None:
    """Prevents: a misspelt argument is ignored."""
    result = dispatch(arguments)
    assert (result.code, result.out) == (2, "")
    for message in messages:
        assert message in result.err


@pytest.mark.parametrize("json_output", [False, True])
def test_a_program_that_fails(
    dispatch: Dispatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, json_output: bool
) -> None:
    """Prevents: after a failed build, --json prints no error, or the output has an extra line."""
    arguments = f"--problems=sweep {'--json' * json_output}"
    program = BuiltProgram(None, "m.cpp:3: no such tile")
    monkeypatch.setattr(command, "build_program", lambda *_: program)
    monkeypatch.setattr(programs, "find_bazel", lambda *_: ["bazel"])
    result = dispatch(arguments)
    assert result.code == 7
    if json_output:
        error = json.loads(result.out)["error"]
        assert (error["exit_code"], error["findings"][0]["found"]) == (7, program.error)
        assert "the libraries were not built (1 error)\n" in result.err
    else:
        assert result.out == f"FAILED: the libraries were not built\n  {program.error}\n"
        assert result.err == ""
    program = BuiltProgram(tmp_path / "program")
    for commands, out in (
        ("echo; echo said", "\nsaid\n"),
        ("exit 13", "" if json_output else "\n"),
    ):
        write(tmp_path, {"program": f"#!/bin/sh\n{commands}\nexit 13\n"})
        (tmp_path / "program").chmod(0o700)
        assert dispatch(arguments)[:2] == (13, out)


def test_the_help_has_every_field() -> None:
    """Prevents: a field is missing in the help."""
    listed = set(re.findall(r"[a-z_0-9]+", command._HELP))
    assert listed >= {*WORDS}
    (example,) = re.findall(r"^  ({.*\n.*})$", command._HELP, re.MULTILINE)
    assert parse_lines(json.dumps(json.loads(example)), "help")
    assert {*json.loads(example)} == {*REQUIRED}
