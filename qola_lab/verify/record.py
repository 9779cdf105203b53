"""The file of `qola verify --verdicts`: 18 bytes for each kernel that passed.

The file for the 4,000 kernels of a manifest is small enough to be committed. A difference between
two files shows kernels with other code, other problems or another verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qola_base.files import sha256_of_text
from qola_lab.verify.outcome import Outcome

#: Digits of a digest: two of 4,000 kernels have the same ones with a probability of 1/500.
_DIGITS = 8
_HEADER = "# Written by qola verify --verdicts (docs/internals/emulation.md#recorded-verdicts)"
_STATES = ("passed", "failed", "untried")


def key_of(kernel: str) -> str:
    """Return the key of a kernel, the first digits of the sha256 of its name."""
    return sha256_of_text(kernel)[:_DIGITS]


def to_text(facts: Mapping[str, object], outcomes: Sequence[Outcome]) -> str:
    """Return the text of a file of verdicts, with the first fault of a failed kernel.

    Args:
        facts: versions and settings that verdicts depend on, by name.
    """
    lines = [_HEADER, *(f"{name} {value}" for name, value in facts.items())]
    for arch in sorted({one.arch for one in outcomes}):
        for state in _STATES:
            own = [one for one in outcomes if (one.arch, one.state) == (arch, state)]
            lines.append(f"{state} {arch} {len(own)}")
            for one in sorted(own, key=lambda one: key_of(one.kernel)):
                lines.append(f"{key_of(one.kernel)} {one.digest[:_DIGITS]}")
                # Only kernels that somebody looks into have their names and reasons.
                if state != "passed":
                    lines[-1] += f" {one.kernel}"
                    lines.append(f"  {one.faults()[0] if state == 'failed' else one.reason}")
    return "\n".join([*lines, ""])
