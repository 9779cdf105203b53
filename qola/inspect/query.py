"""Finds kernel instances by name, pattern, and values of fields."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar

from qola.codegen.types import FieldValue
from qola.errors import ExitCode, Finding, QolaError
from qola.manifest.values import either, nearest
from qola.plan.model import Plan, TritonInstance, TritonKernel

YES, NO = "yes", "no"
_WORDS = {"true": YES, "t": YES, "1": YES, "y": YES, "false": NO, "f": NO, "0": NO, "n": NO}


class QueryError(QolaError):
    """A query names an unknown field, value or kernel instance."""

    exit_code: ClassVar[int] = ExitCode.USAGE
    default_title: ClassVar[str] = "no kernel instance fits the query"


@dataclass(frozen=True)
class Item:
    """A kernel instance as queries see it.

    Attributes:
        values: its fields as text, each with all values that match: hdim 128 is also 128x128, and
            an arch-neutral instance has several archs.
    """

    name: str
    values: Mapping[str, tuple[str, ...]]

    def show(self, field: str) -> str:
        """Return a field for a table, "-" if the instance does not have it."""
        values = self.values.get(field, ("-",))
        return values[0] if field == "hdim" else ",".join(values)


def make_item(
    name: str,
    module: str,
    direction: str,
    role: str,
    archs: Sequence[str],
    fields: Iterable[tuple[str, FieldValue]],
) -> Item:
    """Return the item of a kernel instance or of an explanation."""
    values: dict[str, tuple[str, ...]] = {
        "module": (module,),
        "direction": (direction,),
        "role": (role,),
        "arch": tuple(archs),
    }
    for key, value in fields:
        if key in values:
            continue  # CK's name of the arch
        if isinstance(value, bool):
            values[key] = (YES if value else NO,)
        elif value is not None:
            values[key] = (str(value),)
    if "hdim_q" in values and "hdim_v" in values:
        (q,), (v,) = values["hdim_q"], values["hdim_v"]
        values["hdim"] = (f"{q}x{v}", q) if q == v else (f"{q}x{v}",)
    return Item(name, values)


def items_of(plan: Plan) -> list[Item]:
    """Return the kernel instances of a plan in its order, then those in Triton."""
    own = [
        make_item(k.name, k.module, k.direction, k.role, k.archs, k.fields.items())
        for k in plan.kernels
    ]
    return [*own, *triton_items(plan.triton)]


def triton_items(kernels: Iterable[TritonKernel]) -> list[Item]:
    """Return the instances of kernels in Triton, in order."""
    return [
        make_item(
            one.name, "triton", kernel.name, kernel.function, (one.arch,), _choices(one).items()
        )
        for kernel in kernels
        for one in kernel.instances
    ]


def _choices(instance: TritonInstance) -> dict[str, str]:
    """Return the choices of an instance in Triton; those that CK has, too, by CK's names."""
    named = {"HDIM": "hdim", "dtype": "dtype"}
    return {named.get(name, name.lower()): value for name, value in instance.choices.items()}


def select(items: Sequence[Item], words: Sequence[str]) -> list[int]:
    """Return the indices of the items that match a query, in their order.

    Args:
        words: ``field=value`` (several values: ``field=a,b``), a name, or a pattern with * ? [].
            An item must match every field, and one of the names and patterns.

    Raises:
        QueryError: an unknown field, value or name, or no match.
    """
    findings: list[Finding] = []
    found = list(range(len(items)))
    for word in words:
        if "=" in word:
            found = _by_field(items, found, word, findings)
    names = [_base_name(word) for word in words if "=" not in word]
    named: set[int] = set()
    for name in names:
        matching = {i for i, item in enumerate(items) if fnmatchcase(item.name, name)}
        if not matching:
            findings.append(_unknown_name(items, name))
        named |= matching
    if names:
        found = [i for i in found if i in named]
    if not found and not findings:
        findings.append(
            Finding(
                " ".join(words) or "all kernel instances",
                "no kernel instance that has all of it" if words else "no kernel instance at all",
                "fields and names that occur together",
            )
        )
    if findings:
        raise QueryError(findings)
    return found


