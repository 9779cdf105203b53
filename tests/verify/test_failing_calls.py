"""HIP calls that fail below the public entry points."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.verify.problem import ConsumerCall
from tests.verify.run_consumer import Outcome, expected, run
from tests.verify.table import GFX942, GFX950, Device, Row

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
def test_assembly(call: str, problem: ConsumerCall, device: Device) -> None:
    """Prevents: a failing call that ends the process, or spoils calls after it."""
    three = rows(device, problem, problem, CK)
    result = run(three, device, fail=[f"{call}={OUT_OF_MEMORY}*1"])
    failing, *others = result.outcomes
    assert failing.status == FAILED
    assert not [launch for launch in failing.launches if launch.source == "module"]
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"qola: mha_{problem.direction}: {call}")
    assert line.endswith(": hipErrorOutOfMemory")
    for row, outcome in zip(three[1:], others, strict=True):
        assert outcome.told == expected(row)


@pytest.mark.parametrize("device", [GFX942, GFX950], ids=lambda device: device.name)
@pytest.mark.parametrize("problem", [CK, BACKWARD], ids=lambda problem: problem.direction)
def test_launch_of_a_compiled_kernel(problem: ConsumerCall, device: Device) -> None:
    """Prevents: a failing launch that looks like success, or whose successors are launched."""
    two = rows(device, problem, problem)
    result = run(two, device, fail=[f"hipLaunchKernel={LAUNCH_FAILURE}*1"])
    assert result.outcomes[0] == Outcome(FAILED, ())
    # Composable Kernel's own words, which do not name the call.
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"qola: mha_{problem.direction}: HIP ")
    assert "hipErrorLaunchFailure" in line
    assert result.outcomes[1].told == expected(two[1])


@pytest.mark.parametrize("problem", [FORWARD, CK, BACKWARD], ids=["fwd", "ck", "bwd"])
@pytest.mark.parametrize("call", ["hipGetDevice", "hipGetDevicePropertiesR0600"])
def test_a_device_that_cannot_be_asked(call: str, problem: ConsumerCall) -> None:
    """Prevents: "no kernel" as the answer where nobody knows the device."""
    two = rows(GFX950, problem, problem)
    result = run(two, GFX950, fail=[f"{call}={OUT_OF_MEMORY}*1"])
    assert result.outcomes[0] == Outcome(FAILED, ())
    named = call.removesuffix("R0600")
    assert result.stderr == f"qola: mha_{problem.direction}: {named}: hipErrorOutOfMemory\n"
    assert result.outcomes[1].told == expected(two[1])


def test_compute_units_that_cannot_be_counted() -> None:
    """Prevents: code objects for a size that the device may not have."""
    two = rows(GFX942, FORWARD, FORWARD)
    result = run(two, GFX942, fail=[f"hipDeviceGetAttribute={OUT_OF_MEMORY}*1"])
    assert result.outcomes[0] == Outcome(FAILED, ())
    assert result.stderr == "qola: mha_fwd: hipDeviceGetAttribute: hipErrorOutOfMemory\n"
    assert result.outcomes[1].told == expected(two[1])
