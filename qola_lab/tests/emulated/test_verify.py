"""`qola_lab.verify` on built libraries: correct kernels pass, wrong kernels and calls fail."""

from __future__ import annotations

import gc
import json
import logging
import multiprocessing
import os
import re
import struct
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gfxemu.decode import Instruction, sweep
from gfxemu.hip import Hip
from gfxemu.launch import Device, Module, Options, Result
from qola.codegen.ck.link import NotUnderstoodError
from qola_base.code_object.reader import CodeObject
from qola_base.errors import QolaError
from qola_lab.problems import make_problem
from qola_lab.tests.emulated.libraries import built_library
from qola_lab.verify import cached
from qola_lab.verify.__main__ import main
from qola_lab.verify.case import Case, Sample
from qola_lab.verify.host import Built
from qola_lab.verify.outcome import Outcome, Trial, key_of, lines, to_json
from qola_lab.verify.replay import EmulatedRun, Emulator, contents, outcomes
from qola_lab.verify.repository import Dispatch
from qola_lab.verify.run import KernelSamples, VerifyRequest, draw, record_calls, verify
from qola_lab.verify.store import VerdictStore
from qola_lab.verify.tensors import entry_values, tensors
from tests.library.offload import code_objects, replace_code

ARCH = "gfx950"
#: Forward kernels for seqlen_k in whole tiles, and for any seqlen_k.
WHOLE, PADDED = "*_psddv_*_gfx950", "*_psskddv_*_gfx950"
#: Byte offset of seqlen_k in the forward kernels' arguments.
SEQLEN_K = 36
_NOP = bytes.fromhex("000080bf")

Edit = Callable[[bytearray, str], None]


def verify_kernel(
    pattern: str,
    samples: int = 1,
    module: str = "libmha_fwd",
    manifest: str = "CI",
    arch: str = ARCH,
) -> Outcome:
    request = VerifyRequest(arch, (pattern,), samples, max_work=1 << 15)
    # Others are kernels that the problems launched, too, and that failed.
    found = verify(built_library(module, manifest), request)
    (outcome,) = (one for one in found if request.takes(one.kernel))
    return outcome


def instructions(code: bytearray, name: str, arch: str = ARCH) -> list[tuple[int, int]]:
    """Return place and size of each instruction whose name contains a text."""
    found = sweep(bytes(code), arch).items()
    return [(at, i.size) for at, i in found if isinstance(i, Instruction) and name in i.name]


def find_instructions(code: bytearray, name: str) -> list[int]:
    return [at for at, _ in instructions(code, name)]


