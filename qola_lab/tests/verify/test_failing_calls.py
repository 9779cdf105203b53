"""Entry points report failing HIP calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qola_lab.tests.verify.predict import ConsumerCall
from qola_lab.tests.verify.run_consumer import Outcome, expected, run
from qola_lab.tests.verify.table import GFX942, GFX950, Device, Row

FORWARD = ConsumerCall("fwd", "bf16", 128, 128, mode="group", use_ext_asm=True)
BACKWARD = ConsumerCall("bwd", "bf16", 64, 64, use_ext_asm=True)
CK = replace(FORWARD, use_ext_asm=False)

#: hipErrorOutOfMemory, hipErrorLaunchFailure.
OUT_OF_MEMORY, LAUNCH_FAILURE = 2, 719
FAILED = -3.0


def rows(device: Device, *problems: ConsumerCall) -> list[Row]:
    return [Row(problem, device) for problem in problems]


@pytest.mark.parametrize("device", [GFX942, GFX950], ids=lambda device: device.name)
@pytest.mark.parametrize("problem", [FORWARD, BACKWARD], ids=lambda problem: problem.direction)
@pytest.mark.parametrize(
    "call", ["hipModuleLoadData", "hipModuleGetFunction", "hipModuleLaunchKernel"]
)
def test_failing_launch_of_an_assembly_kernel(
    call: str, problem: ConsumerCall, device: Device
) -> None:
    """Prevents: a failing HIP call that ends the process, or breaks later calls."""
    rows_ = rows(device, problem, problem, CK)
    result = run(rows_, device, fail=[f"{call}={OUT_OF_MEMORY}*1"])
    failing, *others = result.outcomes
    assert failing.status == FAILED
    assert not [launch for launch in failing.launches if launch.source == "module"]
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"qola: mha_{problem.direction}: {call}")
    assert line.endswith(": hipErrorOutOfMemory")
    for row, outcome in zip(rows_[1:], others, strict=True):
        assert outcome.result == expected(row)


@pytest.mark.parametrize("device", [GFX942, GFX950], ids=lambda device: device.name)
@pytest.mark.parametrize("problem", [CK, BACKWARD], ids=lambda problem: problem.direction)
def test_failing_launch_of_a_compiled_kernel(problem: ConsumerCall, device: Device) -> None:
    """Prevents: success after a failing launch, or launches of kernels that should follow it."""
    rows_ = rows(device, problem, problem)
    result = run(rows_, device, fail=[f"hipLaunchKernel={LAUNCH_FAILURE}*1"])
    assert result.outcomes[0] == Outcome(FAILED, ())
    # The message of Composable Kernel does not name the call.
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"qola: mha_{problem.direction}: HIP ")
    assert "hipErrorLaunchFailure" in line
    assert result.outcomes[1].result == expected(rows_[1])


@pytest.mark.parametrize("problem", [FORWARD, CK, BACKWARD], ids=["fwd", "ck", "bwd"])
@pytest.mark.parametrize("call", ["hipGetDevice", "hipGetDevicePropertiesR0600"])
def test_failing_device_query(call: str, problem: ConsumerCall) -> None:
    """Prevents: "no kernel" reported when HIP cannot return the device."""
    rows_ = rows(GFX950, problem, problem)
    result = run(rows_, GFX950, fail=[f"{call}={OUT_OF_MEMORY}*1"])
    assert result.outcomes[0] == Outcome(FAILED, ())
    reported = call.removesuffix("R0600")
    assert result.stderr == f"qola: mha_{problem.direction}: {reported}: hipErrorOutOfMemory\n"
    assert result.outcomes[1].result == expected(rows_[1])


def test_failing_query_of_compute_units() -> None:
    """Prevents: a code object for another cu_count than the device's."""
    rows_ = rows(GFX942, FORWARD, FORWARD)
    result = run(rows_, GFX942, fail=[f"hipDeviceGetAttribute={OUT_OF_MEMORY}*1"])
    assert result.outcomes[0] == Outcome(FAILED, ())
    assert result.stderr == "qola: mha_fwd: hipDeviceGetAttribute: hipErrorOutOfMemory\n"
    assert result.outcomes[1].result == expected(rows_[1])
