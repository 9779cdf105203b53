"""What host code would launch for a problem, apart from it: all that trying a kernel takes.

A case holds the code objects and the launches, with names in place of addresses, so that it is the
same as long as these are: a cache of outcomes asks no more.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from qola.verify.problem import Problem

Dim = tuple[int, int, int]


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel.

    Attributes:
        names: what the plan calls it: of equal code objects, all.
        symbol: of the kernel in its code object.
        code: sha256 of the code object.
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


@dataclass(frozen=True)
class Case:
    """A kernel instance on an arch, with calls that launch it.

    Attributes:
        missing: why there are fewer calls than asked for, or none.
        codes: code objects by their sha256.
    """

    kernel: str
    arch: str
    calls: tuple[Call, ...]
    missing: str = ""
    codes: Mapping[str, bytes] = field(default_factory=dict)

    def of_call(self, call: Call) -> dict[str, bytes]:
        """Return the code objects that a call launches."""
        return {launch.code: self.codes[launch.code] for launch in call.launches}


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
    codes = {
        key: base64.b64encode(zlib.compress(code)).decode() for key, code in case.codes.items()
    }
    of = {"kernel": case.kernel, "arch": case.arch, "missing": case.missing}
    return {**of, "calls": calls, "codes": codes}


def from_json(text: str) -> list[Case]:
    """Return the cases of a text of `to_json`."""
    return [
        Case(
            kernel=values["kernel"],
            arch=values["arch"],
            calls=tuple(map(_call, values["calls"])),
            missing=values["missing"],
            codes={k: zlib.decompress(base64.b64decode(v)) for k, v in values["codes"].items()},
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