def drop(name: str, number: int | None = None) -> Edit:
    """Return an edit that drops the instructions of a name, or one of them."""

    def edit(code: bytearray, arch: str) -> None:
        found = instructions(code, name, arch)
        for at, size in found if number is None else [found[number]]:
            code[at : at + size] = _NOP * (size // len(_NOP))

    return edit


def square_last_multiplication(code: bytearray, _arch: str) -> None:
    """Use the second operand as the first one, too: nine bits each."""
    at = find_instructions(code, "V_MFMA")[-1] + 4
    word = int.from_bytes(code[at : at + 4], "little")
    word = word & ~0x1FF | word >> 9 & 0x1FF
    code[at : at + 4] = word.to_bytes(4, "little")


def leave_a_sum_uninitialised(code: bytearray, _arch: str) -> None:
    """Drop the first move of 0: that to the register in which a row's exponentials add up."""
    at = next(at for at in find_instructions(code, "V_MOV_B32") if code[at] == 128)
    code[at : at + 4] = _NOP


def leave_lse_to_base_2(code: bytearray, _arch: str) -> None:
    """Keep the result of v_log_f32 instead of selecting its product with ln 2."""
    log = find_instructions(code, "V_LOG_F32")[-1]
    at = next(at for at in find_instructions(code, "V_CNDMASK_B32") if at > log)
    code[at : at + 4] = _NOP


def flip_an_addition(code: bytearray, _arch: str) -> None:
    """Subtract instead of add: move one bit of VOP2's opcode."""
    at = next(at for at in find_instructions(code, "V_ADD_F32") if code[at + 3] >> 1 == 1)
    code[at + 3] ^= 0b110


def halve_the_tile(code: bytearray, _arch: str) -> None:
    """Advance K by 32 rows instead of a tile's 64; constants are encoded as 128 + n."""
    at = next(at for at in find_instructions(code, "S_ADD_I32") if code[at + 1] == 128 + 64)
    code[at + 1] = 128 + 32


def move_the_mask(code: bytearray, _arch: str, number: int | None = None) -> None:
    """Let one more column of K pass the mask: >= instead of >, in all comparisons or in one."""
    first, *_, last = find_instructions(code, "V_MFMA")
    compared = [at for at in find_instructions(code, "V_CMP_GT_I32") if first < at < last]
    if number is not None:
        compared = compared[number : number + 1]
    for at in compared:
        code[at + 2] += (0xC6 - 0xC4) << 1


def leave_a_column_out_of_the_maximum(code: bytearray, _arch: str) -> None:
    """Read V_MAX3's third operand from another register: sums stay right unless one overflows."""
    at = find_instructions(code, "V_MAX3_F32")[1]
    code[at + 6] ^= 0b1000


def edit_kernels(monkeypatch: pytest.MonkeyPatch, edit: Edit) -> None:
    """Change the code that the device loads; the processes that run it are forks of this one."""
    read = CodeObject.read

    def read_edited(data: bytes, name: str = "code object") -> CodeObject:
        code_object = read(data, name)
        image = bytearray(code_object.image)
        for kernel in code_object.kernels.values():
            code = image[kernel.entry : kernel.entry + kernel.size]
            edit(code, code_object.arch)
            image[kernel.entry : kernel.entry + kernel.size] = code
        return replace(code_object, image=bytes(image))

    monkeypatch.setattr(CodeObject, "read", read_edited)


def edit_values(
    monkeypatch: pytest.MonkeyPatch, values: Mapping[str, Callable[[Any], Any]]
) -> None:
    """Pass other values to the host code than the problem's."""

    def edited_values(*words: Any) -> dict[str, Any]:
        originals = entry_values(*words)
        return originals | {name: edit(originals[name]) for name, edit in values.items()}

    monkeypatch.setattr("qola_lab.verify.host.entry_values", edited_values)


def _survives_collection() -> bool:
    hip = Hip(built_library("libmha_fwd").runtime, ARCH)
    device = weakref.ref(hip)
    del hip
    gc.collect()
    return device() is not None


def test_the_device_of_the_runtime_is_not_collected() -> None:
    """Prevents: a launch that calls a device whose Python object was garbage-collected."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(_survives_collection)


def record_problem(direction: str, arch: str = ARCH, hdim: int = 32) -> Case:
    """Record one call of libmha_fwd or libmha_bwd, of a manifest that has `arch`."""
    sizes = {"hdim": hdim, "seqlen_q": 130, "seqlen_k": 150, "nhead_q": 2, "nhead_k": 1}
    manifest, dtype = ("OTHER_ARCHS", "bf16") if arch == "gfx1201" else ("CI", "fp16")
    problem = make_problem(direction, dtype, return_lse=direction == "fwd", **sizes)
    return record_calls(built_library(f"libmha_{direction}", manifest), arch, [problem])


def run_problem(direction: str, arch: str, options: Options | None = None) -> EmulatedRun:
    """Emulate the call of `record_problem`."""
    case = record_problem(direction, arch)
    (call,) = case.calls
    inputs = contents(call.problem, tensors(call.problem, arch, call.sample.data), arch)
    names = ("o", "lse") if direction == "fwd" else ("dq", "dk", "dv")
    emulator = Emulator(options or Options())
    found = emulator.run(call, arch, case.codes_of(call), inputs, names)
    assert found.error == ""
    assert found.instructions > 10_000
    return found


_THOROUGH = pytest.mark.thorough


@pytest.mark.parametrize(
    ("direction", "arch"),
    [
        ("fwd", "gfx942"),
        ("bwd", "gfx950"),
        pytest.param("fwd", "gfx950", marks=_THOROUGH),
        pytest.param("bwd", "gfx942", marks=_THOROUGH),
        pytest.param("fwd", "gfx1201", marks=_THOROUGH),
    ],
)
def test_checks_do_not_change_results(direction: str, arch: str) -> None:
    """Prevents: a checked launch with other results, or with another number of instructions."""
    plain, checked = (
        run_problem(direction, arch, Options(checked=checked)) for checked in (False, True)
    )
    assert plain.findings == ()
    assert plain.instructions == checked.instructions
    assert {name: array.tobytes() for name, array in plain.results.items()} == {
        name: array.tobytes() for name, array in checked.results.items()
    }


@pytest.mark.parametrize(
    "arch", ["gfx950", *(pytest.param(arch, marks=_THOROUGH) for arch in ("gfx942", "gfx1201"))]
)
def test_missing_waits_of_each_counter_are_reported(
    monkeypatch: pytest.MonkeyPatch, arch: str
) -> None:
    """Prevents: a missing wait that is not reported, for one of the kinds of loads."""
    edit_kernels(monkeypatch, drop("S_WAIT"))
    findings = run_problem("fwd", arch).findings
    assert any(": race: " in finding for finding in findings)
    for load in ("s_load", "buffer_load", "ds_load" if arch == "gfx1201" else "ds_read"):
        assert any("loaded by +0x" in finding and f" {load}" in finding for finding in findings), (
            load
        )


def test_checks_report_only_uninitialised_registers() -> None:
    """Prevents: checked mode that reports correct code, or changes results."""
    (outcome,) = outcomes([record_problem("fwd")], 1, Options(checked=True))
    (trial,) = outcome.trials
    assert trial.compared
    # Compilers read unwritten registers if the result does not depend on them.
    assert all("uninitialised register" in fault for fault in trial.faults()), trial.faults()


#: Arguments of `verify_kernel`.
FORWARD, BACKWARD = (WHOLE,), ("fmha_bwd_d32_*_npad_*", 1, "libmha_bwd")
RDNA4 = ("*_npad_*_gfx12", 1, "libmha_fwd", "OTHER_ARCHS", "gfx1201")
ON_GFX942 = ("*_psddv_*", 1, "libmha_fwd", "CI", "gfx942")


@pytest.mark.quick(12)
@pytest.mark.parametrize(
    ("kernel", "edit", "names", "kind"),
    [
        (FORWARD, lambda *_: None, set(), ""),
        ((PADDED,), lambda *_: None, set(), ""),
        (FORWARD, drop("V_MFMA", -1), {"o"}, ""),
        (FORWARD, leave_lse_to_base_2, {"lse"}, ""),
        # Results are right: the emulator completes every load at once.
        (FORWARD, drop("S_WAIT"), set(), "missing wait"),
        (BACKWARD, drop("S_WAIT"), set(), "missing wait"),
        (ON_GFX942, drop("S_WAIT"), set(), "missing wait"),
        ((*BACKWARD, "CI", "gfx942"), drop("S_WAIT"), set(), "missing wait"),
        (FORWARD, drop("S_BARRIER"), None, "race"),
        (BACKWARD, drop("S_BARRIER"), None, "race"),
        (ON_GFX942, drop("S_BARRIER"), None, "race"),
        ((*BACKWARD, "CI", "gfx942"), drop("S_BARRIER"), None, "race"),
        (FORWARD, flip_an_addition, {"o", "lse"}, ""),
        (FORWARD, square_last_multiplication, {"o"}, ""),
        (FORWARD, drop("V_EXP_F32", 0), {"o", "lse"}, ""),
        (FORWARD, leave_a_sum_uninitialised, {"o", "lse"}, ""),
        (RDNA4, lambda *_: None, set(), ""),
        (RDNA4, drop("V_WMMA", -1), {"o"}, ""),
        (RDNA4, drop("V_EXP_F32", 0), {"o", "lse"}, ""),
        (RDNA4, drop("S_WAIT_LOADCNT"), set(), "missing wait"),
        (RDNA4, drop("S_WAIT_DSCNT"), set(), "missing wait"),
        (RDNA4, drop("S_WAIT_KMCNT"), set(), "missing wait"),
        (RDNA4, drop("S_BARRIER"), None, "race"),
    ],
)
def test_changed_code_fails(
    monkeypatch: pytest.MonkeyPatch,
    kernel: tuple[Any, ...],
    edit: Edit,
    names: set[str] | None,
    kind: str,
) -> None:
    """Prevents: a kernel with a changed instruction that passes, or a right one that fails."""
    edit_kernels(monkeypatch, edit)
    outcome = verify_kernel(*kernel)
    assert outcome.state == ("passed" if names == set() and not kind else "failed")
    (trial,) = outcome.trials
    if names is not None:
        assert {verdict.name for verdict in trial.verdicts if not verdict.passed} == names
    kinds = {
        known for known in ("missing wait", "race") if any(known in text for text in trial.faults())
    }
    assert kind in kinds if kind else not kinds, trial.faults()
    assert outcome.kernel in to_json([outcome])


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("pattern", "samples", "edit"),
    [
        # Only problems that end within a tile, or at its end, show these.
        (WHOLE, 3, halve_the_tile),
        (PADDED, 3, move_the_mask),
        # Only scores of which one overflows with a wrong maximum.
        (PADDED, 12, leave_a_column_out_of_the_maximum),
        # Only sequences that end at one column.
        *((PADDED, 2, partial(move_the_mask, number=number)) for number in (3, 0, 9, 14)),
    ],
)
def test_changed_code_that_few_problems_show_fails(
    monkeypatch: pytest.MonkeyPatch, pattern: str, samples: int, edit: Edit
) -> None:
    """Prevents: sampled problems that show no error at the edges of tiles, masks and values."""
    edit_kernels(monkeypatch, edit)
    outcome = verify_kernel(pattern, samples)
    assert outcome.state == "failed"
    assert any("elements are beyond" in fault for fault in outcome.faults()), outcome.faults()


def test_an_unpadded_kernel_with_an_odd_length_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a dispatch that launches a kernel for lengths that the kernel does not support."""
    less = 7

    def draw_shorter(*words: Any) -> KernelSamples:
        found = draw(*words)
        (sample,) = found.samples
        seqlen_k = tuple(length - less for length in sample.problem.seqlen_k)
        problem = replace(sample.problem, seqlen_k=seqlen_k)
        # With large logits, the zeros of missing columns would not change the softmax.
        data = replace(sample.data, magnitude=0.5)
        return replace(found, samples=(Sample(problem, data),))

    def launch(device: Device, module: Module, symbol: str, *words: Any) -> Result:
        grid, block, arguments, lds = words
        (seqlen_k_argument,) = struct.unpack_from("<i", arguments, SEQLEN_K)
        shorter = bytearray(arguments)
        struct.pack_into("<i", shorter, SEQLEN_K, seqlen_k_argument - less)
        return run(device, module, symbol, grid, block, bytes(shorter), lds)

    run = Device.launch
    # The host code sees whole tiles, the kernel sees the actual length.
    monkeypatch.setattr("qola_lab.verify.run.draw", draw_shorter)
    edit_values(monkeypatch, {"seqlen_k": lambda length: length + less})
    monkeypatch.setattr(Device, "launch", launch)
    outcome = verify_kernel(WHOLE)
    assert outcome.kernel in outcome.trials[0].launched
    assert any("elements are beyond" in fault for fault in outcome.faults()), outcome.faults()


@pytest.mark.parametrize("arch", ["gfx942", pytest.param("gfx950", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("module", "patterns"),
    [
        (
            "libmha_fwd",
            # Of gfx942, a kernel with AITER's default rounding, and one with a requested rounding.
            ("*gfx950/*/fwd_hd128_bf16*", "*MI308/fwd_hd128_bf16_rtna*", "*MI300/*_bf16_rtz*"),
        ),
        ("libmha_bwd", ("*bwd_hd64_bf16_a*_rt[az]*",)),
    ],
    ids=["fwd", "bwd"],
)
def test_assembly_kernels_agree(arch: str, module: str, patterns: tuple[str, ...]) -> None:
    """Prevents: assembly kernels without verification, or an unnoticed launch of another kernel."""
    request = VerifyRequest(arch, patterns, 1, max_work=1 << 15, processes=2)
    results = verify(built_library(module, "ASM"), request)
    assert results
    assert all(outcome.state == "passed" for outcome in results), lines(results)
    for outcome in results:
        assert all(outcome.kernel in trial.launched for trial in outcome.trials)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"scale_s": lambda scale: scale * 1.01}, "elements are beyond"),
        ({"seqlen_k": lambda length: length - 64}, "elements are beyond"),
        ({"stride_o": lambda stride: stride + 1}, "elements are beyond"),
        ({"has_lse": lambda _: False}, "returned -1: no kernel"),
        ({"seqlen_k": lambda length: length + 1}, "unmapped"),
    ],
    ids=["scale", "a tile too few", "stride", "no kernel", "beyond K"],
)
def test_wrong_calls_fail(
    monkeypatch: pytest.MonkeyPatch, values: Mapping[str, Callable[[Any], Any]], message: str
) -> None:
    """Prevents: host code that passes although it launches another problem than requested."""
    edit_values(monkeypatch, values)
    outcome = verify_kernel(WHOLE)
    assert outcome.state == "failed"
    # A wrong length launches another kernel, whose faults are its own.
    faults = [fault for trial in outcome.trials for fault in trial.faults()]
    assert any(message in fault for fault in faults), faults


