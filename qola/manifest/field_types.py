"""How a field of the manifest and a table of fields are described."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_INTEGER = 2**31 - 1
"""What an int of C++ holds, which CK's generators write integers into."""


def plain(value: Any) -> Any:
    """Turn tuples into lists, as JSON has them."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value


def plain_fields(spec: DataclassInstance) -> dict[str, Any]:
    """Return what a table says, but not where it stands."""
    names = (f.name for f in fields(spec) if f.name not in ("index", "line"))
    return {name: plain(getattr(spec, name)) for name in names}


class Kind(Enum):
    """The sort of value a field holds; the value is the phrase messages and tables use."""

    TEXT = "a string"
    INTEGER = "an integer"
    TEXT_LIST = "a list of strings"
    TEXT_SET = "a string or a list of strings"
    BOOL = "true or false"
    BOOL_SET = "true, false or a list of both"
    HDIM_SET = "an integer, or a list of integers and [q, v] pairs"
    INTEGER_SET = "an integer or a list of integers"
    CHOICES = "a table of lists of strings, integers, true and false"
    TEXTS = "a table of strings"
    # Fields of optCompilerConfig.json: AITER writes even booleans as Python expressions.
    EXPR = "a string holding a Python expression"
    EXPR_BOOL = 'true, false or a string holding a Python expression such as "False"'
    EXPR_LIST = "a list of strings, each a Python expression"
    EXPR_OR_LIST = "a string or a list of strings, each a Python expression"
    EXPR_LISTS = "a table of lists of strings, each a Python expression"


@dataclass(frozen=True)
class Field:
    """One key of one table.

    Attributes:
        doc: what it means, one line for docs/reference/manifest.md.
        omitted: what leaving it out means, for the same table.
        allowed: the only values a string (or an element of a list) may have; () = any.
        pattern: a regular expression every string must match in full; "" = any non-empty one.
        repair: a regular expression and its replacement that mend usual slips, for the suggestion.
        required: it must be given.
        may_be_empty: an empty string or list means something.
        aliases: words people write instead of an allowed value, for the suggestion.
        names: words that stand for an integer.
        example: a value as TOML writes it, for the starter manifest; "" = the first one allowed.
    """

    key: str
    kind: Kind
    doc: str
    omitted: str = ""
    allowed: tuple[str, ...] = ()
    pattern: str = ""
    pattern_doc: str = ""
    repair: tuple[str, str] = ("", "")
    minimum: int | None = None
    maximum: int = MAX_INTEGER
    required: bool = False
    may_be_empty: bool = False
    aliases: tuple[tuple[str, str], ...] = ()
    names: tuple[tuple[str, int], ...] = ()
    example: str = ""


@dataclass(frozen=True)
class Table:
    """A table of the manifest, or an array of tables (`repeated`).

    Attributes:
        fields: its keys, in the order documentation has them.
        required: there must be one of it, or of another table that is required.
    """

    name: str
    doc: str
    repeated: bool
    fields: tuple[Field, ...]
    required: bool = False
    by_key: dict[str, Field] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_key", {f.key: f for f in self.fields})

    @property
    def header(self) -> str:
        """The table as it is written: ``[qola]`` or ``[[modules]]``."""
        return f"[[{self.name}]]" if self.repeated else f"[{self.name}]"
