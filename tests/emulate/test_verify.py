"""Verification of a built library: wrong kernels are told apart from right ones."""

from __future__ import annotations

import gc
import json
import logging
import multiprocessing
import os
import struct
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from qola.attention import make_problem
from qola.code_object.reader import CodeObject
from qola.codegen.ck.link import NotUnderstoodError
from qola.emulate import native
from qola.emulate.decode import sweep
from qola.emulate.hip import Hip
from qola.emulate.launch import Device, Module, Options, Result
from qola.errors import QolaError
from qola.verify import cached
from qola.verify.__main__ import main
from qola.verify.case import Sample
from qola.verify.dispatch import Dispatch
from qola.verify.host import Built
from qola.verify.outcome import Outcome, Trial, lines, to_json
from qola.verify.record import key_of
from qola.verify.replay import EmulatedRun, Emulator, contents, outcomes
from qola.verify.run import VerifyRequest, called, verify
from qola.verify.sample import KernelSamples, draw
from qola.verify.store import VerdictStore
from qola.verify.tensors import tensors
from qola.verify.values import entry_values
from tests.emulate.libraries import built
from tests.library.offload import code_objects, replace_code

ARCH = "gfx950"
#: Of the forward library: K whole tiles, and K of any length.
WHOLE, PADDED = "*_psddv_*_gfx950", "*_psskddv_*_gfx950"
#: Where the forward kernels' arguments have the length of K, in bytes.
SEQLEN_K = 36
_NOP = bytes.fromhex("000080bf")

Edit = Callable[[bytearray], None]


def tried(
    pattern: str,
    samples: int = 1,
    module: str = "libmha_fwd",
    manifest: str = "CI",
    arch: str = ARCH,
) -> Outcome:
    request = VerifyRequest(arch, (pattern,), samples, max_work=1 << 15)
    (outcome,) = verify(built(module, manifest), request)
    return outcome


def places(code: bytearray, name: str, arch: str = ARCH) -> list[int]:
    found = sweep(bytes(code), arch).items()
    return [at for at, one in found if name in getattr(one, "name", "")]


def drop_last_multiplication(code: bytearray) -> None:
    at = places(code, "V_MFMA")[-1]
    code[at : at + 8] = _NOP * 2


def square_last_multiplication(code: bytearray) -> None:
    """Uses the second operand as the first one, too: nine bits each."""
    at = places(code, "V_MFMA")[-1] + 4
    word = int.from_bytes(code[at : at + 4], "little")
    word = word & ~0x1FF | word >> 9 & 0x1FF
    code[at : at + 4] = word.to_bytes(4, "little")


def drop_an_exponential(code: bytearray) -> None:
    at = places(code, "V_EXP_F32")[0]
    code[at : at + 4] = _NOP


def leave_lse_to_base_2(code: bytearray) -> None:
    """Leaves what v_log_f32 gave, where its product with ln 2 is chosen."""
    log = places(code, "V_LOG_F32")[-1]
    at = next(at for at in places(code, "V_CNDMASK_B32") if at > log)
    code[at : at + 4] = _NOP


def flip_an_addition(code: bytearray) -> None:
    """Subtracts instead: one bit of VOP2's operation moves by a place."""
    at = next(at for at in places(code, "V_ADD_F32") if code[at + 3] >> 1 == 1)
    code[at + 3] ^= 0b110


def halve_the_tile(code: bytearray) -> None:
    """Goes on by 32 rows of K where a tile has 64: the constants are 128 + n."""
    at = next(at for at in places(code, "S_ADD_I32") if code[at + 1] == 128 + 64)
    code[at + 1] = 128 + 32


def move_the_mask(code: bytearray) -> None:
    """Lets the column behind the last one count: >= in place of >, between multiplications."""
    first, *_, last = places(code, "V_MFMA")
    for at in places(code, "V_CMP_GT_I32"):
        if first < at < last:
            code[at + 2] += (0xC6 - 0xC4) << 1


def leave_a_column_out_of_the_maximum(code: bytearray) -> None:
    """Takes the third operand from another register: the sums stay right, unless one overflows."""
    at = places(code, "V_MAX3_F32")[1]
    code[at + 6] ^= 0b1000


def drop_waits(code: bytearray, arch: str = ARCH) -> None:
    for at in places(code, "S_WAIT", arch):
        code[at : at + 4] = _NOP


