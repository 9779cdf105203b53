"""The data of a report, its JSON, and the comparison of two (docs/guide/report.md)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from qola.common.version import __version__
from qola_base.errors import Finding, QolaError
from qola_base.json_types import JsonObject, WrongValueError, parse_json, reader

SCHEMA = 2
"""Version of the JSON, increased with each incompatible change."""


class ReportError(QolaError, title="the report cannot be made"):
    """The inputs of a report cannot be read, or do not belong together."""


@dataclass(frozen=True)
class Part:
    """How many bytes of a library serve a purpose."""

    what: str
    bytes: int


@dataclass(frozen=True)
class Kernel:
    """A kernel as a GPU launches it; a kernel instance may have several, for several archs.

    Attributes:
        name: the kernel instance; "" if the batch does not determine it.
        hdim: head dimensions of Q and V, such as "32x32"; "" if unknown, as in other texts.
        fields: fields of the kernel instance, named as in the plan.
        batch: the batch, or the kernel instance if it was compiled separately.
        waves: number of waves that a SIMD can hold, None for an arch with unknown rules.
        limit: the resource that prevents more waves.
        seconds: its share of the batch's time, None without a log.
        source: see `Compile`, "" without a log.
    """

    name: str
    library: str
    module: str
    direction: str
    role: str
    arch: str
    dtype: str
    hdim: str
    mode: str
    fields: Mapping[str, str | int | bool | None]
    batch: str
    symbol: str
    code_bytes: int
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch: int
    lds: int
    workgroup: int
    waves: int | None
    limit: str
    seconds: float | None
    source: str


@dataclass(frozen=True)
class Batch:
    """A compile: a batch of kernel instances, or a single one.

    Attributes:
        instances: number of kernel instances, None without a plan.
        kernels: number of kernels in its code objects, over all archs.
        bytes: size of its code objects.
    """

    name: str
    library: str
    direction: str
    role: str
    archs: tuple[str, ...]
    instances: int | None
    kernels: int
    bytes: int
    seconds: float | None
    source: str


@dataclass(frozen=True)
class AssemblyKernel:
    """One of AITER's assembly kernels; `key` names its code object, or is its digest."""

    key: str
    library: str
    arch: str
    symbol: str
    bytes: int
    vgprs: int
    agprs: int
    sgprs: int
    lds: int
    workgroup: int
    waves: int | None
    limit: str


@dataclass(frozen=True)
class ReportedLibrary:
    """A library.

    Attributes:
        device_bytes: size of the code objects of kernel instances.
        assembly_bytes: size of the code objects of assembly kernels.
        parts: all of its bytes by purpose, the largest first.
    """

    file: str
    sha256: str
    bytes: int
    device_bytes: int
    assembly_bytes: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class LeftOut:
    """The number of kernel instances of a role that a rule leaves out of the plan."""

    module: str
    direction: str
    role: str
    rule: str
    count: int


@dataclass(frozen=True)
class Report:
    """A report; its attributes are the keys of its JSON.

    Attributes:
        date: UTC time of the build, "" if neither a log nor a bundle's manifest.json has it.
        compiler: clang's version, from the libraries.
        command: the command that wrote the report.
        manifest: in canonical form; empty without a plan.
        timed: whether a log states the compiles.
        left_out: None without a manifest.
    """

    name: str
    archs: tuple[str, ...]
    aiter: str
    date: str
    compiler: str
    command: str
    manifest: Mapping[str, Any]
    timed: bool
    libraries: tuple[ReportedLibrary, ...]
    kernels: tuple[Kernel, ...]
    batches: tuple[Batch, ...]
    assembly: tuple[AssemblyKernel, ...]
    left_out: tuple[LeftOut, ...] | None
    warnings: tuple[str, ...]
    qola: str = __version__
    schema: int = SCHEMA

    def to_json(self, **more: Any) -> str:
        """Return the JSON, with a line for each kernel, batch or library."""
        data = {**vars(self), **more}
        lines = (f'  "{key}": {_lines(data[key])}' for key in sorted(data))
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @staticmethod
    def from_json(text: str, place: str) -> Report:
        """Parse the JSON.

        Raises:
            ReportError: another text.
        """
        try:
            data = parse_json(text)
            # Check the schema first; otherwise the error would be about a missing field.
            if type(data) is dict and data.get("schema", SCHEMA) != SCHEMA:
                raise WrongValueError(f"schema {data['schema']!r:.80}; this qola reads {SCHEMA}")
            found: Report = reader(Report)(data)
        except WrongValueError as error:
            wrong = f"not the JSON of a report: {str(error).removeprefix(': ')}"
            expected = "the .json file that qola report wrote with a page"
            fix = "qola report ... --output OTHER.html writes OTHER.json"
            raise ReportError(Finding(place, wrong, expected, fix)) from None
        return found


def _lines(value: Any) -> str:
    def dump(part: Any) -> str:
        return json.dumps(part, sort_keys=True, ensure_ascii=False, default=vars)

    if isinstance(value, (list, tuple)) and value:
        return "[\n    " + ",\n    ".join(map(dump, value)) + "\n  ]"
    return dump(value)


#: Fields to compare of a kernel in both builds.
_COMPARED = (
    *("vgprs", "agprs", "sgprs", "vgpr_spills", "sgpr_spills"),
    *("scratch", "lds", "workgroup", "waves", "code_bytes"),
)

_Key = tuple[str, str, int]


def compare_reports(before: Report, after: Report) -> JsonObject:
    """Return the JSON of the changes from one report to another.

    Kernels are matched by kernel instance and arch, or by symbol and arch if a report does not know
    kernel instances.
    """
    named = all(kernel.name for kernel in (*before.kernels, *after.kernels))
    old, new = _by_key(before.kernels, named), _by_key(after.kernels, named)
    changes: list[JsonObject] = []
    for (name, arch, number), kernel in new.items():
        if earlier := old.get((name, arch, number)):
            for field in _COMPARED:
                was, now = getattr(earlier, field), getattr(kernel, field)
                if was != now:
                    change = {"name": name, "arch": arch, "what": field}
                    changes.append({**change, "before": was, "after": now})
    return {
        "name": before.name,
        "added": _names(new.keys() - old.keys()),
        "removed": _names(old.keys() - new.keys()),
        "changes": changes,
    }


def _by_key(kernels: Iterable[Kernel], named: bool) -> dict[_Key, Kernel]:
    """Return kernels by name, arch, and index among equal ones."""
    seen: Counter[tuple[str, str]] = Counter()
    found: dict[_Key, Kernel] = {}
    for kernel in kernels:
        name = kernel.name if named else kernel.symbol
        found[name, kernel.arch, seen[name, kernel.arch]] = kernel
        seen[name, kernel.arch] += 1
    return found


def _names(keys: Iterable[_Key]) -> list[str]:
    return sorted({f"{name}, {arch}" for name, arch, _ in keys})
