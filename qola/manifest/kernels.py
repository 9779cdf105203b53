"""``[[kernels]]``: kernels by the names of their configs, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qola.errors import Finding
from qola.kernel.config import ConfigError, KernelConfig
from qola.manifest.field_types import Field, Kind, Table

KERNELS = Table(
    "kernels",
    "Kernels of Composable Kernel one by one, also such as it does not enumerate "
    "(docs/guide/python.md). A library that has some has no others, unless variants keep them.",
    repeated=True,
    fields=(
        Field(
            "names",
            Kind.TEXT_LIST,
            "names of `KernelConfig`",
            pattern=r"[a-z_]+(\.[\w~]+){2}\.d\d+x\d+\.[\w~]+\.b[\w-]+(\.[\w~-]+)*",
            pattern_doc="names that KernelConfig.name gives",
            required=True,
            example='["fwd.bf16.batch.d64x64.gfx950.b64x64x32x64x32x64_r4x1x1_r4x1x1_w16x16x32'
            "_w16x16x32.p-qr_async.v-row.nmask.bias-no.lse.ndropout.nsquant.nlogits.nskip.ntrload"
            '.spad.nskpad.dpad.dvpad"]',
        ),
    ),
)


@dataclass(frozen=True)
class KernelSpec:
    """One name of a ``[[kernels]]`` table.

    Attributes:
        index: of the table.
    """

    config: KernelConfig
    index: int
    line: int = field(compare=False)

    def describe(self) -> str:
        """Return how messages call it."""
        return f"{KERNELS.header} #{self.index + 1} (line {self.line})"


Report = Callable[[int, str, str, str], None]
"""Told the table, what is found, what is expected and how to mend it."""


def read_kernels(
    tables: Sequence[Mapping[str, Any]], line_of: Callable[[int], int], report: Report
) -> Iterator[KernelSpec]:
    """Yield what tables name, and report what is no name or there twice.

    Args:
        line_of: the line of a table's names.
    """
    seen: dict[KernelConfig, int] = {}
    for number, table in enumerate(tables):
        for name in table.get("names", ()):
            try:
                config = KernelConfig.parse(name)
            except ConfigError as error:
                for one in error.findings:
                    report(number, f"{name}: {_told(one, name)}", one.expected, one.fix)
                continue
            # Within a table the list is told of.
            if seen.get(config) == number:
                continue
            if config in seen:
                found = f"{name}, which line {line_of(seen[config])} names already"
                report(number, found, "every kernel once", "remove one of the two")
                continue
            seen[config] = number
            yield KernelSpec(config, number, line_of(number))


def _told(finding: Finding, name: str) -> str:
    return finding.found if finding.place == name else f"{finding.place} {finding.found}"
