"""Recorded calls of a library's host code: everything that trying a kernel on the emulator takes.

A case holds kernel code and launches, with names in place of addresses. It is equal for equal
inputs, so that outcomes can be cached by it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from qola_base.files import sha256_of_text
from qola_base.json_types import json_fields, parse_json, reader
from qola_lab.problems import STANDARD_NORMAL, AttentionProblem, TestData

_Read = TypeVar("_Read")

Dim = tuple[int, int, int]

REFUSED = "returned -1: no kernel"
"""Error of a call that no kernel serves, behind the name of the entry point."""


@dataclass(frozen=True)
class Sample:
    """A problem with the data to try it with."""

    problem: AttentionProblem
    data: TestData = STANDARD_NORMAL


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel.

    Attributes:
        names: the plan's name of the kernel; several for equal code objects.
        symbol: the kernel's symbol in its code object.
        code: sha256 of the code object; in a case, the digest of the single kernel
            (gfxemu.single).
        lds: bytes of LDS in addition to the kernel's own.
        arguments: kernel arguments in hexadecimal, with 0 for addresses.
        addresses: offset in the arguments, name of the buffer, and offset in the buffer.
    """

    names: tuple[str, ...]
    symbol: str
    code: str
    grid: Dim
    block: Dim
    lds: int
    arguments: str
    addresses: tuple[tuple[int, str, int], ...]


@dataclass(frozen=True)
class Call:
    """The launches of an entry point for a problem.

    Attributes:
        error: why nothing was launched, else empty.
    """

    sample: Sample
    launches: tuple[Launch, ...]
    error: str = ""

    @property
    def problem(self) -> AttentionProblem:
        """The problem of the sample."""
        return self.sample.problem

    @property
    def names(self) -> tuple[str, ...]:
        """The plan's names of the launched kernels."""
        return tuple(name for launch in self.launches for name in launch.names)


@dataclass(frozen=True)
class Case:
    """A kernel instance on an arch, with calls that launch it.

    Attributes:
        missing: why there are fewer calls than requested, else empty.
        codes: texts of single kernels by their digest.
        known: by kernel of the calls, names of its proven faults (docs/guide/health.md).
    """

    kernel: str
    arch: str
    calls: tuple[Call, ...]
    missing: str = ""
    codes: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The digest of kernels, problems, data and launches; equal on every machine."""
        fields = json_fields(replace(self, codes={}))
        # What is known of a kernel does not change its outcome.
        del fields["known"]
        return sha256_of_text(json.dumps(fields, default=json_fields, sort_keys=True))

    def codes_of(self, call: Call) -> dict[str, str]:
        """Return the kernels that a call launches."""
        return {launch.code: self.codes[launch.code] for launch in call.launches}


def settle(case: Case, again: Case) -> Case:
    """Return a case with 0 for the argument bytes that differ in a second recording of it.

    Raises ValueError if anything else differs.
    """
    calls = tuple(
        replace(one, launches=tuple(map(_settle_launch, one.launches, two.launches)))
        for one, two in zip(case.calls, again.calls, strict=True)
    )
    counts = [[len(call.launches) for call in one.calls] for one in (case, again)]
    if replace(case, calls=()) != replace(again, calls=()) or counts[0] != counts[1]:
        raise ValueError(f"{case.kernel} is launched otherwise the second time")
    return replace(case, calls=calls)


def _settle_launch(launch: Launch, again: Launch) -> Launch:
    one, two = (bytearray.fromhex(launch.arguments), bytearray.fromhex(again.arguments))
    # A number in front of uninitialised bytes can look like an address in one of the processes.
    for place, *_ in set(launch.addresses) - set(again.addresses):
        one[place : place + 8] = two[place : place + 8]
    for place, *_ in set(again.addresses) - set(launch.addresses):
        two[place : place + 8] = one[place : place + 8]
    arguments = bytes(a if a == b else 0 for a, b in zip(one, two, strict=True)).hex()
    addresses = tuple(place for place in launch.addresses if place in again.addresses)
    settled = replace(launch, arguments=arguments, addresses=addresses)
    if settled != replace(again, arguments=arguments, addresses=addresses):
        raise ValueError(f"{launch.names[0]} is launched otherwise the second time")
    return settled


def write_json(file: Path, values: Sequence[Any]) -> None:
    """Write dataclasses, such as cases, so that `read_json` reads them."""
    text = json.dumps(values, default=json_fields, sort_keys=True, indent=1)
    file.write_text(text + "\n", encoding="utf-8")


def read_json(kind: Callable[..., _Read], file: Path) -> tuple[_Read, ...]:
    """Return the dataclasses in a file of `write_json`."""
    found: tuple[_Read, ...] = reader(tuple[kind, ...])(  # type: ignore[valid-type]
        parse_json(file.read_text(encoding="utf-8"))
    )
    return found
