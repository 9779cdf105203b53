"""Finds kernel instances by name, pattern and fields, and explains why they are in a plan."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from qola.codegen.types import Explanation, FieldValue
from qola.common.suggestions import nearest
from qola.manifest.load import Manifest, ModuleSpec
from qola.manifest.types import triton_name
from qola.manifest.values import either
from qola.plan.model import Plan, TritonKernel
from qola_base.errors import ExitCode, Finding, QolaError
from qola_base.json_types import JsonObject

YES, NO = "yes", "no"
_WORDS = {"true": YES, "t": YES, "1": YES, "y": YES, "false": NO, "f": NO, "0": NO, "n": NO}


class QueryError(QolaError, title="no kernel instance fits the query", exit_code=ExitCode.USAGE):
    """A query names an unknown field, value or kernel instance."""


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
    values: dict[str, tuple[str, ...]] = {"module": (module,), "direction": (direction,)}
    values |= {"role": (role,), "arch": tuple(archs)}
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
    """Return the instances of kernels in Triton, in order, with choices by CK's names."""
    named = {"HDIM": "hdim", "dtype": "dtype"}
    return [
        make_item(
            *(one.name, "triton", kernel.name, kernel.function, (one.arch,)),
            [(named.get(name, name.lower()), value) for name, value in one.choices.items()],
        )
        for kernel in kernels
        for one in kernel.instances
    ]


def select(items: Sequence[Item], words: Sequence[str]) -> list[int]:
    """Return the indices of the items that match a query, in their order.

    Args:
        words: ``field=value`` (several values: ``field=a,b``), a name, or a pattern with * ? [].
            An item must match every field, and one of the names and patterns.

    Raises:
        QueryError: an unknown field, value or name, or no match.
    """
    if not items:
        place, expected = " ".join(words) or "all kernel instances", "a plan with kernel instances"
        raise QueryError(Finding(place, "no kernel instance at all", expected))
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
        reason = "no kernel instance that has all of it"
        expected = "fields and names that occur together"
        findings.append(Finding(" ".join(words), reason, expected))
    if findings:
        raise QueryError(findings)
    return found


def _base_name(word: str) -> str:
    """Return a kernel's name from a label, a path or a file name, as in error messages."""
    return re.sub(r"(\.pic)?\.(cpp|o)$", "", re.split(r"[/:]", word)[-1])


_MASKS = {"causal": YES, "top_left": YES, "bottom_right": YES}
_BIAS = {YES: "bias", NO: "no,alibi"}
_ALIBI = {YES: "alibi", NO: "no,bias"}
_OTHER_NAMES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    **dict.fromkeys(("has_mask", "mask_type"), ("mask", _MASKS)),
    **{name: ("lse", {}) for name in ("has_lse", "return_lse")},
    **{f"has_{name}": (name, {}) for name in ("dbias", "dropout", "skip", "sink")},
    **{"bias_type": ("bias", {}), "has_bias": ("bias", _BIAS), "has_alibi": ("bias", _ALIBI)},
}
"""Fields by the names of manifests and problems, with the values that differ there."""


def _own_names(word: str) -> str:
    """Translate ``FIELD=VALUE`` with a name of manifests or problems to the field of kernels."""
    name, _, text = word.partition("=")
    field, values = _OTHER_NAMES[name]
    parts = [_WORDS.get(part.lower(), part.lower()) for part in text.split(",")]
    return f"{field}={','.join(values.get(part, part) for part in parts)}"


def _by_field(
    items: Sequence[Item], found: list[int], word: str, findings: list[Finding]
) -> list[int]:
    field, _, text = word.partition("=")
    if field in _OTHER_NAMES and not any(field in item.values for item in items):
        return _by_field(items, found, _own_names(word), findings)
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
    fix = ""
    if within := sum(name in item.name for item in items):
        fix = f"'*{name}*' is a pattern that finds {within} kernel instances"
    expected = "a name, or a pattern in quotes such as '*_d128_bf16_*'"
    return Finding(name, "no kernel instance of that name", expected, fix)


def _natural(text: object) -> list[tuple[int, str]]:
    """Return a sort key that puts 64 before 128."""
    parts = re.findall(r"[0-9]{1,18}|[^0-9]+", str(text))
    return [(int(part), "") if "0" <= part[0] <= "9" else (-1, part) for part in parts]


KEY = ("module", "direction", "role", "arch", "hdim")
"""The fields of a CountRow's key."""


@dataclass(frozen=True)
class CountRow:
    """Kernel instances with the same values of KEY."""

    key: tuple[str, ...]
    by_dtype: Mapping[str, int]
    by_mode: Mapping[str, int]
    total: int


def count(items: Iterable[Item]) -> list[CountRow]:
    """Count kernel instances by KEY, in the order of modules and directions, then by size."""
    groups: dict[tuple[str, ...], list[Item]] = {}
    for item in items:
        groups.setdefault(tuple(map(item.show, KEY)), []).append(item)
    order = {key[:3]: place for place, key in reversed(list(enumerate(groups)))}
    return [
        CountRow(
            key,
            Counter(item.show("dtype") for item in groups[key]),
            Counter(item.show("mode") for item in groups[key]),
            len(groups[key]),
        )
        for key in sorted(groups, key=lambda k: (order[k[:3]], k[3], _natural(k[4])))
    ]


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

    def to_dict(self) -> JsonObject:
        """Return JSON values (docs/reference/plan.md)."""
        return {
            "name": self.item.name,
            "in": self.kept,
            "reasons": self.reasons,
            **{key: self.item.show(key) for key in ("module", "direction", "role")},
            "archs": self.item.values["arch"],
            "fields": dict(self.fields),
        }


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
        keeping = (variants[index].place for index in explanation.kept_by)
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
