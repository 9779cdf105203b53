"""What the adapters of all directions share: rows of a dispatch, kernels, and checks of CK's API.

Runs inside the generator process, where CK's `codegen` package can be imported. CK's files are
used as they are; an adapter calls their functions and reads the objects they return.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from qola.codegen.types import FieldValue

#: AITER leaves CK's mask implementation and head-dim optimisation at their defaults.
MASK_IMPL = "simplified"
OPTDIM = [-1]


class UnservedCkError(Exception):
    """The CK at hand differs from the range an adapter serves."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(found)
        self.found = found
        self.expected = expected


@dataclass(frozen=True)
class Kernel:
    """One kernel instance as CK describes it; `render` returns its source text."""

    role: str
    name: str
    arch_tag: str | None
    fields: Mapping[str, FieldValue]
    render: Callable[[], str]


@dataclass(frozen=True)
class Row:
    """One entry of a dispatch if-chain.

    Attributes:
        fields: what variants and receipts select by.
        problem: the (field, value) pairs the entry's condition compares for equality.
        arch: CK's name of the architecture, None where the dispatch does not ask.
        bucket: (hdim_q, hdim_v) up to which its bucket of the chain accepts a problem.
        steps: hdim_q and hdim_v must be multiples of these.
        bm0: tile length along q where the chain picks tiles by it, else None.
        conditional: the entry serves only some sequence lengths or device loads.
    """

    key: str
    trait: Any
    kernels: tuple[Kernel, ...]
    fields: Mapping[str, FieldValue]
    problem: tuple[tuple[str, FieldValue], ...]
    arch: str | None
    bucket: tuple[int, int]
    steps: tuple[int, int]
    bm0: int | None = None
    conditional: bool = False


@dataclass(frozen=True)
class Base:
    """All a receipt gives: rows in chain order, and kernels that no row calls."""

    rows: Sequence[Row]
    loose: Sequence[Kernel] = field(default=())


class Adapter(ABC):
    """Drives one of CK's op modules."""

    direction: ClassVar[str]
    #: File name of the dispatch.
    api_file: ClassVar[str]
    #: Function -> parameter names of the CK range this adapter serves.
    signatures: ClassVar[Mapping[str, tuple[str, ...]]]
    #: Fields that a dispatch condition compares for equality.
    problem_fields: ClassVar[tuple[str, ...]]
    #: CK's class that turns traits into a dispatch, and its method that takes one.
    pool: ClassVar[str]
    register: ClassVar[str] = "register_traits"

    def __init__(self, ops: Any) -> None:
        self.ops = ops
        check_signatures(ops, self.signatures)
        if hasattr(ops, "check_duplicates_and_paddings"):
            ops.check_duplicates_and_paddings = grouped_check(ops.check_duplicates_and_paddings)

    def arch_tag(self, arch: str) -> str | None:
        """Return CK's name for the family `arch` belongs to, None where kernels are not tagged.

        Raises:
            UnservedCkError: CK has no kernels of this direction for `arch`.
        """
        try:
            return str(self.ops.get_factory(arch).arch.name)
        except Exception as error:  # CK raises plain Exception
            raise UnservedCkError(
                f"architecture {arch}: {error}", "an architecture CK has kernels for"
            ) from None

    @abstractmethod
    def base(self, targets: list[str], receipt: int) -> Base:
        """Return everything `receipt` gives for the architectures `targets`."""

    def api(self, rows: Sequence[Row]) -> str:
        """Return the dispatch source that calls `rows`, in their order, and nothing else."""
        pool = getattr(self.ops, self.pool)(MASK_IMPL)
        for row in rows:
            getattr(pool, self.register)(row.trait)
        return str(pool.api)

    def problem(self, fields: Mapping[str, FieldValue]) -> tuple[tuple[str, FieldValue], ...]:
        """Return the part of `fields` that a dispatch condition compares for equality."""
        return tuple((name, fields[name]) for name in self.problem_fields if name in fields)


def kernel_of(role: str, k: Any, fields: Mapping[str, FieldValue]) -> Kernel:
    """Return CK's kernel object `k` with what is known of it; fields has its ``arch_tag``."""
    tag = fields["arch_tag"]
    name = k.filename.removesuffix(".cpp")
    return Kernel(role, name, None if tag is None else str(tag), fields, lambda: str(k.template))