def drop_barriers(code: bytearray) -> None:
    for at in places(code, "S_BARRIER"):
        code[at : at + 4] = _NOP


def edit_kernels(monkeypatch: pytest.MonkeyPatch, edit: Edit) -> None:
    """Changes the code that the device gets; processes that run it are forks of this one."""
    read = CodeObject.read

    def changed(data: bytes, name: str = "code object") -> CodeObject:
        code_object = read(data, name)
        image = bytearray(code_object.image)
        for kernel in code_object.kernels.values():
            code = image[kernel.entry : kernel.entry + kernel.size]
            edit(code)
            image[kernel.entry : kernel.entry + kernel.size] = code
        return replace(code_object, image=bytes(image))

    monkeypatch.setattr(CodeObject, "read", changed)


def edit_values(
    monkeypatch: pytest.MonkeyPatch, values: Mapping[str, Callable[[Any], Any]]
) -> None:
    """Hands the host code other values than the problem's."""

    def changed(*words: Any) -> dict[str, Any]:
        found = entry_values(*words)
        return found | {name: edit(found[name]) for name, edit in values.items()}

    monkeypatch.setattr("qola.verify.host.entry_values", changed)


def _stays() -> bool:
    hip = Hip(built("libmha_fwd").runtime, ARCH)
    device = weakref.ref(hip)
    del hip
    gc.collect()
    return device() is not None


