"""Checks the level of each direction, and the fields that variants and receipts name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from qola.codegen.ck.messages import GeneratorAnswer
from qola.codegen.ck.predicates import WITHOUT, show
from qola.codegen.ck.receipts import emulated
from qola.codegen.types import LEVELS, Selection
from qola.kernel.selection import VariantFilter
from qola_base.errors import CodegenError, Finding

Answers = Mapping[str, GeneratorAnswer]
Filters = Mapping[str, Sequence[VariantFilter]]
"""Answers and filters by direction."""


def check_levels(
    answers: Answers, filters: Filters, native: Sequence[int], least: str
) -> list[Finding]:
    """Return warnings about fields that no variant can name.

    Args:
        native: receipts that CK itself knows.

    Raises:
        CodegenError: a direction does not reach the `least` level, or a variant or receipt names a
            field that the kernels do not have.
    """
    findings = [
        Finding(
            f"direction {name}",
            f"level {answer.direction.level}: {answer.direction.reason}",
            f"level {least}",
            "use an AITER whose Composable Kernel reaches it, or require less",
        )
        for name, answer in answers.items()
        if LEVELS.index(answer.direction.level) < LEVELS.index(least)
    ]
    if findings:
        raise CodegenError(findings, "a required level is not reached")
    filtered = {
        name: answer
        for name, answer in answers.items()
        if answer.direction.level == "filtered" and answer.direction.rows
    }
    findings = [*_rules(filtered, filters, native), *_variants(filtered, filters)]
    if findings:
        raise CodegenError(findings, "a field that no kernel has")
    return [
        Finding(
            f"direction {name}",
            f"kernels differ in {field}, which no variant can name: those of all values "
            f"({', '.join(values)}) are kept",
            "fields that this qola knows",
            severity="warning",
        )
        for name, answer in filtered.items()
        for field, values in answer.unknown.items()
    ]


def check_added(filters: Filters, answers: Answers, selection: Selection) -> None:
    """Check that each of `add_directions` has kernels."""
    findings = []
    for direction in sorted(selection.add_directions):
        answer = answers[direction]
        # Filters do not count requested kernels.
        if any(one.rows for one in answer.filters) or answer.kernels:
            continue
        reasons = [
            f"{variant.place}: {line}"
            for variant in filters[direction]
            for line in answer.filter(variant.index).blame
        ]
        findings.append(
            Finding(
                selection.place("add_directions"),
                f"{direction}, of which no kernel is kept:\n" + "\n".join(reasons),
                "a receipt and variants that keep a kernel of it",
                f"write values that kernels named above have, or take {direction} out",
            )
        )
    if findings:
        raise CodegenError(findings, "a direction that is added has no kernels")


def _variants(filtered: Answers, filters: Filters) -> Iterator[Finding]:
    """Find fields of variants that no kernel of any direction has."""
    have = {field for answer in filtered.values() for field in answer.fields}
    unknown = {field for answer in filtered.values() for field in answer.unknown}
    for variant in next(iter(filters.values())) if filtered else ():
        for name, allowed in variant.where.items():
            if _untestable(name, allowed, have, unknown):
                yield _finding(f"{variant.place}.{name}", name, allowed, have, unknown)


def _rules(filtered: Answers, filters: Filters, native: Sequence[int]) -> Iterator[Finding]:
    """Find fields of receipts' rules that no kernel of the direction has."""
    for direction, answer in filtered.items():
        have, unknown = set(answer.fields), set(answer.unknown)
        for receipt, label in {one.receipt: one.place for one in filters[direction]}.items():
            made = emulated(receipt, native)
            for name, allowed in (made.rules[direction] or ()) if made else ():
                if _untestable(name, allowed, have, unknown):
                    place = f"{label}, rule of receipt {receipt} for direction {direction}"
                    yield _finding(place, name, allowed, have, unknown)


def _untestable(name: str, allowed: Sequence[Any], have: set[str], unknown: set[str]) -> bool:
    """Whether kernels cannot be selected by a field.

    A kernel without a field such as sink has no sinks, unless one of the unknown fields means it.
    """
    if name in have:
        return False
    return name not in WITHOUT or (bool(unknown) and {True, False} > set(allowed))


def _finding(
    place: str, name: str, allowed: Sequence[Any], have: set[str], unknown: set[str]
) -> Finding:
    but = f"; fields that this qola does not know: {', '.join(sorted(unknown))}" if unknown else ""
    return Finding(
        place,
        f"{name} {' or '.join(map(show, allowed))}, but no kernel has the field {name}{but}",
        f"a field of this CK's kernels: {', '.join(sorted(have))}",
        "use another receipt or variant, or an AITER whose Composable Kernel has it",
    )
