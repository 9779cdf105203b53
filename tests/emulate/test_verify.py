"""Verification of a built library: wrong kernels are told apart from right ones."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qola.emulate.code_object import CodeObject
from qola.emulate.decode import sweep
from qola.verify.__main__ import main
from qola.verify.outcome import Outcome, lines, to_json
from qola.verify.run import Built, VerifyError, Wish, verify
from qola.verify.values import entry_values

ARCH = "gfx950"
#: Of the forward library: K whole tiles, and K of any length.
WHOLE, PADDED = "*_psddv_*_gfx950", "*_psskddv_*_gfx950"
_NOP = bytes.fromhex("000080bf")

Edit = Callable[[bytearray], None]


def built(module: str) -> Built:
    library, caller = (
        Path(os.environ[f"QOLA_TEST_CI_{module}{end}"]).resolve() for end in ("", "_CALLER")
    )
    runtime = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
    # Not resolved: dispatch and sources are beside it among the runfiles.
    plan = Path(os.environ[f"QOLA_TEST_CI_{module}_EMULATED"])
    return Built(module, library, caller, runtime, plan.parent)


def tried(pattern: str, samples: int = 1, module: str = "libmha_fwd") -> Outcome:
    wish = Wish(ARCH, (pattern,), samples, max_work=1 << 15)
    (outcome,) = verify(built(module), wish)
    return outcome


def places(code: bytearray, name: str) -> list[int]:
    return [at for at, one in sweep(bytes(code)).items() if name in getattr(one, "name", "")]


def drop_last_multiplication(code: bytearray) -> None:
    at = places(code, "V_MFMA")[-1]
    code[at : at + 8] = _NOP * 2


def square_last_multiplication(code: bytearray) -> None:
    """Takes the second operand for the first one, too: nine bits each."""
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


def drop_waits(code: bytearray) -> None:
    for at in places(code, "S_WAITCNT"):
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

    monkeypatch.setattr("qola.verify.run.entry_values", changed)


@pytest.mark.parametrize("pattern", [WHOLE, PADDED])
def test_kernels_agree(pattern: str) -> None:
    """Prevents: right kernels that are called wrong."""
    outcome = tried(pattern, samples=3)
    assert outcome.state == "passed", lines([outcome])
    assert len(outcome.trials) == 3
    assert {verdict.name for trial in outcome.trials for verdict in trial.verdicts} == {"lse", "o"}


@pytest.mark.parametrize(
    ("edit", "names"),
    [
        (drop_last_multiplication, {"o"}),
        (square_last_multiplication, {"o"}),
        (drop_an_exponential, {"o", "lse"}),
        (leave_lse_to_base_2, {"lse"}),
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


def test_a_dropped_wait_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a promise that docs/internals/emulation.md does not make."""
    edit_kernels(monkeypatch, drop_waits)
    assert tried(WHOLE).state == "passed"


def test_gradients_agree_and_a_wrong_scale_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: gradients that nobody compares."""
    pattern = "fmha_bwd_d32_*_npad_*"
    right = tried(pattern, module="libmha_bwd")
    assert right.state == "passed", lines([right])
    assert {verdict.name for verdict in right.trials[0].verdicts} == {"dq", "dk", "dv"}
    edit_values(monkeypatch, {"scale": lambda scale: scale * 1.05})
    assert tried(pattern, module="libmha_bwd").state == "failed"


def test_a_process_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a run that waits for a worker that a library took down."""
    monkeypatch.setattr("qola.verify.run._Worker.tried", lambda *_: os._exit(3))
    with pytest.raises(VerifyError, match="the process that ran it died"):
        tried(WHOLE)


def arguments(module: str) -> list[str]:
    one = built(module)
    files = (one.library, one.caller, one.repository / "plan.json")
    return ["--runtime", str(one.runtime), "--module", module, *map(str, files)]


def test_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a report that lacks an arch; success where nothing was tried."""
    report, suite = tmp_path / "x.json", tmp_path / "x.xml"
    words = [*arguments("libmha_fwd"), "--samples=1", f"--json={report}", f"--junit={suite}"]
    assert main([*words, "--kernels=*_psddv_*"]) == 0
    assert capsys.readouterr().out == "2 passed, 0 failed, 0 untried; 2 problems\n"
    kernels = json.loads(report.read_text())["kernels"]
    assert [kernel["arch"] for kernel in kernels] == ["gfx942", "gfx950"]
    assert 'tests="2" failures="0"' in suite.read_text()
    assert main([*words, "--kernels=none"]) == 1
    assert "no kernel" in capsys.readouterr().err
    assert main([*words, "--arch=gfx90a"]) == 1
    assert "an arch that is not emulated" in capsys.readouterr().err


def test_the_program_ends_with_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: CI that stays green."""
    edit_values(monkeypatch, {"scale_s": lambda scale: scale * 1.01})
    words = ["--samples=1", "--arch=gfx950", "--junit="]
    assert main([*arguments("libmha_fwd"), *words, "--kernels=*_psddv_*"]) == 13
