"""Generates all of a receipt, for a direction whose dispatch qola cannot parse.

Level linked: exactly one source for each arch defines each kernel type of the dispatch, so that the
role and arch of each source are known. Level opaque: the sources are not understood either.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qola.codegen.ck.link import Links, NotUnderstoodError, called_in, reading_ck
from qola.codegen.ck.messages import FilterAnswer, GeneratorAnswer, GeneratorRequest
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
from qola.codegen.ck.rows import Kernel
from qola.codegen.ck.vocabulary import fields_of
from qola.codegen.types import Direction, Explanation, FieldValue, Level
from qola_base.errors import Finding

DISPATCH = "_api.cpp"
"""Ending of the names of CK's dispatch sources."""

_NO_KERNELS = "@".join(["no_kernel_of_this_name"] * 3)
"""A value of CK's --filter, with a part for each kind of kernel."""


def run(request: GeneratorRequest, reason: str) -> GeneratorAnswer:
    """Generate all of a receipt, because of the `reason` why the dispatch cannot be parsed.

    Raises:
        RefusedError: the receipt selects rows by rules.
    """
    direction = request.direction
    if request.kernels:
        raise RefusedError(
            f"{request.kernels[0].place}, of a dispatch that cannot be parsed: {reason}",
            "only variants and receipts, or a Composable Kernel that qola can parse",
        )
    receipt, none = _receipt(request, reason)
    more = ("--filter", _NO_KERNELS) if none else ()
    script, scratch = Path(request.script), Path(request.scratch)
    seen = {
        folder: (chosen, record(script, direction, receipt, chosen, scratch, *more))
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
    """Return the receipt to generate, and whether all of its kernels are left out."""
    native, direction = request.native, request.direction
    made = {one.receipt: emulated(one.receipt, native) for one in request.filters}
    some = [receipt for receipt, of in made.items() if not of or of.rules[direction] is not None]
    if request.dropped or not some:
        return source(request.filters[0].receipt, native), True
    if len(some) > 1 or made[some[0]]:
        raise RefusedError(
            f"receipt {' and '.join(map(str, some))} of a dispatch that cannot be parsed: {reason}",
            f"one receipt of this CK's own: {', '.join(map(str, native))}",
            "choose one receipt with all wanted kernels, or add the direction to drop_directions",
        )
    return some[0], False


def _kernels(direction: str, seen: Recording) -> tuple[Level, str, list[Kernel]]:
    """Return the level, the reason why it is not linked, and the kernels."""
    sources = {n: text for n, text in seen.files.items() if not n.endswith(DISPATCH)}
    try:
        return "linked", "", _linked(direction, seen, sources)
    except NotUnderstoodError as error:
        stems = ((name.removesuffix(".cpp"), text) for name, text in sources.items())
        return "opaque", str(error), [Kernel(direction, s, None, {}, text) for s, text in stems]


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
        (traits,) = links.traits[name]
        tag = links.archs[name] or None
        fields = _fields(seen.kernels.get(name)) | ({"arch": tag} if tag else {})
        stem = name.removesuffix(".cpp")
        made.append(Kernel(traits.role or direction, stem, tag, fields, text, traits))
    return made


def _fields(kernel: Any) -> dict[str, FieldValue]:
    """Return the fields of CK's object, {} if it cannot be read; nothing selects by them."""
    try:
        with reading_ck():
            return {} if kernel is None else fields_of(kernel, {})
    except NotUnderstoodError:
        return {}


def _warning(request: GeneratorRequest, level: str, reason: str, receipt: int) -> Finding:
    labels = [one.place for one in request.filters if one.index >= 0]
    but = f", whatever {', '.join(labels)} may say" if labels else ""
    return Finding(
        f"direction {request.direction}",
        f"level {level}: all of receipt {receipt} is built{but}, because {reason}",
        "level filtered, where variants select kernels",
        "--require filtered makes it an error",
        "warning",
    )