def test_the_device_of_the_runtime_stays() -> None:
    """Prevents: a launch that calls a function which went with the last name of its device."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(_stays)


@pytest.mark.parametrize("pattern", [WHOLE, PADDED])
def test_kernels_agree(pattern: str) -> None:
    """Prevents: right kernels that are called wrong."""
    outcome = tried(pattern, samples=3)
    assert outcome.state == "passed", lines([outcome])
    assert len(outcome.trials) == 3
    assert {verdict.name for trial in outcome.trials for verdict in trial.verdicts} == {"lse", "o"}


def run_in_both_engines(direction: str, arch: str) -> tuple[EmulatedRun, EmulatedRun]:
    """Run a problem, and check that results and path are the same."""
    if native.engine() is None:
        pytest.skip("no engine for this machine")
    sizes = {"hdim": 32, "seqlen_q": 130, "seqlen_k": 150, "nhead_q": 2, "nhead_k": 1}
    manifest, dtype = ("OTHER_ARCHS", "bf16") if arch == "gfx1201" else ("CI", "fp16")
    problem = make_problem(direction, dtype, return_lse=direction == "fwd", **sizes)
    case = called(built(f"libmha_{direction}", manifest), arch, [problem])
    (call,) = case.calls
    given = contents(problem, tensors(problem, arch, call.sample.data), arch)
    names = ("o", "lse") if direction == "fwd" else ("dq", "dk", "dv")
    first, second = (
        Emulator(Options(reference=reference)).run(call, arch, case.codes_of(call), given, names)
        for reference in (False, True)
    )
    for name in names:
        assert first.results[name].tobytes() == second.results[name].tobytes(), name
    assert first.instructions == second.instructions > 10_000
    assert first.error == second.error == ""
    return first, second


@pytest.mark.parametrize(
    ("direction", "arch"),
    [
        *((direction, arch) for direction in ("fwd", "bwd") for arch in ("gfx942", "gfx950")),
        ("fwd", "gfx1201"),
    ],
)
def test_both_engines_agree(direction: str, arch: str) -> None:
    """Prevents: kernels whose results, faults or path depend on the engine that runs them."""
    first, second = run_in_both_engines(direction, arch)
    assert first.findings == second.findings == ()


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1201"])
def test_both_engines_miss_the_same_waits(monkeypatch: pytest.MonkeyPatch, arch: str) -> None:
    """Prevents: a missing wait that one engine reports, or reports for another wave."""
    edit_kernels(monkeypatch, partial(drop_waits, arch=arch))
    first, second = run_in_both_engines("fwd", arch)
    assert first.findings == second.findings
    assert any(": race: " in finding for finding in first.findings)
    for load in ("s_load", "buffer_load", "ds_load" if arch == "gfx1201" else "ds_read"):
        assert any("loaded by +0x" in one and f" {load}" in one for one in first.findings), load


def test_checks_report_only_uninitialised_registers() -> None:
    """Prevents: a checked mode that reports what kernels do rightly, or that changes results."""
    sizes = {"hdim": 32, "seqlen_q": 130, "seqlen_k": 150, "nhead_q": 2, "nhead_k": 1}
    problem = make_problem("fwd", "fp16", return_lse=True, **sizes)
    case = called(built("libmha_fwd"), ARCH, [problem])
    (outcome,) = outcomes([case], 1, Options(checked=True))
    (trial,) = outcome.trials
    assert trial.compared
    # Compilers read registers that nobody wrote if the result does not depend on them.
    assert all("uninitialised register" in fault for fault in trial.faults()), trial.faults()


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("edit", "names"),
    [
        (drop_last_multiplication, {"o"}),
        (leave_lse_to_base_2, {"lse"}),
        (flip_an_addition, {"o", "lse"}),
        (square_last_multiplication, {"o"}),
        (drop_an_exponential, {"o", "lse"}),
    ],
)
def test_changed_code_is_seen(monkeypatch: pytest.MonkeyPatch, edit: Edit, names: set[str]) -> None:
    """Prevents: a kernel with an instruction too few or another one, that passes."""
    edit_kernels(monkeypatch, edit)
    outcome = tried(WHOLE)
    assert outcome.state == "failed"
    (trial,) = outcome.trials
    assert {verdict.name for verdict in trial.verdicts if not verdict.passed} == names
    assert outcome.kernel in to_json([outcome])


def drop_a_multiplication_of_rdna4(code: bytearray) -> None:
    at = places(code, "V_WMMA", "gfx1201")[-1]
    code[at : at + 8] = _NOP * 2


def drop_all_of_rdna4(code: bytearray, name: str) -> None:
    for at in places(code, name, "gfx1201"):
        code[at : at + 4] = _NOP


def drop_an_exponential_of_rdna4(code: bytearray) -> None:
    at = places(code, "V_EXP_F32", "gfx1201")[0]
    code[at : at + 4] = _NOP


@pytest.mark.parametrize(
    ("edit", "names", "kind"),
    [
        (lambda code: None, set(), ""),
        (drop_a_multiplication_of_rdna4, {"o"}, ""),
        (drop_an_exponential_of_rdna4, {"o", "lse"}, ""),
        (partial(drop_all_of_rdna4, name="S_WAIT_LOADCNT"), set(), "missing wait"),
        (partial(drop_all_of_rdna4, name="S_WAIT_DSCNT"), set(), "missing wait"),
        (partial(drop_all_of_rdna4, name="S_WAIT_KMCNT"), set(), "missing wait"),
        (partial(drop_all_of_rdna4, name="S_BARRIER"), set(), "race"),
    ],
)
def test_waves_of_32_lanes_are_compared(
    monkeypatch: pytest.MonkeyPatch, edit: Edit, names: set[str], kind: str
) -> None:
    """Prevents: kernels for RDNA4 that pass whatever they compute, or right ones that fail."""
    edit_kernels(monkeypatch, edit)
    outcome = tried("*_npad_*_gfx12", manifest="OTHER_ARCHS", arch="gfx1201")
    (trial,) = outcome.trials
    if kind != "race":
        assert {verdict.name for verdict in trial.verdicts if not verdict.passed} == names
    kinds = {one for one in ("missing wait", "race") for fault in trial.faults() if one in fault}
    assert kind in kinds if kind else not kinds, trial.faults()
    assert outcome.state == ("failed" if names or kind else "passed")


@pytest.mark.parametrize(("pattern", "edit"), [(WHOLE, halve_the_tile), (PADDED, move_the_mask)])
def test_changed_edges_are_seen(monkeypatch: pytest.MonkeyPatch, pattern: str, edit: Edit) -> None:
    """Prevents: problems that end within the first tile, or at the end of one."""
    edit_kernels(monkeypatch, edit)
    outcome = tried(pattern, samples=3)
    assert outcome.state == "failed"
    assert any("elements are beyond" in fault for fault in outcome.faults()), outcome.faults()


def test_a_wrong_maximum_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: scores so close that no exponential overflows, whatever the maximum was."""
    edit_kernels(monkeypatch, leave_a_column_out_of_the_maximum)
    assert tried(PADDED, samples=12).state == "failed"


