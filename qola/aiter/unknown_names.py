"""Names of Composable Kernel that AITER's sources use and the one at hand does not have.

AITER and Composable Kernel are a pair, by a submodule's commit. With another one in its place
sources do not compile; types tell it at once, without a compiler.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from qola.aiter.includes import closure, include_dirs, includes
from qola.aiter.missing_headers import Includer
from qola.aiter.preprocess import Macros, code_lines, without_comments
from qola.aiter.tree import AiterTree, ModuleConfig

_USED = re.compile(r"\bck_tile::(\w+)|\b(\w+_enum|fmha_\w+_(?:traits|args|launcher))\b")
_DECLARED = re.compile(
    r"\b(?:struct|class|enum|union|using|typename)\s+(?:(?:class|struct)\s+)?"
    r"(?:__attribute__\s*\(\(\w+\)\)\s*)?(\w+)"
)
#: What follows a type is declared, whatever it is: a variable, a parameter, a function.
_NAMED = re.compile(
    r"(?<![\w:])(?!(?:return|new|delete|throw|case|else|typename|const|static|extern|inline"
    r"|constexpr|volatile|mutable|using|operator|goto|co_return|sizeof)\b)"
    r"[A-Za-z_][\w:]*(?:<[^;{}()]*>)?(?:\s+|\s*[*&]+\s*)(\w+_enum)\s*[=;({,)\[]"
)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class UnknownName:
    """A name that is used and declared nowhere.

    Attributes:
        place: the first use, ``csrc/include/mha_fwd.h:27``.
    """

    place: str
    name: str


def unknown_names(
    tree: AiterTree, config: ModuleConfig, sources: Iterable[Includer], macros: Macros
) -> tuple[UnknownName, ...]:
    """Return the types of Composable Kernel that sources and AITER's headers use and nobody has.

    Args:
        sources: those of the module; their includes are followed.
        macros: what they are compiled with: other lines do not count.
    """
    own_folder = f"{tree.csrc_dir}/include/"
    texts = list(sources)
    known: set[str] = set()
    roots = {name for source in texts for name, _ in includes(source.text)}
    for file in closure(tree.root, include_dirs(tree, config), sorted(roots)):
        header = tree.text(file)
        if file.startswith(own_folder) and "namespace ck_tile" not in header:
            texts.append(Includer(file, header))
        else:
            known.update(_WORD.findall(header))
    for text in texts:
        known.update(_DECLARED.findall(text.text), _NAMED.findall(without_comments(text.text)))
    found: dict[str, str] = {}
    for text in texts:
        for name, line in _used(text.text, macros):
            if name not in known:
                found.setdefault(name, f"{text.place}:{line}")
    return tuple(UnknownName(place, name) for name, place in found.items())


def _used(text: str, macros: Macros) -> Iterator[tuple[str, int]]:
    for line in code_lines(text, macros):
        for match in _USED.finditer(line.text):
            yield match[1] or match[2], line.number
