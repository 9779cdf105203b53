"""The problems of a launch test, and the program that hands them over."""

from __future__ import annotations

from pathlib import Path

import pytest

from qola.codegen.types import CodeObject
from qola.launch.fake_hip import FakeHip
from qola.launch.problems import Problem, problems
from qola.launch.program import caller, program
from qola.launch.proof import Answer, Proof, prove
from qola.plan.model import EntryPoint
from tests.support.plans import kernel, module, plan

FIELDS = {"dtype": "fp16", "hdim_q": 32, "hdim_v": 64, "mode": "group", "mask": True}
BLOB = CodeObject("hsa/gfx950/x.co", "hsa/gfx950/x.co", "gfx950", "f" * 64, 1)


def test_a_problem_for_each_kind_of_kernel() -> None:
    """Prevents: a proof with problems that no kernel of the library serves."""
    same = [kernel(f"k{n}", fields={**FIELDS, "bias": "alibi", "tile": n}) for n in range(3)]
    other = kernel("combine", role="splitkv_combine", fields=FIELDS)
    made = module(kernels=(0, 1, 2, 3))
    found = problems(plan(kernels=(*same, other), modules=(made,)), made, "fwd")
    assert found == (Problem("mha_fwd", "fp16", 32, 64, group=True, mask=2, bias=2),)
    line = found[0].line()
    assert line.startswith("entry=mha_fwd dtype=fp16 hdim_q=32 hdim_v=64 group=1 mask=2 bias=2 ")
    assert str(found[0]) == "fp16 32x64 group mask=2 bias=2"


def test_assembly_kernels_and_kernels_without_words_get_a_grid() -> None:
    """Prevents: a library of assembly kernels, or of an unknown CK, that is proven by nothing."""
    opaque, assembly = module(kernels=(0,)), module(code_objects=(BLOB,))
    of_opaque = problems(plan(kernels=(kernel("k"),), modules=(opaque,)), opaque, "fwd")
    of_assembly = problems(plan(modules=(assembly,)), assembly, "fwd")
    assert not any(p.assembly for p in of_opaque)
    assert {p.hdim_q for p in of_opaque} >= {64, 128}
    assert [p for p in of_assembly if p.assembly]


def test_program_passes_what_has_no_default() -> None:
    """Prevents: a program that fits the entry points of one AITER alone."""
    entries = (
        EntryPoint("mha_fwd", 4, ("args", "s", "q_dtype_str")),
        EntryPoint("mha_fwd_workspace_size", 1, ("args",)),
    )
    text = program(module(entries=entries))
    assert '#include "qola_mha_fwd.h"' in text
    assert "values.q_dtype_str);" in text
    assert "workspace" not in text


def test_caller_passes_what_has_a_default_where_it_is_given() -> None:
    """Prevents: a choice of AITER's that no caller by name can make, such as how v3 rounds."""
    entry = EntryPoint("mha_fwd", 5, ("args", "s", "q_dtype_str"), ("how", "check"))
    text = " ".join(caller(module(entries=(entry,))).split())
    given = [f'qola_caller::Parameter(values, "{n}")' for n in ("q_dtype_str", "how", "check")]
    for count in (2, 1, 0):
        names = ", ".join(('"how"', '"check"')[:count])
        condition = f"if(values.has({names})) " if count else ""
        call = ", ".join(["args", "ck_tile::stream_config{nullptr}", *given[: 1 + count]])
        whole = f"{condition}return QOLA_NS(mha_fwd)({call});"
        assert whole in text
        text = text.partition(whole)[2]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("exit 7", "ended the process"),
        ("while read -r _; do echo '[aiter] x'; echo qola_launch -2; done < $1", "returned -2"),
        ("while read -r line; do echo qola_launch 0; done < $1", "returned 0"),
    ],
)
def test_a_library_that_launches_nothing(tmp_path: Path, code: str, said: str) -> None:
    """Prevents: a dead library that counts as proven, and a crash that ends the others' turn."""
    script = tmp_path / "program"
    script.write_text(f"#!/bin/sh\n{code}\n")
    script.chmod(0o755)
    made = module(kernels=(0,), code_objects=(BLOB,))
    whole = plan(kernels=(kernel("k", fields=FIELDS),), modules=(made,))
    proofs = prove(whole, made, ["gfx950"], script, tmp_path / "libamdhip64.so.7")
    assert [(proof.of, proof.ran) for proof in proofs] == [
        ("kernel instances", ()),
        ("assembly kernels", ()),
    ]
    assert proofs[0].tried == (20 if "exit" in code else len(problems(whole, made, "fwd")))
    assert proofs[1].failed[0].problem.assembly
    first, shown, *_ = proofs[0].lines()
    assert first.startswith("gfx950 mha_fwd: none of ")
    assert shown == f"    fp16 32x64 group mask=2: {said}"


def test_every_arch_and_entry_point_counts(tmp_path: Path) -> None:
    """Prevents: an arch without kernels, or an entry point behind one that crashes, left out."""
    script = tmp_path / "program"
    script.write_text("#!/bin/sh\ngrep -q entry=mha_fwd_splitkv $1 && exit 0\nexit 9\n")
    script.chmod(0o755)
    entries = tuple(EntryPoint(name, 2, ("args", "s")) for name in ("mha_fwd", "mha_fwd_splitkv"))
    made = module(kernels=(0, 1), entries=entries)
    of = {"fields": FIELDS, "direction": "fwd_splitkv", "role": "splitkv"}
    whole = plan(kernels=(kernel("k", fields=FIELDS), kernel("s", **of)), modules=(made,))
    proofs = prove(whole, made, ["gfx950", "gfx942"], script, tmp_path / "libamdhip64.so.7")
    assert [(proof.arch, proof.entry, proof.ran) for proof in proofs] == [
        ("gfx950", "mha_fwd", ()),
        ("gfx950", "mha_fwd_splitkv", ()),
        ("gfx942", "mha_fwd", ()),
    ]
    assert "none is planned" in next(proofs[2].lines())


def test_a_crash_after_the_last_answer_counts(tmp_path: Path) -> None:
    """Prevents: a library that brings its process down at the end, and passes."""
    script = tmp_path / "program"
    script.write_text("#!/bin/sh\nwhile read -r _; do echo qola_launch 0; done < $1\nkill -6 $$\n")
    script.chmod(0o755)
    made = module(kernels=(0,))
    whole = plan(kernels=(kernel("k", fields=FIELDS),), modules=(made,))
    (proof,) = prove(whole, made, ["gfx950"], script, tmp_path / "libamdhip64.so.7")
    assert [answer.status for answer in proof.failed] == [None]


def test_a_process_without_an_end_is_killed(tmp_path: Path) -> None:
    """Prevents: a nightly that waits for an entry point for good."""
    hip = FakeHip(tmp_path / "libamdhip64.so.7", "gfx950", timeout=0.5)
    command = ["/bin/sh", "-c", "echo begun; while :; do :; done"]
    ended = hip.run(command, tmp_path / "log")
    assert (ended.returncode, ended.stdout) == (-9, "begun\n")
    assert "no end after 0.5 s" in ended.stderr


def test_what_a_proof_says() -> None:
    """Prevents: a proof that does not say of what."""
    answer = Answer(Problem("mha_fwd", "bf16", 128, 128, group=False), 0.0, ())
    proof = Proof("gfx942", "mha_fwd", "assembly kernels", 9, (answer, answer), ())
    said = "gfx942 mha_fwd: 2 of 9 problems launch assembly kernels, such as bf16 128x128 batch"
    assert [*proof.lines()] == [said]
