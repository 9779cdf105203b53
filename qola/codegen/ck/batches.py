"""A batch: kernel instances of Composable Kernel in one compile, each in its own file still.

Most of what a compiler does for a kernel instance it does for its neighbours too: it parses the
same headers, instantiates the same templates and optimises the same functions. What the files
declare beside specialisations would meet in one translation unit: `local_names` finds these names,
and the batch has a macro for each, by which it differs from file to file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"][^>\"\n]+[>\"])", re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w*)((?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
_STRING = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'")
_PIECE = re.compile(r"[{};]|[^{};]+")
_UNNAMED = re.compile(r"\s*namespace\s*")
_SPECIALISATION = re.compile(r"template\s*<\s*>")
_INSTANTIATION = re.compile(r"template\s+[^<\s]")
_ALIAS = re.compile(r"using\s+(\w+)\s*=")
_RECORD = re.compile(r"(?:struct|class)\s+(\w+)")
_FUNCTION = re.compile(
    r"(?:(?:static|inline|constexpr)\s+)*(?:void|float|int|bool)\s+(\w+)\s*\([^()]*\)"
)

_BATCH = """\
// Written by qola (qola/codegen/ck/batches.py): {count} kernel instances in one compile, each in
// its own file. Make it again: qola plan; do not edit.
{includes}

#define QOLA_PASTE(name, kernel) name##_qola_##kernel
#define QOLA_EXPAND(name, kernel) QOLA_PASTE(name, kernel)
#define QOLA_LOCAL(name) QOLA_EXPAND(name, QOLA_KERNEL)

// What each file has of its own by the same name.
{macros}

{kernels}
"""
_KERNEL = """\
#define QOLA_KERNEL {number}
#include "../{name}.cpp"
#undef QOLA_KERNEL"""


def included(sources: Iterable[str]) -> list[str]:
    """Return what sources include, with its quotes or brackets, in the order first met."""
    return list(dict.fromkeys(name for text in sources for name in _INCLUDE.findall(text)))


def local_names(source: str) -> tuple[str, ...] | None:
    """Return what a kernel instance's source declares that another may declare too, sorted.

    That is all at namespace scope, except specialisations and instantiations of what a header
    declares: these differ in their arguments.

    Returns:
        The names; None where the source has a form that is not among those which CK's generators
        write, such as a macro of its own: it is compiled alone.
    """
    text = _COMMENT.sub(" ", source)
    if not _directives_stay_local(text):
        return None
    text = _STRING.sub("", _DIRECTIVE.sub("", text))
    names: set[str] = set()
    head, depth = "", 0
    for piece in _PIECE.findall(text):
        ended = piece == ";" and not depth
        if piece == "{" and not depth and _UNNAMED.fullmatch(head):
            head = ""
        elif piece == "{":
            head += "" if depth else "{"
            depth += 1
        elif piece == "}" and depth:
            depth -= 1
            # After a record's body comes a semicolon, after a function's nothing.
            ended = not depth and not _RECORD.match(_untemplated(head))
        elif piece not in "};" and not depth:
            head += piece
        if ended:
            name = _declared(head.strip())
            if name is None:
                return None
            names |= {name} - {""}
            head = ""
    return None if head.strip() or depth else tuple(sorted(names))


def _directives_stay_local(text: str) -> bool:
    """Say whether the directives of a source mean the same when others come before and after."""
    conditions = 0
    for word, rest in _DIRECTIVE.findall(text):
        if word in ("if", "ifdef", "ifndef", "endif"):
            conditions += -1 if word == "endif" else 1
        elif word == "include":
            # A batch has it before everything else, without its condition.
            if conditions or not _INCLUDE.fullmatch(f"#include {rest.strip()}"):
                return False
        elif word not in ("else", "elif") and rest.split()[:2] != ["clang", "diagnostic"]:
            return False
    return True


@cache
def _untemplated(head: str) -> str:
    """Return the text of a declaration without the parameters of a template in front of it."""
    head = head.lstrip()
    depth = 0
    for position, character in enumerate(head if head.startswith("template") else ""):
        depth += (character == "<") - (character == ">")
        if character == ">" and not depth:
            return head[position + 1 :].lstrip()
    return head


@cache
def _declared(head: str) -> str | None:
    """Return the name that a declaration adds, "" where it adds none, None where that is not clear.

    Args:
        head: its text, of a body the opening brace alone.
    """
    if not head or _SPECIALISATION.match(head) or _INSTANTIATION.match(head):
        return ""
    head = _untemplated(head)
    if alias := _ALIAS.match(head):
        return alias[1]
    # Without a body it names what is defined elsewhere.
    what = head.removesuffix("{").rstrip() if head.endswith("{") else ""
    found = _RECORD.fullmatch(what) or _FUNCTION.fullmatch(what)
    return found[1] if found else None


def batch_source(kernels: Sequence[str], includes: Sequence[str], names: Sequence[str]) -> str:
    """Return the source of a batch.

    Args:
        kernels: names of the kernel instances, whose sources are in the directory above the
            batch's.
        includes: what they include, as `included` gives it.
        names: what each of them declares, as `local_names` gives it.
    """
    return _BATCH.format(
        count=len(kernels),
        includes="\n".join(f"#include {name}" for name in includes),
        macros="\n".join(f"#define {name} QOLA_LOCAL({name})" for name in names),
        kernels="\n".join(_KERNEL.format(number=n, name=name) for n, name in enumerate(kernels)),
    )