def test_an_unpadded_kernel_with_an_odd_length_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a dispatch that sends lengths to a kernel which is not made for them."""
    less = 7

    def drawn(*words: Any) -> KernelSamples:
        found = draw(*words)
        (sample,) = found.samples
        seqlen_k = tuple(length - less for length in sample.problem.seqlen_k)
        problem = replace(sample.problem, seqlen_k=seqlen_k)
        # Beside large logits, those of 0 that come of what is not there would not count.
        data = replace(sample.data, magnitude=0.5)
        return replace(found, samples=(Sample(problem, data),))

    def launch(device: Device, module: Module, symbol: str, *words: Any) -> Result:
        grid, block, arguments, lds = words
        (columns,) = struct.unpack_from("<i", arguments, SEQLEN_K)
        odd = bytearray(arguments)
        struct.pack_into("<i", odd, SEQLEN_K, columns - less)
        return run(device, module, symbol, grid, block, bytes(odd), lds)

    run = Device.launch
    # The host code sees whole tiles, the kernel what there is.
    monkeypatch.setattr("qola.verify.run.draw", drawn)
    edit_values(monkeypatch, {"seqlen_k": lambda length: length + less})
    monkeypatch.setattr(Device, "launch", launch)
    outcome = tried(WHOLE)
    assert outcome.kernel in outcome.trials[0].launched
    assert any("elements are beyond" in fault for fault in outcome.faults()), outcome.faults()


@pytest.mark.parametrize("arch", ["gfx942", pytest.param("gfx950", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("module", "patterns"),
    [
        (
            "libmha_fwd",
            # Of gfx942, one as AITER rounds by itself, and one that a caller has to ask for.
            ("*gfx950/*/fwd_hd128_bf16*", "*MI308/fwd_hd128_bf16_rtna*", "*MI300/*_bf16_rtz*"),
        ),
        ("libmha_bwd", ("*bwd_hd64_bf16_a*_rt[az]*",)),
    ],
    ids=["fwd", "bwd"],
)
def test_assembly_kernels_agree(arch: str, module: str, patterns: tuple[str, ...]) -> None:
    """Prevents: hand-written kernels that nobody compares, and one taken for another."""
    request = VerifyRequest(arch, patterns, 1, max_work=1 << 15, processes=2)
    found = verify(built(module, "ASM"), request)
    assert found
    assert all(one.state == "passed" for one in found), lines(found)
    for one in found:
        assert all(one.kernel in trial.launched for trial in one.trials)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"scale_s": lambda scale: scale * 1.01}, "elements are beyond"),
        ({"seqlen_k": lambda length: length - 64}, "elements are beyond"),
        ({"stride_o": lambda stride: stride + 1}, "elements are beyond"),
        ({"has_lse": lambda _: False}, "returned -1: no kernel"),
        ({"seqlen_k": lambda length: length + 1}, "unmapped"),
    ],
    ids=["scale", "a tile too few", "stride", "no kernel", "beyond K"],
)
def test_wrong_calls_are_seen(
    monkeypatch: pytest.MonkeyPatch, values: Mapping[str, Callable[[Any], Any]], said: str
) -> None:
    """Prevents: host code that launches another problem than it was given, and passes."""
    edit_values(monkeypatch, values)
    outcome = tried(WHOLE)
    assert outcome.state == "failed"
    assert any(said in fault for fault in outcome.faults()), outcome.faults()


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize(
    ("module", "pattern"), [("libmha_fwd", "*_psddv_*"), ("libmha_bwd", "fmha_bwd_d32_*_npad_*")]
)
def test_dropped_waits_are_seen(
    monkeypatch: pytest.MonkeyPatch, module: str, pattern: str, arch: str
) -> None:
    """Prevents: a kernel that reads registers before they are loaded, and passes."""
    edit_kernels(monkeypatch, drop_waits)
    outcome = tried(pattern, module=module, arch=arch)
    assert outcome.state == "failed"
    # Results are right: every load is complete at once.
    (trial,) = outcome.trials
    assert all(verdict.passed for verdict in trial.verdicts)
    assert any(": missing wait: " in fault for fault in trial.faults())


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("direction", ["fwd", "bwd"])
def test_dropped_barriers_are_seen(
    monkeypatch: pytest.MonkeyPatch, direction: str, arch: str
) -> None:
    """Prevents: waves that read the LDS before others write it, seen by one engine or by none."""
    edit_kernels(monkeypatch, drop_barriers)
    first, second = run_in_both_engines(direction, arch)
    assert first.findings == second.findings
    assert any(": race: " in finding for finding in first.findings)


def test_a_barrier_behind_reads_is_missing_if_checked() -> None:
    """Prevents: the race of compiled backward kernels in docs/internals/emulation.md forgotten."""
    sizes = {"hdim": 31, "seqlen_q": 130, "seqlen_k": 150, "nhead_q": 2, "nhead_k": 1}
    problem = make_problem("bwd", "fp16", **sizes)
    case = called(built("libmha_bwd"), ARCH, [problem])
    (outcome,) = outcomes([case], 1, Options(checked=True))
    races = [fault for fault in outcome.faults() if ": race: " in fault]
    assert races
    assert all("ds_write" in fault and ", read by wave " in fault for fault in races), races


def test_gradients_agree_and_a_wrong_scale_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: gradients that nobody compares."""
    pattern = "fmha_bwd_d32_*_npad_*"
    right = tried(pattern, module="libmha_bwd")
    assert right.state == "passed", lines([right])
    assert {verdict.name for verdict in right.trials[0].verdicts} == {"dq", "dk", "dv"}
    edit_values(monkeypatch, {"scale": lambda scale: scale * 1.05})
    assert tried(pattern, module="libmha_bwd").state == "failed"