def test_a_barrier_behind_reads_is_missing_if_checked() -> None:
    """Prevents: a missed race of compiled backward kernels (docs/internals/emulation.md)."""
    (outcome,) = outcomes([record_problem("bwd", hdim=31)], 1, Options(checked=True))
    races = [fault for fault in outcome.trials[0].faults() if ": race: " in fault]
    assert races
    assert all("ds_write" in fault and ", read by wave " in fault for fault in races), races


def test_gradients_agree_and_a_wrong_scale_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: gradients that are not compared, or helper kernels that fail with the main one."""
    pattern = "fmha_bwd_d32_*_npad_*"
    correct = verify_kernel(pattern, module="libmha_bwd")
    assert correct.state == "passed", lines([correct])
    assert {verdict.name for verdict in correct.trials[0].verdicts} == {"dq", "dk", "dv"}
    edit_values(monkeypatch, {"scale": lambda scale: scale * 1.05})
    # Only the main kernel: D is right, and dQ is the sum of its shares.
    patterns = pattern, "*_dot_do_o_*", "*_convert_dq_*"
    found = verify(built_library("libmha_bwd"), VerifyRequest(ARCH, patterns, 1, max_work=1 << 15))
    states = {one.kernel: one.state for one in found}
    assert states.pop(correct.kernel) == "failed"
    helpers = [name for name in correct.trials[0].launched if name != correct.kernel]
    assert {states[name] for name in helpers} == {"passed"}, lines(found)


def test_pages_agree_and_a_wrong_block_table_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: pages in an order with which a kernel that ignores the block table is correct."""
    pattern = "fmha_fwd_splitkv_d32_*_pssk_nlogits_*_pagedkv_*"
    correct = verify_kernel(pattern, manifest="SPLITKV")
    assert correct.state == "passed", lines([correct])
    assert correct.trials[0].problem.layout.page_block_size
    assert {"lse", "o"} >= {verdict.name for verdict in correct.trials[0].verdicts} >= {"o"}
    edit_values(monkeypatch, {"batch_stride_block_table": lambda _: 0})
    wrong = verify_kernel(pattern, manifest="SPLITKV")
    assert any("elements are beyond" in fault for fault in wrong.faults()), wrong.faults()
    # The kernel that combines the splits is right.
    (trial,) = wrong.trials
    assert [name for name in trial.launched if trial.faults_of(name)] == [wrong.kernel]


