"""A batch: kernel instances of Composable Kernel in one compile, each in its own file still.

A compiler repeats most of its work for each kernel instance: it parses the same headers,
instantiates the same templates and optimises the same functions. In one translation unit,
declarations of two files would collide, apart from specialisations: `local_names` finds their
names, and a batch defines a macro for each name, which expands to another name for each file.

A kernel class composes the name that CK logs from 60 numbers and texts (``GetName``): two thirds of
its host code. In the host pass of a batch, this function has another name and is never called; the
log gets the name of the kernel instance's file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
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
_FUNCTION = re.compile(r"(?:(?:static|inline|constexpr)\s+)*[\w:]+\s+(\w+)\s*\([^()]*\)")
_CONSTANT = re.compile(r"(?:static\s+)?const(?:expr)?\s+[\w:]+\s+(\w+)\s*=[^,{]*")
_MACRO_CALL = re.compile(r"(\w+)\s*\([^()]*\)")
_MACRO = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:\([^()]*\))?((?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE
)

_NAMED = "GetName"
_NAME = re.compile(rf"\b{_NAMED}\b")
#: The form that a header may use: the start of a member function's definition.
_DEFINITION = re.compile(rf"\bstatic\s+(?:const\s+)?std::string\s+{_NAMED}\(\)\s*\{{")
#: The form that a kernel source may use: a call.
_CALL = re.compile(rf"::\s*{_NAMED}\(\)")

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
{source}
#undef QOLA_KERNEL"""
_SOURCE = '#include "../{name}.cpp"'
_NAMED_SOURCE = f"""\
#define QOLA_NAME "{{name}}"
{_SOURCE}
#undef QOLA_NAME"""
_NAMED_INCLUDES = """\
#include <string>

#ifndef __HIP_DEVICE_COMPILE__
#define GetName() qola_name(const char* name) {{ return name; }} static std::string qola_unused()
#endif
{includes}
#ifndef __HIP_DEVICE_COMPILE__
#undef GetName
#define GetName() qola_name(QOLA_NAME)
#endif"""


def included(sources: Iterable[str]) -> list[str]:
    """Return the includes of sources, with quotes or brackets, in order of first occurrence."""
    return list(dict.fromkeys(name for text in sources for name in _INCLUDE.findall(text)))


def instantiating_macros(headers: Iterable[str]) -> frozenset[str]:
    """Return the macros of headers that expand to an explicit instantiation, and to nothing else.

    A macro that a header defines in another way, too, is left out.
    """
    found: dict[str, bool] = {}
    for text in headers:
        for name, lines in _MACRO.findall(text):
            body = lines.replace("\\\n", " ").strip().removesuffix(";")
            declares = ";" in body or "{" in body or not _INSTANTIATION.match(body)
            found[name] = found.get(name, True) and not declares
    return frozenset(name for name, instantiates in found.items() if instantiates)


def local_names(source: str, macros: Collection[str] = ()) -> tuple[str, ...] | None:
    """Return the names that a kernel source declares at namespace scope, sorted.

    Specialisations and instantiations of declarations in headers are left out: they differ in
    their arguments. None if the source has a form that CK's generators do not write, such as a
    macro of its own; it is compiled separately.

    Args:
        macros: `instantiating_macros` of the headers.
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
            name = "" if _is_call(head, macros) else _declared(head.strip())
            if name is None:
                return None
            names |= {name} - {""}
            head = ""
    # No semicolon follows a macro that ends with one.
    rest = head.strip() and not _is_call(head, macros)
    return None if rest or depth else tuple(sorted(names))


def _is_call(head: str, macros: Collection[str]) -> bool:
    """Return whether a declaration is only a call of one of the macros."""
    call = _MACRO_CALL.fullmatch(head.strip())
    return call is not None and call[1] in macros


def _directives_stay_local(text: str) -> bool:
    """Whether the directives of a source have the same effect among other sources."""
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
    """Return a declaration without its template parameters."""
    head = head.lstrip()
    depth = 0
    for position, character in enumerate(head if head.startswith("template") else ""):
        depth += (character == "<") - (character == ">")
        if character == ">" and not depth:
            return head[position + 1 :].lstrip()
    return head


@cache
def _declared(head: str) -> str | None:
    """Return the name that a declaration adds, "" if it adds none, None if that is unknown.

    Args:
        head: its text, up to the opening brace of a body.
    """
    if not head or _SPECIALISATION.match(head) or _INSTANTIATION.match(head):
        return ""
    head = _untemplated(head)
    if alias := _ALIAS.match(head) or _CONSTANT.fullmatch(head):
        return alias[1]
    # A declaration without a body names a definition in another place.
    definition = head.removesuffix("{").rstrip() if head.endswith("{") else ""
    found = _RECORD.fullmatch(definition) or _FUNCTION.fullmatch(definition)
    return found[1] if found else None


def only_defines_name(texts: Iterable[str]) -> bool:
    """Return whether headers only define `GetName`, so that a batch can replace it."""
    return all(_says_only(_DEFINITION, text) for text in texts)


def only_calls_name(text: str) -> bool:
    """Return whether a kernel source only calls `GetName`."""
    return _says_only(_CALL, text)


def _says_only(form: re.Pattern[str], text: str) -> bool:
    """Return whether all uses of `GetName` in a text have one form."""
    if _NAMED not in text:
        return True
    text = _COMMENT.sub(" ", text)
    return len(_NAME.findall(text)) == len(form.findall(text))


def batch_source(
    kernels: Sequence[str], includes: Sequence[str], names: Sequence[str], *, named: bool = False
) -> str:
    """Return the source of a batch of kernel instances, whose sources are in the parent directory.

    Args:
        includes: from `included`.
        names: from `local_names`.
        named: replace `GetName`; requires `only_defines_name` of all included headers, and
            `only_calls_name` of all kernel sources.
    """
    lines = "\n".join(f"#include {name}" for name in includes)
    source = _NAMED_SOURCE if named else _SOURCE
    return _BATCH.format(
        count=len(kernels),
        includes=_NAMED_INCLUDES.format(includes=lines) if named else lines,
        macros="\n".join(f"#define {name} QOLA_LOCAL({name})" for name in names),
        kernels="\n".join(
            _KERNEL.format(number=n, source=source.format(name=name))
            for n, name in enumerate(kernels)
        ),
    )
