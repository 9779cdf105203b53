"""A direction whose rows cannot be followed: all that CK writes for a receipt.

Level linked: every type of kernel that the dispatch names is defined by just one source for an
arch, so that the sources are known to be kernels, by role and arch. Level opaque: not even that.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qola.codegen.answer import FilterAnswer, GeneratorAnswer
from qola.codegen.ck.link import Links, NotUnderstoodError, called_in, followed
from qola.codegen.ck.observe import Recording
from qola.codegen.ck.output import (
    RefusedError,
    archs_of,
    dispatch_source,
    kernel_instance,
    record,
    tags_of,
)
from qola.codegen.ck.receipts import emulated, source
from qola.codegen.ck.request import GeneratorRequest
from qola.codegen.ck.rows import Kernel
from qola.codegen.ck.vocabulary import fields_of
from qola.codegen.types import Direction, Explanation, FieldValue, Level
from qola.errors import Finding

DISPATCH = "_api.cpp"
"""How CK's names of a dispatch end."""

_NO_KERNELS = "@".join(["no_kernel_of_this_name"] * 3)
"""CK's filter, with a part for each kind of kernel."""


def run(request: GeneratorRequest, reason: str) -> GeneratorAnswer:
    """Generate all of a receipt.

    Args:
        reason: why the rows cannot be followed.

    Raises:
        RefusedError: the receipt is made by rules on rows.
    """
    direction = request.direction
    if request.kernels:
        raise RefusedError(
            f"{request.kernels[0].label}, of rows that cannot be followed: {reason}",
            "variants and receipts alone, or a Composable Kernel that qola can follow",
        )
    receipt, none = _receipt(request, reason)
    more = ("--filter", _NO_KERNELS) if none else ()
    seen = {
        folder: (
            chosen,
            record(Path(request.script), direction, receipt, chosen, Path(request.scratch), *more),
        )
        for chosen, folder in request.folders
    }
    whole = next(iter(seen.values()))[1]
    level, why, kernels = _kernels(direction, whole)
    if none and kernels:
        raise RefusedError(
            f"a dropped direction with {len(kernels)} kernels; {reason}",
            "a dispatch without kernels from CK's --filter",
            "remove the direction from drop_directions",
        )
    tags = tags_of(request.archs, (), kernels)
    instances = tuple(kernel_instance(direction, k, archs_of(k, tags)) for k in kernels)
    texts = {one.file: kernel.source for one, kernel in zip(instances, kernels, strict=True)}
    sources = []
    for folder, (chosen, found) in seen.items():
        for name, text in found.files.items():
            if name.endswith(DISPATCH):
                sources.append(dispatch_source(direction, name, text, chosen, folder))
                texts[sources[-1].file] = text
    blame = ("the direction is dropped",) if none else ()
    return GeneratorAnswer(
        Direction(direction, level, f"{reason}; {why}" if why else reason, 0, ()),
        instances,
        tuple(sources),
        texts,
        tuple(FilterAnswer(one.index, len(kernels), blame) for one in request.filters),
        findings=(_warning(request, level, reason, receipt),),
        explanations=tuple(
            Explanation(one.name, direction, one.role, one.archs, one.fields, (), "")
            for one in instances
            if request.explain
        ),
    )


def _receipt(request: GeneratorRequest, reason: str) -> tuple[int, bool]:
    """Return the receipt to generate, and whether the direction gets no kernels of it."""
    native, direction = request.native, request.direction
    made = {one.receipt: emulated(one.receipt, native) for one in request.filters}
    some = [receipt for receipt, of in made.items() if not of or of.rules[direction] is not None]
    if request.dropped or not some:
        return source(request.filters[0].receipt, native), True
    if len(some) > 1 or made[some[0]]:
        raise RefusedError(
            f"receipt {' and '.join(map(str, some))} of rows that cannot be followed: {reason}",
            f"one receipt of this CK's own: {', '.join(map(str, native))}",
            "write a receipt that has all that is wanted, or leave the direction out "
            "with drop_directions",
        )
    return some[0], False


def _kernels(direction: str, seen: Recording) -> tuple[Level, str, list[Kernel]]:
    """Return the level, why it is not linked, and the kernels."""
    sources = {n: text for n, text in seen.files.items() if not n.endswith(DISPATCH)}
    try:
        return "linked", "", _linked(direction, seen, sources)
    except NotUnderstoodError as error:
        return (
            "opaque",
            str(error),
            [
                Kernel(direction, name.removesuffix(".cpp"), None, {}, text)
                for name, text in sources.items()
            ],
        )


def _linked(direction: str, seen: Recording, sources: Mapping[str, str]) -> list[Kernel]:
    texts = [text for name, text in seen.files.items() if name.endswith(DISPATCH)]
    if not texts:
        raise NotUnderstoodError(f"no source whose name ends with {DISPATCH}")
    links = Links(sources)
    links.check()
    called = set().union(*map(called_in, texts))
    if missing := [traits for traits in called if not links.defined(traits)]:
        raise NotUnderstoodError(f"no source defines {missing[0]}")
    made = []
    for name, text in sources.items():
        kernel = seen.kernels.get(name)
        fields = _fields(kernel)
        tag = links.archs[name] or None
        (traits,) = links.traits[name]
        stem = name.removesuffix(".cpp")
        made.append(
            Kernel(
                traits.role or direction,
                stem,
                tag,
                {**fields, "arch": tag} if tag else fields,
                text,
                traits,
            )
        )
    return made


def _fields(kernel: Any) -> Mapping[str, FieldValue]:
    """Return the fields of CK's object, none where they cannot be read: no one selects by them."""
    try:
        with followed():
            return {} if kernel is None else fields_of(kernel, {})
    except NotUnderstoodError:
        return {}


def _warning(request: GeneratorRequest, level: str, reason: str, receipt: int) -> Finding:
    labels = [one.label for one in request.filters if one.index >= 0]
    return Finding(
        place=f"direction {request.direction}",
        found=f"level {level}: all of receipt {receipt} is built"
        + (f", whatever {', '.join(labels)} may say" if labels else "")
        + f", because {reason}",
        expected="level filtered, where variants select kernels",
        fix="--require filtered makes it an error",
        severity="warning",
    )
