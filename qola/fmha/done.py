"""What comes of running a problem, whatever it ran on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qola.errors import ExitCode, QolaError
from qola.reference.formats import F64


class RunError(QolaError):
    """A device that is not there, or a problem that the library did not run."""

    exit_code = ExitCode.WRONG
    default_title = "the kernels did not run"


@dataclass(frozen=True)
class Done:
    """What kernels wrote.

    Attributes:
        launched: their names; of a GPU those that the library's dispatch is read to launch, and
            () where assembly kernels may have been.
        findings: what they must not have done, as far as it is seen.
        instructions: of waves; None of a GPU.
        seconds: None of the emulator.
    """

    results: Mapping[str, F64]
    launched: tuple[str, ...]
    findings: tuple[str, ...]
    instructions: int | None = None
    seconds: float | None = None