def test_pages_agree_and_those_of_another_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: pages in an order in which a kernel that looks at no table is right, too."""
    pattern = "fmha_fwd_splitkv_d32_*_pssk_nlogits_*_pagedkv_*"
    right = tried(pattern, manifest="SPLITKV")
    assert right.state == "passed", lines([right])
    assert right.trials[0].problem.layout.page_block_size
    assert {"lse", "o"} >= {verdict.name for verdict in right.trials[0].verdicts} >= {"o"}
    edit_values(monkeypatch, {"batch_stride_block_table": lambda _: 0})
    wrong = tried(pattern, manifest="SPLITKV")
    assert any("elements are beyond" in fault for fault in wrong.faults()), wrong.faults()


def test_without_a_dispatch_the_library_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: kernels of a Composable Kernel that asks something new, untried."""

    def dispatch(*_: object) -> Dispatch:
        raise NotUnderstoodError("a.something_new")

    monkeypatch.setattr(Built, "dispatch", dispatch)
    outcome = tried(WHOLE)
    assert outcome.state == "passed", lines([outcome])
    assert outcome.kernel in outcome.trials[0].launched


@pytest.mark.parametrize(
    ("part", "words"),
    [("replay.Emulator.try_call", "that ran it died"), ("host.Host.call", "that called it died")],
)
def test_a_process_that_dies_is_an_error(
    monkeypatch: pytest.MonkeyPatch, part: str, words: str
) -> None:
    """Prevents: a run that waits for a process that a kernel or a library took down."""
    monkeypatch.setattr(f"qola.verify.{part}", lambda *_: os._exit(3))
    with pytest.raises(QolaError, match=words):
        tried(WHOLE)


