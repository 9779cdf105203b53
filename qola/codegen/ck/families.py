"""Families of kernel instances that share a warm precompiled header, and the text of that header.

Two thirds of what the compiler does for a kernel instance, it does for its neighbours as well:
it parses the same headers and instantiates the same templates. A precompiled header that has been
made of one instance, its sister, has these results for all of the family.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from qola.codegen.ck.rows import Kernel
from qola.codegen.types import FieldValue

#: What kernel instances of a family have in common, beside role and arch. Instances that differ
#: in mask, bias, dropout, padding or mode share nearly as much as those that do not (measured,
#: docs/internals/split-compilation.md); those of another tile or pipeline share half of it.
COMMON = ("dtype", "tile", "pipeline", "trload")

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[^\n]*\n", re.MULTILINE)
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(if|endif)", re.MULTILINE)
_TEMPLATE = re.compile(r"^template\b", re.MULTILINE)
_KERNEL = re.compile(r"^[ \t]*using k_\s*=\s*(\w+);", re.MULTILINE)

_WARM = """\
// Written by qola: the headers and the templates of one kernel instance, its family's sister,
// {sister}.
// Compiled into a precompiled header. Nothing calls the function below, so no code is made of it.
{includes}
namespace qola_warm {{
{head}
inline __device__ void instantiate(typename {kernel}::Kargs kargs)
{{
    {kernel}{{}}(kargs);
}}
{endings}}} // namespace qola_warm
"""


@dataclass(frozen=True)
class Family:
    """Kernel instances that share a warm precompiled header.

    Attributes:
        name: of the family, and of its header without the suffix.
        sister: name of the kernel instance that the header is made of.
        size: number of kernel instances that the receipts in use have of it, wanted or not.
    """

    name: str
    role: str
    sister: str
    size: int
    header: str


def family_name(kernel: Kernel) -> str:
    """Return the family a kernel instance would belong to: the fields that make templates alike."""
    values = {name: kernel.fields.get(name) for name in COMMON}
    parts = [name if value is True else str(value) for name, value in values.items() if value]
    return "_".join([kernel.role, *parts, *([kernel.arch_tag] if kernel.arch_tag else [])])


def find_families(kernels: Iterable[Kernel], wanted: Iterable[Kernel]) -> dict[str, Family]:
    """Return the families of the wanted kernel instances, by name.

    A family's sister is chosen among all that the receipts offer, never by what a manifest wants:
    a variant more or less must not change the header, on which every object depends.

    Args:
        kernels: all kernel instances that the receipts in use have.
    """
    names = {family_name(kernel) for kernel in wanted}
    members: dict[str, dict[str, Kernel]] = {}
    for kernel in kernels:
        name = family_name(kernel)
        if name in names:
            members.setdefault(name, {})[kernel.name] = kernel
    found = {}
    for name, alike in sorted(members.items()):
        sister = min(alike.values(), key=lambda k: (_features(k.fields), k.name))
        header = warm_header(sister.name, sister.source)
        if header is not None:
            found[name] = Family(name, sister.role, sister.name, len(alike), header)
    return found


def _features(fields: Mapping[str, FieldValue]) -> int:
    """Count what a kernel instance does beyond the plain case: the plainest compiles fastest."""
    return sum(value not in (None, False, "no", 0) for value in fields.values())


def warm_header(sister: str, source: str) -> str | None:
    """Return a header that instantiates the kernel of a source without emitting code.

    Args:
        sister: name of the kernel instance, for the comment.
        source: its text as CK generates it: aliases, then specialisations of host functions.

    Returns:
        The header, None where the source has another form (its kernel is chosen inside a
        template).
    """
    start, kernel = _TEMPLATE.search(source), _KERNEL.search(source)
    if start is None or kernel is None:
        return None
    head = source[: start.start()]
    if not re.search(rf"^using {kernel[1]}\s*=", head, re.MULTILINE):
        return None
    opened = sum(1 if m[1] == "if" else -1 for m in _CONDITION.finditer(head))
    return _WARM.format(
        sister=sister,
        includes="".join(_INCLUDE.findall(source)),
        head=_INCLUDE.sub("", head).strip("\n"),
        kernel=kernel[1],
        endings="#endif\n" * opened,
    )


def headers_text(sources: Iterable[str]) -> str:
    """Return a header with every include of some sources, each once, in order."""
    lines: dict[str, None] = {}
    for source in sources:
        lines.update((match.strip(), None) for match in _INCLUDE.findall(source))
    return "\n".join(["// Written by qola: what kernel instances include.", *lines]) + "\n"
