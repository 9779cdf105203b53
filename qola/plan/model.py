"""The plan: what one manifest builds from one AITER tree, down to the last file and flag.

plan.json is the only thing that crosses from Python to Bazel. Attributes of `Plan` and of its parts
are its keys, and docs/reference/plan.md says what each of them holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from qola.errors import Finding, PlanError
from qola.json_types import WrongValueError, reader
from qola.plan.check import check_plan
from qola.plan.parts import (
    EntryPoint,
    HeaderSet,
    KernelFlags,
    KernelPackage,
    PlannedAiter,
    PlannedBatch,
    PlannedFile,
    PlannedKernel,
    PlannedModule,
    PlannedSource,
    PythonModule,
    TorchModule,
    TritonInstance,
    TritonKernel,
)
from qola.version import __version__

__all__ = [
    "SCHEMA_VERSION",
    "EntryPoint",
    "HeaderSet",
    "KernelFlags",
    "KernelPackage",
    "Plan",
    "PlannedAiter",
    "PlannedBatch",
    "PlannedFile",
    "PlannedKernel",
    "PlannedModule",
    "PlannedSource",
    "PythonModule",
    "TorchModule",
    "TritonInstance",
    "TritonKernel",
]

SCHEMA_VERSION = 4
"""Raised with every change that an existing reader of plan.json would misread."""


@dataclass(frozen=True)
class Plan:
    """Everything Bazel needs to know about one manifest."""

    name: str
    namespace: str
    archs: tuple[str, ...]
    manifest: Mapping[str, Any]
    aiter: PlannedAiter
    packages: Mapping[str, KernelPackage]
    header_sets: tuple[HeaderSet, ...]
    kernels: tuple[PlannedKernel, ...]
    modules: tuple[PlannedModule, ...]
    warnings: tuple[Finding, ...]
    inputs: tuple[str, ...]
    configs: tuple[str, ...]
    licenses: tuple[str, ...]
    python_modules: tuple[PythonModule, ...]
    batches: tuple[PlannedBatch, ...]
    torch_modules: tuple[TorchModule, ...]
    triton: tuple[TritonKernel, ...] = ()
    qola: str = __version__

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read plan.json; keys that this qola does not know are passed over.

        Raises:
            PlanError: another schema version, a value that is none of its type, or a name or a
                path that would lead readers elsewhere.
        """
        try:
            data = json.loads(text)
            schema = data.get("schema") if isinstance(data, dict) else None
            if schema != SCHEMA_VERSION:
                found = f"plan.json has schema {schema!r}"
                raise WrongValueError(f"{found}; this qola reads {SCHEMA_VERSION}")
            plan: Plan = reader(Plan)(data)
            check_plan(plan)
        except (ValueError, RecursionError) as error:
            # Python's own words for it differ between versions.
            deep = isinstance(error, RecursionError)
            raise PlanError(
                Finding(
                    "plan.json",
                    "values too deep within each other" if deep else str(error),
                    "a plan that this qola has written",
                    "bazel fetch --force plans anew",
                )
            ) from None
        return plan

    def to_json(self, **more: Any) -> str:
        """Return the text of plan.json: sorted keys, one kernel, header or warning a line.

        A difference between two plans reads as a list of kernels in `diff`.

        Args:
            more: further keys, for output that is a plan and something else.
        """
        data = {**vars(self), "schema": SCHEMA_VERSION, **more}
        lines = [f"  {json.dumps(key)}: {_value(data[key])}" for key in sorted(data)]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    def module(self, name: str) -> PlannedModule:
        """Return the module of that name."""
        return _named(self.modules, name)

    @property
    def with_kernels(self) -> tuple[PlannedModule | TorchModule, ...]:
        """Return the libraries and the torch modules."""
        return (*self.modules, *self.torch_modules)

    def header_set(self, name: str) -> HeaderSet:
        """Return the header set of that name."""
        return _named(self.header_sets, name)

    def compiled_as(self, module: PlannedModule | TorchModule) -> list[str]:
        """Return, for each kernel instance of a module, the name of its batch, else its own."""
        batch = {index: batch.name for batch in self.batches for index in batch.kernels}
        return [batch.get(index, self.kernels[index].name) for index in module.kernels]

    def kernels_of(self, module: PlannedModule | TorchModule) -> list[PlannedKernel]:
        """Return the kernel instances of a module, in its order."""
        return [self.kernels[index] for index in module.kernels]


_T = TypeVar("_T", PlannedModule, HeaderSet)


def _named(items: Iterable[_T], name: str) -> _T:
    """Return the one of that name.

    Raises:
        PlanError: there is none.
    """
    for item in items:
        if item.name == name:
            return item
    raise PlanError(Finding("plan.json", f"nothing of the name {name}", "what the plan speaks of"))


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)) and value:
        return "[\n" + ",\n".join("    " + _compact(item) for item in value) + "\n  ]"
    return _compact(value)


def _compact(value: Any) -> str:
    # vars, not asdict: a copy of 20,000 kernel instances takes seconds.
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=vars)