def _base_name(word: str) -> str:
    """Return a kernel's name from a label, a path or a file name, as in error messages."""
    return re.sub(r"(\.pic)?\.(cpp|o)$", "", re.split(r"[/:]", word)[-1])


def _by_field(
    items: Sequence[Item], found: list[int], word: str, findings: list[Finding]
) -> list[int]:
    field, _, text = word.partition("=")
    have = dict.fromkeys(value for item in items for value in item.values.get(field, ()))
    if not have:
        fields = sorted({name for item in items for name in item.values})
        meant = nearest(field, fields)
        fix = meant and f"did you mean {meant}={text}?"
        findings.append(Finding(word, f"unknown field {field!r}", either(fields), fix))
        return found
    wanted = set()
    for part in text.split(","):
        value = _WORDS.get(part.lower(), part) if set(have) <= {YES, NO} else part
        if value not in have:
            # A number with similar digits is not a useful suggestion.
            meant = "" if value[:1].isdigit() else nearest(value, have)
            fix = meant and f"did you mean {field}={meant}?"
            finding = f"no kernel instance with {field} {part or 'empty'}"
            findings.append(Finding(word, finding, either(sorted(have, key=_natural)), fix))
        wanted.add(value)
    return [i for i in found if wanted.intersection(items[i].values.get(field, ()))]


def _unknown_name(items: Sequence[Item], name: str) -> Finding:
    close = nearest_names(name, [item.name for item in items])
    fix = "did you mean one of these?\n" + "\n".join(close) if close else ""
    within = sum(name in item.name for item in items)
    if within:
        fix = f"'*{name}*' is a pattern that finds {within} kernel instances"
    return Finding(
        name,
        "no kernel instance of that name",
        "a name, or a pattern in quotes such as '*_d128_bf16_*'",
        fix,
    )


def nearest_names(name: str, names: Iterable[str], count: int = 3) -> list[str]:
    """Return the names that differ from `name` in the fewest parts, which underscores separate.

    Names that share less than half of the parts are left out.
    """
    parts = set(name.split("_"))
    ranked = sorted((len(parts.symmetric_difference(other.split("_"))), other) for other in names)
    return [other for distance, other in ranked[:count] if distance <= len(parts) // 2]


def _natural(text: object) -> list[tuple[int, str]]:
    """Return a sort key that puts 64 before 128."""
    parts = re.findall(r"[0-9]{1,18}|[^0-9]+", str(text))
    return [(int(part), "") if "0" <= part[0] <= "9" else (-1, part) for part in parts]


@dataclass(frozen=True)
class CountRow:
    """Kernel instances of one module, direction, role, arch and head dimension."""

    key: tuple[str, str, str, str, str]
    by_dtype: Mapping[str, int]
    by_mode: Mapping[str, int]
    total: int


KEY = ("module", "direction", "role", "arch", "hdim")
"""The fields of a CountRow's key."""


def count(items: Iterable[Item]) -> list[CountRow]:
    """Count kernel instances by KEY, in the order of modules and directions, then by size."""
    groups: dict[tuple[str, ...], list[Item]] = {}
    for item in items:
        groups.setdefault(tuple(map(item.show, KEY)), []).append(item)
    order = {key[:3]: place for place, key in reversed(list(enumerate(groups)))}
    rows = []
    for key in sorted(groups, key=lambda k: (order[k[:3]], k[3], _natural(k[4]))):
        module, direction, role, arch, hdim = key
        group = groups[key]
        rows.append(
            CountRow(
                (module, direction, role, arch, hdim),
                Counter(item.show("dtype") for item in group),
                Counter(item.show("mode") for item in group),
                len(group),
            )
        )
    return rows
