"""Reads TOML with the line of each key, and writes TOML.

The standard parser keeps no positions: `parse_toml` also parses each statement of a valid text.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qola_base.errors import visible
from qola_base.json_types import JsonValue

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# The tokens that decide whether a newline ends a statement: strings (multi-line ones first; up to
# two quotes may precede their closing three), comments, brackets, newlines.
_TOKEN = re.compile(
    r"""\"{3}(?s:\\.|[^\\])*?\"{3,5} | '{3}(?s:.)*?'{3,5} | "(?:\\.|[^"\\\n])*" | '[^'\n]*'
    | \#[^\n]* | [][{}\n]""",
    re.VERBOSE,
)

MAX_PROSE = 4096
"""Maximal characters of a text in a comment: of a generator's output, say."""

_WIDTH = 100
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")

TomlTable = Mapping[str, JsonValue]
"""A table to write; `toml_value` refuses None."""

TomlTables = Mapping[str, TomlTable | Sequence[TomlTable]]
"""A document to write; a sequence of mappings is an array of tables."""

Path = tuple[str | int, ...]
"""Keys, and indices into arrays of tables: ``("modules", 0, "name")``."""


class TomlSyntaxError(ValueError):
    """A syntax error with its line and column in characters, from 1."""

    def __init__(self, line: int, column: int, source: str, reason: str) -> None:
        super().__init__(f"{line}:{column}: {reason}")
        self.line, self.column, self.source, self.reason = line, column, source, reason


@dataclass(frozen=True)
class Lines:
    """The 1-based line of every table header and key of one document."""

    by_path: dict[Path, int]

    def of(self, path: Path) -> int:
        """Return the line of `path`, of the nearest table that contains it, or 1."""
        while path:
            for known in (path, (*path, 0)):
                if known in self.by_path:
                    return self.by_path[known]
            path = path[:-1]
        return 1


def parse_toml(text: str) -> tuple[dict[str, Any], Lines]:
    """Parse TOML and locate its keys; raise TomlSyntaxError for invalid TOML."""
    text = text.replace("\r\n", "\n")
    try:
        document = tomllib.loads(text)
    # TOMLDecodeError, a date that no calendar has, or brackets too deep within each other
    except (ValueError, RecursionError) as error:
        raise _syntax_error(text, str(error)) from None
    return document, _locate(text)


def _syntax_error(text: str, message: str) -> TomlSyntaxError:
    """Split the parser's message, ``Reason (at line 3, column 5)``, into its parts."""
    lines = text.split("\n")
    reason, _, place = message.partition(" (at ")
    if match := re.match(r"line (\d+), column (\d+)", place):
        line, column = int(match[1]), int(match[2])
    elif place:  # "end of document": point behind the last thing written
        line = max((n for n, text in enumerate(lines, 1) if text.strip()), default=1)
        column = len(lines[line - 1]) + 1
    else:
        line, column = 1, 1
    return TomlSyntaxError(line, column, lines[line - 1], reason)


def _locate(text: str) -> Lines:
    """Map every key path of a valid document to its line, in time linear in its length."""
    by_path: dict[Path, int] = {}
    last_index: dict[Path, int] = {}  # of each array of tables met so far
    table: Path = ()
    for line, source in _statements(text):
        if not source.strip() or source.lstrip().startswith("#"):
            continue
        statement = tomllib.loads(source)
        if source.lstrip().startswith("["):
            table = _enter(statement, last_index)
            by_path.setdefault(table, line)
        else:
            for path in _key_paths(statement):
                by_path.setdefault(table + path, line)
    return Lines(by_path)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Split a valid document into statements. Newlines in strings and brackets end none."""
    depth, start, line = 0, 0, 1
    for token in _TOKEN.finditer(text + "\n"):
        if token[0] in ("[", "{"):
            depth += 1
        elif token[0] in ("]", "}"):
            depth -= 1
        elif token[0] == "\n" and depth == 0:
            source = text[start : token.start()]
            yield line, source
            line += source.count("\n") + 1
            start = token.end()


def _enter(header: dict[str, Any], last_index: dict[Path, int]) -> Path:
    """Resolve a header, parsed on its own, to the path of the table it opens."""
    path: Path = ()
    value: Any = header
    while isinstance(value, dict) and value:
        key, value = next(iter(value.items()))
        path += (key,)
        if isinstance(value, list):  # [[key]]: the next element
            last_index[path] = last_index.get(path, -1) + 1
        if path in last_index:  # [key.sub] below [[key]]: the element opened last
            path += (last_index[path],)
    return path


def _key_paths(value: Any, path: Path = ()) -> list[Path]:
    """List the paths of all keys of a key-value statement, inline tables included."""
    if not isinstance(value, dict):
        return [path]
    below = [sub for key, item in value.items() for sub in _key_paths(item, (*path, key))]
    return [path, *below] if path else below


def toml_value(value: object) -> str:
    """Return a string, number, boolean, list or mapping as TOML writes it on one line.

    Raises:
        ValueError: a string has half of a surrogate pair, which TOML has no way to write.
    """
    if isinstance(value, Mapping):
        items = (f"{_key(key)} = {toml_value(item)}" for key, item in value.items())
        return f"{{ {', '.join(items)} }}" if value else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str) and re.search("[\ud800-\udfff]", value):
        raise ValueError(f"half of a surrogate pair in {visible(value)}")
    # JSON and TOML agree on the rest. Also escapes delete, line separators and direction marks.
    return visible(json.dumps(value, ensure_ascii=False))


def toml_comment(text: str) -> str:
    """Return a text as a line of a comment."""
    return f"# {visible(text)}".rstrip()


def toml_prose(text: str, indent: str = "") -> list[str]:
    """Return a text as a comment of several lines, cut to `MAX_PROSE` characters."""
    # Wrapping makes blanks of newlines and tabs.
    shown = visible(text[:MAX_PROSE], keep="\n\t")
    width = _WIDTH - len("# ") - len(indent)
    lines = textwrap.wrap(shown, width, break_on_hyphens=False, break_long_words=False)
    return [toml_comment(indent + line) for line in lines]


@dataclass(frozen=True)
class TomlText:
    """A text with comments, and the values that it shall have."""

    text: str
    tables: TomlTables

    def is_exact(self) -> bool:
        """Return whether the text is TOML with these values, and with no others."""
        try:
            document, _ = parse_toml(self.text)
        except TomlSyntaxError:
            return False
        # As JSON, in which tuples are lists.
        return json.dumps(document, sort_keys=True) == json.dumps(self.tables, sort_keys=True)


def toml_line(key: str, value: object) -> str:
    """Return ``key = value``; a list longer than a line has each item on a line of its own."""
    line = f"{_key(key)} = {toml_value(value)}"
    if len(line) > _WIDTH and isinstance(value, (list, tuple)):
        items = "".join(f"  {toml_value(item)},\n" for item in value)
        return f"{_key(key)} = [\n{items}]"
    return line


def toml_document(tables: TomlTables) -> str:
    """Return a document of tables."""
    blocks = []
    for name, content in tables.items():
        single = isinstance(content, Mapping)
        header = f"[{_key(name)}]" if single else f"[[{_key(name)}]]"
        for table in (content,) if isinstance(content, Mapping) else content:
            lines = (toml_line(key, value) for key, value in table.items())
            blocks.append("\n".join([header, *lines]))
    return "\n\n".join(blocks) + "\n"


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else toml_value(key)