def test_without_a_dispatch_the_library_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: unverified kernels when qola cannot parse the dispatch of another CK version."""

    def dispatch(*_: object) -> Dispatch:
        raise NotUnderstoodError("a.something_new")

    monkeypatch.setattr(Built, "dispatch", dispatch)
    outcome = verify_kernel(WHOLE)
    assert outcome.state == "passed", lines([outcome])
    assert outcome.kernel in outcome.trials[0].launched


@pytest.mark.parametrize(
    ("function", "message"),
    [("replay.Emulator.try_call", "that ran it died"), ("host.Host.call", "that called it died")],
)
def test_a_process_that_dies_is_an_error(
    monkeypatch: pytest.MonkeyPatch, function: str, message: str
) -> None:
    """Prevents: a run that hangs because a kernel or a library ended its process."""
    monkeypatch.setattr(f"qola_lab.verify.{function}", lambda *_: os._exit(3))
    with pytest.raises(QolaError, match=message):
        verify_kernel(WHOLE)


def test_problems_are_drawn_until_all_code_has_run() -> None:
    """Prevents: loops of a kernel that no problem enters, without a word about them."""
    request = VerifyRequest(ARCH, ("fmha_bwd_d32_*_npad_*",), 1, max_work=1 << 13, max_samples=4)
    once, more = (
        next(one for one in verify(built_library("libmha_bwd"), how) if how.takes(one.kernel))
        for how in (replace(request, max_samples=1), request)
    )
    assert once.coverage
    assert more.coverage
    assert once.state == more.state == "passed", lines([once, more])
    assert once.coverage.missing
    assert len(more.trials) > len(once.trials) == 1
    assert more.trials[:1] == once.trials
    assert (more.digest, more.coverage.instructions) == (once.digest, once.coverage.instructions)
    assert more.coverage.executed("instructions") > once.coverage.executed("instructions")
    assert more.coverage.executed("barriers") >= once.coverage.executed("barriers") > 0
    # A name and a place for what is left.
    left = [line for line in lines([once]) if "not all code ran" in line]
    assert f"+{once.coverage.missing[0].start:#x} to " in left[0]


def test_an_interrupted_run_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents: hours of emulation lost, or stored verdicts reused for other problems or limits."""
    store = VerdictStore({"QOLA_CACHE_HOME": str(tmp_path)})
    request = VerifyRequest(ARCH, (WHOLE, PADDED), 1, max_work=1 << 15)
    store_outcome = store.store
    stored: list[Outcome] = []

    def interrupt(key: object, outcome: Outcome) -> None:
        if stored:
            raise KeyboardInterrupt
        stored.append(outcome)
        store_outcome(key, outcome)

    monkeypatch.setattr(store, "store", interrupt)
    with pytest.raises(KeyboardInterrupt):
        verify(built_library("libmha_fwd"), request, store)
    # From here on, every verified kernel gets another outcome.
    monkeypatch.undo()
    fail_again = lambda _, call, *__: Trial(call.sample, call.names, (), (), "again")  # noqa: E731
    monkeypatch.setattr("qola_lab.verify.replay.Emulator.try_call", fail_again)
    caplog.set_level(logging.INFO)
    results = verify(built_library("libmha_fwd"), request, store)
    assert "2 kernels (gfx950): 1 have a stored verdict, 1 are tried" in caplog.messages
    assert [outcome for outcome in results if outcome.state == "passed"] == stored
    assert [outcome.trials[0].error for outcome in results if outcome.state == "failed"] == [
        "again"
    ]
    # Verdicts are stored per number of problems and per limit.
    for changed in (replace(request, samples=2), replace(request, max_instructions=10**6)):
        assert all(
            outcome.state == "failed"
            for outcome in verify(built_library("libmha_fwd"), changed, store)
        )