def test_an_interrupted_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Prevents: hours of emulation lost, or a verdict of other problems taken for one of these."""
    store = VerdictStore({"QOLA_CACHE_HOME": str(tmp_path)})
    request = VerifyRequest(ARCH, (WHOLE, PADDED), 1, max_work=1 << 15)
    keep = store.store
    kept: list[Outcome] = []

    def interrupt(question: object, outcome: Outcome) -> None:
        if kept:
            raise KeyboardInterrupt
        kept.append(outcome)
        keep(question, outcome)

    monkeypatch.setattr(store, "store", interrupt)
    with pytest.raises(KeyboardInterrupt):
        verify(built("libmha_fwd"), request, store)
    # Whatever is tried now gets another outcome.
    monkeypatch.undo()
    again = lambda _, call, *__: Trial(call.sample, call.names, (), (), "again")  # noqa: E731
    monkeypatch.setattr("qola.verify.replay.Emulator.try_call", again)
    caplog.set_level(logging.INFO)
    found = verify(built("libmha_fwd"), request, store)
    assert "2 kernels (gfx950): 1 have a stored verdict, 1 are tried" in caplog.messages
    assert [one for one in found if one.state == "passed"] == kept
    assert [one.trials[0].error for one in found if one.state == "failed"] == ["again"]
    # More problems are other cases, and so is another limit.
    for other in (replace(request, samples=2), replace(request, max_instructions=10**6)):
        assert all(one.state == "failed" for one in verify(built("libmha_fwd"), other, store))


def arguments(module: str) -> list[str]:
    one = built(module)
    files = (one.library, one.caller, one.repository / "plan.json")
    return ["--runtime", str(one.runtime), "--module", module, *map(str, files)]


def test_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a report that lacks an arch; success where nothing was tried."""
    monkeypatch.setenv("QOLA_CACHE_HOME", str(tmp_path / "cache"))
    suite, page, record = (tmp_path / name for name in ("x.xml", "x.html", "x.verdicts"))
    words = [*arguments("libmha_fwd"), "--samples=1", f"--junit={suite}"]
    words += [f"--html={page}", f"--verdicts={record}"]
    assert main([*words, "--kernels=*_psddv_*"]) == 0
    head, counts = capsys.readouterr().out.splitlines()
    assert "1 problems for each kernel, seed 0; at most 100,000,000 instructions a launch" in head
    assert counts == "2 passed, 0 failed, 0 untried; 2 problems"
    assert main([*words, "--kernels=*_psddv_*", "--json"]) == 0
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    # The second run reads the verdicts of the first one.
    for kernel in kernels:
        assert f"{key_of(kernel['kernel'])} {kernel['digest'][:8]}\n" in record.read_text()
    assert "passed gfx950 1\n" in record.read_text()
    assert [kernel["arch"] for kernel in kernels] == ["gfx942", "gfx950"]
    assert 'tests="2" failures="0"' in suite.read_text()
    assert "Emulated kernels of ci" in page.read_text()
    assert "at most 100,000,000 instructions a launch" in page.read_text()
    assert main([*words, "--kernels=none"]) == 1
    assert "no kernel" in capsys.readouterr().err
    assert main([*words, "--kernels=none", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == 1
    assert main([*words, "--arch=gfx1250"]) == 1
    assert "an arch that is not emulated" in capsys.readouterr().err


def test_a_limit_that_is_reached_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a kernel that runs for half an hour, or one called endless for no reason."""
    monkeypatch.setenv("QOLA_CACHE_HOME", str(tmp_path))
    words = [*arguments("libmha_fwd"), "--samples=1", "--kernels=*_psddv_*", "--arch=gfx950"]
    assert main([*words, "--junit=", "--max-instructions=1000"]) == 13
    said = capsys.readouterr().out
    assert "; at most 1,000 instructions a launch (--max-instructions); " in said
    assert "endless: more than 1,000 instructions\n" in said


@pytest.mark.thorough
def test_cases_are_the_same_while_their_code_is(tmp_path: Path) -> None:
    """Prevents: every kernel of a batch tried anew because one of them changed."""
    changed = tmp_path / built("libmha_fwd").library.name
    data = bytearray(built("libmha_fwd").library.read_bytes())
    (code,) = [code for arch, code in code_objects(data) if arch == ARCH]
    code_object = CodeObject.read(code)
    kernel = next(iter(code_object.kernels.values()))
    text = code_object.image[kernel.entry : kernel.entry + kernel.size]
    altered = bytearray(text)
    altered[places(altered, "V_EXP_F32")[0]] ^= 1
    replace_code(data, text, bytes(altered))
    changed.write_bytes(data)
    found = []
    for library in (built("libmha_fwd").library, changed):
        words = arguments("libmha_fwd")
        words[4] = str(library)
        others = tmp_path / "others"
        names = [one.name for one in built("libmha_fwd").kernels]
        files = [tmp_path / str(number) for number in range(len(names))]
        for name, case in zip(names, files, strict=True):
            words += ["--case", name, str(case)]
        assert cached.main(["record", *words, "--samples=1", f"--others={others}"]) == 0
        assert others.read_text() == "[]\n"
        found.append({n: case.read_text() for n, case in zip(names, files, strict=True)})
    before, after = found
    same = {name for name in before if before[name] == after[name]}
    changed_one = built("libmha_fwd").symbols(ARCH)[kernel.symbol]
    assert same == set(before) - {changed_one}
    outcome = tmp_path / "outcome"
    other = next(case for name, case in zip(names, files, strict=True) if name in same)
    assert cached.main(["replay", "--cases", str(other), "--output", str(outcome)]) == 0
    assert cached.main(["judge", "--name=x", "--junit=", str(outcome)]) == 0
