"""What host code would launch for a problem, apart from it: all that trying a kernel takes.

A case holds the kernels' code and the launches, with names in place of addresses, so that it is the
same as long as these are: a cache of outcomes asks no more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from qola.verify.problem import Problem

Dim = tuple[int, int, int]

REFUSED = "returned -1: no kernel"
"""What is said of a call that no kernel serves, behind the name of the entry point."""


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel.

    Attributes:
        names: what the plan calls it: of equal code objects, all.
        symbol: of the kernel in its code object.
        code: sha256 of its code object; in a case, of the kernel by itself (qola.emulate.single).
        lds: bytes beside those of the kernel itself.
        arguments: as they lie in memory, with 0 for addresses.
        addresses: place in the arguments, the entry point's argument that is meant, and the
            distance from what it points to.
    """

    names: tuple[str, ...]
    symbol: str
    code: str
    grid: Dim
    block: Dim
    lds: int
    arguments: bytes
    addresses: tuple[tuple[int, str, int], ...]


@dataclass(frozen=True)
class Call:
    """What an entry point does with a problem.

    Attributes:
        error: why nothing is launched, empty where something is.
    """

    problem: Problem
    launches: tuple[Launch, ...]
    error: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """What the plan calls what is launched."""
        return tuple(name for launch in self.launches for name in launch.names)


@dataclass(frozen=True)
class Case:
    """A kernel instance on an arch, with calls that launch it.

    Attributes:
        missing: why there are fewer calls than asked for, or none.
        codes: texts of kernels by themselves, by their sha256.
    """

    kernel: str
    arch: str
    calls: tuple[Call, ...]
    missing: str = ""
    codes: Mapping[str, str] = field(default_factory=dict)

    def of_call(self, call: Call) -> dict[str, str]:
        """Return the kernels that a call launches."""
        return {launch.code: self.codes[launch.code] for launch in call.launches}


def settled(one: Case, other: Case) -> Case:
    """Return a case with 0 for the bytes of arguments that are others in another recording of it.

    Raises:
        ValueError: they differ in more than that.
    """
    calls = tuple(
        replace(a, launches=tuple(map(_same, a.launches, b.launches)))
        for a, b in zip(one.calls, other.calls, strict=True)
    )
    result, wanted = (replace(x, calls=()) for x in (one, other))
    if result != wanted or [len(x.launches) for x in one.calls] != [
        len(x.launches) for x in other.calls
    ]:
        raise ValueError(f"{one.kernel} is launched otherwise the second time")
    return replace(one, calls=calls)


def _same(one: Launch, other: Launch) -> Launch:
    bytes_of = zip(one.arguments, other.arguments, strict=True)
    arguments = bytes(a if a == b else 0 for a, b in bytes_of)
    addresses = tuple(place for place in one.addresses if place in other.addresses)
    result = replace(one, arguments=arguments, addresses=addresses)
    if result != replace(other, arguments=arguments, addresses=addresses):
        raise ValueError(f"{one.names[0]} is launched otherwise the second time")
    return result


def to_json(cases: Sequence[Case]) -> str:
    """Return cases as a text that `from_json` reads, the same for the same cases."""
    return json.dumps([_values(case) for case in cases], sort_keys=True, indent=1) + "\n"


def _values(case: Case) -> dict[str, Any]:
    calls = [
        {
            "problem": json.loads(call.problem.to_json()),
            "launches": [asdict(x) | {"arguments": x.arguments.hex()} for x in call.launches],
            "error": call.error,
        }
        for call in case.calls
    ]
    of = {"kernel": case.kernel, "arch": case.arch, "missing": case.missing}
    return {**of, "calls": calls, "codes": dict(case.codes)}


def from_json(text: str) -> list[Case]:
    """Return the cases of a text of `to_json`."""
    return [
        Case(
            kernel=values["kernel"],
            arch=values["arch"],
            calls=tuple(map(_call, values["calls"])),
            missing=values["missing"],
            codes=values["codes"],
        )
        for values in json.loads(text)
    ]


def _call(values: Mapping[str, Any]) -> Call:
    problem = Problem.from_json(json.dumps(values["problem"]))
    return Call(problem, tuple(map(_launch, values["launches"])), values["error"])


def _launch(values: Mapping[str, Any]) -> Launch:
    lists = {key: tuple(values[key]) for key in ("names", "grid", "block")}
    addresses = tuple((place, name, further) for place, name, further in values["addresses"])
    arguments = bytes.fromhex(values["arguments"])
    return Launch(**{**values, **lists, "addresses": addresses, "arguments": arguments})
