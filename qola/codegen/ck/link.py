"""Links the rows of a dispatch to kernel sources by the C++ traits type that both name."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

_TYPE = re.compile(r"\s*(fmha_\w*traits_)<(.*)>\s*$", re.DOTALL)
_ARCH = re.compile(r"ck_tile::(gfx\w+?)_t\b")
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_NEVER = re.compile(r"\s*false\s*,\s*(\w+)")
_CHOSEN = re.compile(
    r"if constexpr\s*\(\s*std::is_same_v<(\w+),\s*(\w+)>\s*\)\s*\{([^{}]*)\}\s*else\s*\{([^{}]*)\}"
)
_COMPARED = re.compile(r"(-?\d+)>(-?\d+)")
_LAYOUT = str.maketrans("", "", " \t\n()")
#: Most levels of aliases of aliases.
_DEPTH = 6


class NotUnderstoodError(Exception):
    """CK's generator, or its output, has an unknown form; the message names it."""


@contextlib.contextmanager
def reading_ck() -> Iterator[None]:
    """Turn every exception into a NotUnderstoodError, while CK's objects are read."""
    try:
        yield
    except NotUnderstoodError:
        raise
    except Exception as error:  # objects and pools of another CK may do anything
        raise NotUnderstoodError(f"{type(error).__name__}: {error}") from error


class Traits(NamedTuple):
    """A traits type, with aliases expanded and without spaces."""

    name: str
    arguments: str

    @property
    def role(self) -> str:
        """The role of a kernel with such traits, "" if the name is just fmha_fwd."""
        return re.sub(r"^fmha_(?:fwd_|bwd_)?|_?traits_$", "", self.name)


Call = tuple[str, tuple[Traits, ...]]
"""CK's name of a row's arch, and the kernel types that the row calls."""


def call_of(row: str) -> Call:
    """Parse the arch and kernel types of a row of a dispatch."""
    return arch_of(row), tuple(traits_of(row))


def called_in(dispatch: str) -> set[Traits]:
    """Parse the kernel types that a whole dispatch calls."""
    dispatch = compiled_part(dispatch)
    # Rows name their types alike; each ends with a return.
    return {traits for part in dispatch.split("return") for traits in traits_of(part)}


def compiled_part(text: str) -> str:
    """Resolve each `if constexpr` that compares two types."""
    return _CHOSEN.sub(_chosen, text) if "if constexpr" in text else text


def _chosen(match: re.Match[str]) -> str:
    return match[3] if match[1] == match[2] else match[4]


def traits_of(text: str) -> list[Traits]:
    """Parse the traits types that a text uses, in order."""
    text = compiled_part(text)
    never = {m[1] for part in text.split("conditional_t<")[1:] if (m := _NEVER.match(part))}
    used = []
    aliases = {}
    # Plain searches where they do: a regular expression over 90 MB of sources takes seconds.
    for part in text.split("using ")[1:]:
        name, _, meaning = part[: part.find(";")].partition("=")
        aliases[name.rstrip()] = meaning
        if "traits_<" in meaning and (match := _TYPE.match(meaning)):
            used.append((name.rstrip(), match[1], match[2]))
    return [
        Traits(traits, _expanded(_normal(arguments), aliases))
        for name, traits, arguments in used
        if name not in never
    ]


def arch_of(text: str) -> str:
    """Return CK's name of the architecture a text is for, "" where it names none."""
    match = _ARCH.search(text, max(text.find("ck_tile::gfx"), 0))
    return match[1] if match else ""


def without_comments(text: str) -> str:
    """Return C++ without its comments."""
    return _COMMENT.sub("", text) if "/" in text else text


@cache
def _normal(arguments: str) -> str:
    plain = without_comments(arguments).translate(_LAYOUT)
    return _COMPARED.sub(lambda m: str(int(m[1]) > int(m[2])).lower(), plain)


def _expanded(arguments: str, aliases: Mapping[str, str], depth: int = 0) -> str:
    return ",".join(
        _expanded(_normal(aliases[part]), aliases, depth + 1)
        if part in aliases and depth < _DEPTH
        else part
        for part in arguments.split(",")
    )


class Links:
    """The kernel sources that define each traits type.

    Attributes:
        traits, archs: the traits types and the arch of each source.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self.traits = {name: traits_of(text) for name, text in sources.items()}
        self.archs = {name: arch_of(text) for name, text in sources.items()}
        self._files: dict[tuple[Traits, str], list[str]] = {}
        for name, found in self.traits.items():
            for traits in found:
                self._files.setdefault((traits, self.archs[name]), []).append(name)

    def files(self, traits: Traits, arch: str) -> list[str]:
        """Return the sources that define a type for an architecture."""
        return self._files.get((traits, arch), [])

    def defined(self, traits: Traits) -> bool:
        """Whether a source defines a type for any architecture."""
        return any((traits, arch) in self._files for arch in set(self.archs.values()))

    def check(self) -> None:
        """Check that every source defines one type."""
        for name, found in self.traits.items():
            if len(found) != 1:
                raise NotUnderstoodError(f"{name} defines {len(found)} types of kernels, not one")
