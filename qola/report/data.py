"""The data of a report: kernels, batches and libraries as plain values (docs/guide/report.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from qola.errors import Finding, QolaError
from qola.json_types import reader
from qola.version import __version__

SCHEMA = 2
"""Raised with every change that a reader of a report's JSON would misread."""


class ReportError(QolaError):
    """The inputs of a report cannot be read, or do not belong together."""

    default_title: ClassVar[str] = "the report cannot be made"


@dataclass(frozen=True)
class Part:
    """How many bytes of a library serve a purpose."""

    what: str
    bytes: int


@dataclass(frozen=True)
class Kernel:
    """A kernel as a GPU launches it; a kernel instance may have several, for several archs.

    Attributes:
        name: the kernel instance; "" where the batch does not say which of its own it is.
        hdim: head dimensions of Q and V, "32x32"; "" where it is not known, as with the others.
        fields: of the kernel instance, by the plan's names.
        batch: the batch, or the kernel instance compiled alone.
        waves: that a SIMD can hold, None for an arch whose rules are not known.
        limit: what there would have to be more of for more waves.
        seconds: its share of the batch's, None where no log says it.
        source: see `Compile`, "" where no log says it.
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
    """What is compiled by one command: kernel instances of a batch, or one alone.

    Attributes:
        instances: how many kernel instances, None where no plan says it.
        kernels: how many kernels for GPUs they bring, over all archs.
        bytes: of its code objects.
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
    """A kernel of AITER's in assembly; `key` is that of its code object, or its digest."""

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
    """A library; `device_bytes` are those of its kernel instances, `assembly_bytes` of others.

    Attributes:
        parts: what all of its bytes are for, the largest first.
    """

    file: str
    sha256: str
    bytes: int
    device_bytes: int
    assembly_bytes: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class LeftOut:
    """How many kernel instances of a role a rule leaves out of the plan."""

    module: str
    direction: str
    role: str
    rule: str
    count: int


@dataclass(frozen=True)
class Report:
    """A report; its attributes are the keys of its JSON.

    Attributes:
        date: UTC time of the build, "" where neither a log nor a bundle's manifest.json has it.
        compiler: the version that clang left in the libraries.
        command: that wrote the report.
        manifest: in canonical form; empty without a plan.
        timed: a log of Bazel's says what was compiled.
        left_out: None where nobody compared with the whole receipt.
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
        """Return it as JSON: a kernel, batch or library a line."""
        data = {**vars(self), **more}
        lines = (f'  "{key}": {_lines(data[key])}' for key in sorted(data))
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @staticmethod
    def from_json(text: str, place: str) -> Report:
        """Read what to_json returned.

        Raises:
            ReportError: it is something else.
        """
        try:
            data = json.loads(text, parse_int=_integer)
            # Before its fields: another schema has others.
            if type(data) is dict and data.get("schema", SCHEMA) != SCHEMA:
                raise ValueError(f"schema {data['schema']!r:.80}; this qola reads {SCHEMA}")
            found: Report = reader(Report)(data)
            return found
        except (ValueError, RecursionError) as error:
            # Python's words for it differ between versions.
            deep = isinstance(error, RecursionError)
            words = "values too deep within each other" if deep else str(error).removeprefix(": ")
            raise ReportError(
                Finding(
                    place,
                    f"no report's JSON: {words}",
                    "the .json file that qola report wrote beside a page",
                    "qola report ... --output OTHER.html writes OTHER.json",
                )
            ) from None


def _integer(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _lines(value: Any) -> str:
    if isinstance(value, (list, tuple)) and value:
        rows = (json.dumps(row, sort_keys=True, ensure_ascii=False, default=vars) for row in value)
        return "[\n    " + ",\n    ".join(rows) + "\n  ]"
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=vars)