def forward_fields(k: Any, hdim_v: int, arch_tag: str | None) -> dict[str, FieldValue]:
    """Return the fields of a forward kernel: its pipeline's and its own."""
    return {
        **pipeline_fields(k.F_pipeline),
        "dtype": k.F_dtype,
        "hdim_q": k.F_hdim,
        "hdim_v": hdim_v,
        "mode": k.F_mode,
        "tile": k.F_tile.name,
        "arch_tag": arch_tag,
    }


def check_signatures(ops: Any, signatures: Mapping[str, tuple[str, ...]]) -> None:
    """Check that CK's functions take what the adapter passes.

    Raises:
        UnservedCkError: a function is missing or has other parameters.
    """
    for name, served in signatures.items():
        function = getattr(ops, name, None)
        if function is None:
            raise UnservedCkError(f"{ops.__name__} has no {name}", f"{name}({', '.join(served)})")
        found = tuple(inspect.signature(function).parameters)
        if found != served:
            raise UnservedCkError(
                f"this CK's {ops.__name__}.{name} has parameters ({', '.join(found)})",
                f"served: {name}({', '.join(served)})",
            )


def grouped_check(check: Callable[[list[Any], Any], None]) -> Callable[[list[Any], Any], None]:
    """Return CK's duplicate check, given only the traits it would not skip.

    CK compares every new trait with all earlier ones and skips those that differ in any field but
    padding: 10 s for the backward direction. Grouping by those fields first gives it the same
    candidates in linear time. Within a group only paddings are left to compare, and groups repeat
    each other's: what it has allowed once is not asked again.
    """
    groups: dict[int, tuple[list[Any], dict[str, list[Any]]]] = {}
    allowed: set[tuple[type, tuple[str, ...]]] = set()
    names_of: dict[type, tuple[list[str], list[str]]] = {}

    def checked(traits: list[Any], trait: Any) -> None:
        kind = type(trait)
        if kind not in names_of:
            names = [f.name for f in dataclasses.fields(trait)]
            padded = [name for name in names if "pad" in name]
            names_of[kind] = [name for name in names if name not in padded], padded
        fixed, padded = names_of[kind]
        # The list is kept as well, so that its id is not used again while the entry lives.
        _, by_key = groups.setdefault(id(traits), (traits, {}))
        same = by_key.setdefault(repr([getattr(trait, name) for name in fixed]), [])
        pads = tuple(repr([getattr(one, name) for name in padded]) for one in [*same, trait])
        if (kind, pads) not in allowed:
            check(same, trait)
            allowed.add((kind, pads))
        same.append(trait)

    return checked


def normalised(value: Any) -> FieldValue:
    """Return CK's "t" and "f" as booleans, other values as they are."""
    if value in ("t", "f"):
        return bool(value == "t")
    if value is None or isinstance(value, (str, int, bool)):
        return value
    return str(value)


def mask_of(value: str) -> bool:
    """Return whether the simplified mask `value` (s_mask, s_no) is one.

    Raises:
        UnservedCkError: any other mask.
    """
    if value not in ("s_mask", "s_no"):
        raise UnservedCkError(f"mask {value}", "s_mask or s_no")
    return value == "s_mask"


def pipeline_fields(pipeline: Any) -> dict[str, FieldValue]:
    """Return the fields of a forward pipeline by their names without CK's ``F_``."""
    values: dict[str, FieldValue] = {"pipeline": pipeline.tag}
    for f in dataclasses.fields(pipeline):
        if f.name.startswith("F_") and f.name != "F_constraint":
            name, value = f.name[2:], getattr(pipeline, f.name)
            values[name] = mask_of(value) if name == "mask" else normalised(value)
    return values


def step_of(check: str, name: str) -> int:
    """Return the number `name` must be a multiple of for the dispatch condition `check`.

    Raises:
        UnservedCkError: the condition has another form.
    """
    text = re.sub(r"/\*.*?\*/", "", check).strip()
    if text == "true":
        return 1
    match = re.fullmatch(rf"a\.{name} % (\d+) == 0", text)
    if match is None:
        raise UnservedCkError(f"head-dim check `{check}`", f"true or a.{name} % N == 0")
    return int(match.group(1))


def is_unconditional(constraint: Any) -> bool:
    """Whether a CppConstraint is nothing but ``true`` joined with ``&&``."""
    return set(re.split(r"[()\s&]+", str(constraint))) <= {"", "true"}