def arguments(module: str) -> list[str]:
    library = built_library(module)
    files = (library.library, library.caller, library.repository / "plan.json")
    return ["--runtime", str(library.runtime), "--module", module, *map(str, files)]


def test_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: reports without an arch, or success although no kernel was verified."""
    monkeypatch.setenv("QOLA_CACHE_HOME", str(tmp_path / "cache"))
    suite, page, record = (tmp_path / name for name in ("x.xml", "x.html", "x.verdicts"))
    options = [*arguments("libmha_fwd"), "--samples=1", "--max-samples=1", f"--junit={suite}"]
    options += [f"--html={page}", f"--verdicts={record}"]
    assert main([*options, "--kernels=*_psddv_*"]) == 0
    head, *unexecuted, counts = capsys.readouterr().out.splitlines()
    assert "1 problems for each kernel, seed 0; at most 1 where code has not run" in head
    assert "at most 100,000,000 instructions a launch" in head
    assert counts.startswith("2 passed, 0 failed, 0 untried; 2 problems; ")
    assert re.search(r"; \d+ of \d+ instructions, \d+ of \d+ barriers, \d+ of \d+ waits ex", counts)
    assert all(line.startswith("not all code ran: fmha_fwd_") for line in unexecuted)
    assert main([*options, "--kernels=*_psddv_*", "--json"]) == 0
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    # The second run reads the verdicts of the first one.
    for kernel in kernels:
        assert f"{key_of(kernel['kernel'])} {kernel['digest'][:8]}\n" in record.read_text()
    assert "passed gfx950 1\n" in record.read_text()
    assert [kernel["arch"] for kernel in kernels] == ["gfx942", "gfx950"]
    assert 'tests="2" failures="0"' in suite.read_text()
    assert "Emulated kernels of ci" in page.read_text()
    assert "at most 100,000,000 instructions a launch" in page.read_text()
    assert main([*options, "--kernels=none"]) == 1
    assert "no kernel" in capsys.readouterr().err
    assert main([*options, "--kernels=none", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == 1
    assert main([*options, "--arch=gfx1250"]) == 1
    assert "an arch that is not emulated" in capsys.readouterr().err


def test_the_output_names_a_reached_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a limit that is ignored, or a kernel reported as endless without the limit."""
    monkeypatch.setenv("QOLA_CACHE_HOME", str(tmp_path))
    options = [*arguments("libmha_fwd"), "--samples=1", "--kernels=*_psddv_*", "--arch=gfx950"]
    assert main([*options, "--junit=", "--max-instructions=1000"]) == 13
    output = capsys.readouterr().out
    assert "; at most 1,000 instructions a launch (--max-instructions); " in output
    assert "endless: more than 1,000 instructions\n" in output


