"""Explains why a kernel instance is in a plan, or which rule drops it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from qola.codegen.types import Explanation, FieldValue
from qola.inspect.query import Item, make_item, triton_items
from qola.manifest.load import Manifest, ModuleSpec
from qola.manifest.types import triton_name
from qola.plan.model import TritonKernel


@dataclass(frozen=True)
class Verdict:
    """Whether one kernel instance of the receipts in use is kept, and why.

    Attributes:
        fields: as in plan.json.
        reasons: the variants or the receipt that keep it, or the one rule that drops it.
    """

    item: Item
    fields: Mapping[str, FieldValue]
    kept: bool
    reasons: tuple[str, ...]

    @property
    def word(self) -> str:
        """``in`` or ``out``."""
        return "in" if self.kept else "out"


def verdicts(
    manifest: Manifest, explained: Iterable[tuple[ModuleSpec, Sequence[Explanation]]]
) -> list[Verdict]:
    """Return the results of `planner.explain` with places in the manifest."""
    return [
        Verdict(
            make_item(e.name, spec.name, e.direction, e.role, e.archs, e.fields.items()),
            e.fields,
            not e.dropped_by,
            (e.dropped_by,) if e.dropped_by else _keepers(manifest, spec, e),
        )
        for spec, explanations in explained
        for e in explanations
    ]


def triton_verdicts(manifest: Manifest, kernels: Sequence[TritonKernel]) -> list[Verdict]:
    """Return verdicts for kernels in Triton: tables keep all of their choices."""
    places = {
        triton_name(spec.name, kernel): manifest.place("triton", spec.index)
        for spec in manifest.triton
        for kernel in spec.kernels
    }
    reasons = [places[kernel.name] for kernel in kernels for _ in kernel.instances]
    chosen = [one.choices for kernel in kernels for one in kernel.instances]
    found = zip(triton_items(kernels), chosen, reasons, strict=True)
    return [Verdict(item, fields, True, (why,)) for item, fields, why in found]


def _keepers(manifest: Manifest, spec: ModuleSpec, explanation: Explanation) -> tuple[str, ...]:
    if explanation.kept_by or explanation.asked_by:
        variants = (
            manifest.bwd_variants if explanation.direction == "bwd" else manifest.fwd_variants
        )
        keeping = (variants[index].label for index in explanation.kept_by)
        return (*keeping, *explanation.asked_by)
    if spec.receipt is None:
        return ("all of the receipt in AITER's own configuration",)
    place = manifest.place("modules", spec.index, "receipt")
    return (f"all of receipt {spec.receipt} ({place})",)


@dataclass(frozen=True)
class RuleCount:
    """How many kernel instances of a role one rule keeps or drops."""

    module: str
    direction: str
    role: str
    kept: bool
    rule: str
    count: int


def summary(found: Iterable[Verdict]) -> list[RuleCount]:
    """Count the kernel instances that each rule keeps or drops.

    Kept ones come first, then the rules that drop most. A rule is the dimension without values.
    """
    counts: Counter[tuple[str, str, str, bool, str]] = Counter()
    for verdict in found:
        module, direction, role = (verdict.item.show(f) for f in ("module", "direction", "role"))
        counts[module, direction, role, verdict.kept, rule_of(verdict)] += 1
    order = {key[:3]: place for place, key in reversed(list(enumerate(counts)))}
    keys = sorted(counts, key=lambda k: (order[k[:3]], not k[3], -counts[k], k[4]))
    return [RuleCount(*key, counts[key]) for key in keys]


def rule_of(verdict: Verdict) -> str:
    """Return the rule of a verdict without values and names of single kernel instances.

    ``no variant has dtype=fp16 hdim=64x64`` becomes ``no variant has this dtype, hdim``.
    """
    if verdict.kept:
        return ", ".join(verdict.reasons)
    rule = re.sub(r"(take all its problems): [^()]+ \(", r"\1 (", verdict.reasons[0])
    return re.sub(r"\b(has|lacks) ((?:\w+=\S+ ?)+)", _dimensions, rule)


def _dimensions(match: re.Match[str]) -> str:
    return f"{match[1]} this {', '.join(re.findall('([a-z_]+)=', match[2]))}"
