"""The data of a health report and its JSON (docs/guide/health.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from qola.common.version import __version__
from qola_base.errors import QolaError
from qola_base.json_types import JsonObject, json_fields

SCHEMA = 1
"""Version of the JSON, increased with each incompatible change."""


class HealthError(QolaError, title="the trees cannot be compared"):
    """Trees without code objects, or of the same name."""


State = Literal["passed", "failed", "untried"]


@dataclass(frozen=True)
class KernelVerdict:
    """The outcome of emulated problems of a kernel.

    Attributes:
        problems: number of problems.
        worst: largest error as a share of its limit.
        reasons: errors with their problems, or why the kernel was not tried.
    """

    state: State
    problems: int = 0
    worst: float = 0.0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelHealth:
    """A kernel of a code object.

    Attributes:
        key: path of the code object, from ``hsa/`` on.
        bytes: size of the code object.
        vgprs, agprs, sgprs, vgpr_spills, sgpr_spills, scratch, lds: see `Resources`.
        workgroup: the most work-items of a workgroup.
        waves: number of waves that a SIMD can hold, None for an arch with unknown rules.
        limit: the resource that prevents more waves.
        proven: names of its proven faults (docs/guide/health.md).
        verdict: None if it was not requested.
    """

    key: str
    arch: str
    sha256: str
    symbol: str
    bytes: int
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
    proven: tuple[str, ...] = ()
    verdict: KernelVerdict | None = None

    @property
    def state(self) -> State:
        """The emulated state; a proven fault counts as failed."""
        if self.proven:
            return "failed"
        return self.verdict.state if self.verdict else "untried"


@dataclass(frozen=True)
class TreeCheck:
    """A line of `qola compat`.

    Attributes:
        said: the result in a few words.
    """

    name: str
    of: str
    status: str
    said: str


@dataclass(frozen=True)
class TreeHealth:
    """An AITER tree.

    Attributes:
        name: the directory or wheel, or the name given to it.
        version: AITER's version, "" if the tree does not contain it.
        checks: levels of directions, and the checks that are not ok.
        unread: code objects that cannot be read, with the error.
        sample: verdicts of the sample of Composable Kernel's kernels, by arch and name, such as
            ``gfx950/fmha_fwd_...``.
    """

    name: str
    version: str
    checks: tuple[TreeCheck, ...]
    kernels: tuple[KernelHealth, ...]
    unread: Mapping[str, str] = field(default_factory=dict)
    sample: Mapping[str, KernelVerdict] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether a kernel or one of the sample failed."""
        states = [kernel.state for kernel in self.kernels]
        return "failed" in (*states, *(verdict.state for verdict in self.sample.values()))


@dataclass(frozen=True)
class Difference:
    """A kernel that differs between two trees.

    Attributes:
        before, after: names of the trees.
        rank: 0 is worst.
        kind: the worst change in a few words.
        changes: all changes, such as ``vgprs 256 -> 512``.
    """

    before: str
    after: str
    rank: int
    kind: str
    key: str
    symbol: str
    arch: str
    changes: str


@dataclass(frozen=True)
class HealthReport:
    """Trees in the given order, and the differences between each and the next."""

    trees: tuple[TreeHealth, ...]
    differences: tuple[Difference, ...]
    command: str = ""

    def to_json(self) -> JsonObject:
        """Return the JSON."""
        trees: list[Any] = [_tree(tree) for tree in self.trees]
        return {
            "schema": SCHEMA,
            "qola": __version__,
            "command": self.command,
            "trees": trees,
            "differences": [json_fields(one) for one in self.differences],
        }


def _tree(tree: TreeHealth) -> JsonObject:
    return {
        "name": tree.name,
        "version": tree.version,
        "checks": [json_fields(check) for check in tree.checks],
        "kernels": [_kernel(kernel) for kernel in tree.kernels],
        "unread": dict(tree.unread),
        "sample": {name: json_fields(verdict) for name, verdict in tree.sample.items()},
    }


def _kernel(kernel: KernelHealth) -> JsonObject:
    verdict = json_fields(kernel.verdict) if kernel.verdict else None
    return {**json_fields(kernel), "state": kernel.state, "verdict": verdict}