@pytest.mark.thorough
def test_only_the_case_of_a_changed_kernel_changes(tmp_path: Path) -> None:
    """Prevents: every kernel of a batch emulated again because one of them changed."""
    changed_library = tmp_path / built_library("libmha_fwd").library.name
    data = bytearray(built_library("libmha_fwd").library.read_bytes())
    (code,) = [code for arch, code in code_objects(data) if arch == ARCH]
    code_object = CodeObject.read(code)
    kernel = next(iter(code_object.kernels.values()))
    text = code_object.image[kernel.entry : kernel.entry + kernel.size]
    altered = bytearray(text)
    altered[find_instructions(altered, "V_EXP_F32")[0]] ^= 1
    replace_code(data, text, bytes(altered))
    changed_library.write_bytes(data)
    cases = []
    for library in (built_library("libmha_fwd").library, changed_library):
        options = arguments("libmha_fwd")
        options[4] = str(library)
        others_file = tmp_path / "others"
        names = [kernel_.name for kernel_ in built_library("libmha_fwd").kernels]
        files = [tmp_path / str(number) for number in range(len(names))]
        for name, case in zip(names, files, strict=True):
            options += ["--case", name, str(case)]
        assert cached.main(["record", *options, "--samples=1", f"--others={others_file}"]) == 0
        assert others_file.read_text() == "[]\n"
        cases.append({n: case.read_text() for n, case in zip(names, files, strict=True)})
    before, after = cases
    unchanged = {name for name in before if before[name] == after[name]}
    changed_kernel = built_library("libmha_fwd").symbols(ARCH)[kernel.symbol]
    assert unchanged == set(before) - {changed_kernel}
    outcome = tmp_path / "outcome"
    other = next(case for name, case in zip(names, files, strict=True) if name in unchanged)
    assert cached.main(["replay", "--cases", str(other), "--output", str(outcome)]) == 0
    assert cached.main(["judge", "--name=x", "--junit=", str(outcome)]) == 0
