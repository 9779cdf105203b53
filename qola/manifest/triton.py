"""``[[triton]]``: kernels in Triton that are compiled ahead of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qola.errors import Severity
from qola.manifest.field_types import Field, Kind, Table, plain_fields
from qola.manifest.words import ARCH_ALIASES, BELOW, DTYPE_ALIASES, KNOWN_ARCHS, MAX_HDIM

TRITON_DTYPES = ("fp16", "bf16", "fp32")
"""Data types of kernels in Triton, by its names."""

CAUSAL_MASKS = ("no", "top_left", "bottom_right")
"""What the constant CAUSAL of a kernel in Triton counts: 0, 1, 2."""

TRITON = Table(
    "triton",
    "Kernels in Triton to compile ahead of time (docs/guide/triton.md).",
    repeated=True,
    fields=(
        Field(
            "kernels",
            Kind.TEXT_LIST,
            "functions with `@triton.jit`: qola's own, or those of `file`",
            pattern=r"[A-Za-z_][A-Za-z0-9_]*",
            pattern_doc="names of functions",
            required=True,
            example='["attention_forward"]',
        ),
        Field(
            "file",
            Kind.TEXT,
            "Python file that has them, relative to the manifest, or in the tree of `commit`",
            "qola's own kernels",
            pattern=BELOW + r"\.py",
            pattern_doc="a relative path without .., that ends with .py",
            example='"kernels/mine.py"',
        ),
        Field(
            "deps",
            Kind.TEXT_LIST,
            "Python files that `file` imports, relative to the same directory",
            "none",
            pattern=BELOW + r"\.py",
            pattern_doc="relative paths without .., that end with .py",
            example='["kernels/parts.py"]',
        ),
        Field(
            "remote",
            Kind.TEXT,
            "git repository that has `file` and `deps`, where they are somebody else's",
            "they are beside the manifest",
            pattern=r"(/|(https?|ssh|file)://|[A-Za-z0-9_][A-Za-z0-9_.@-]*:(?!:|//)).+",
            pattern_doc="a URL of http, https, ssh or file, HOST:PATH, or a directory from / on",
            example='"https://github.com/ROCm/aotriton.git"',
        ),
        Field(
            "commit",
            Kind.TEXT,
            "commit of `remote`, fetched without its submodules",
            "as `remote`",
            pattern=r"[0-9a-f]{40}",
            pattern_doc="40 hexadecimal digits: a branch or a tag can come to mean another tree",
            example='"30ae96716b3e7a1bf0d7892ce3b8288244f8ebec"',
        ),
        Field(
            "signature",
            Kind.TEXTS,
            "types of parameters whose annotations say none, or a constant in place of one",
            "what annotations say",
            example='{ Out = "*{dtype}:16", num_seqlens = "i32", PADDED_HEAD = "=False" }',
        ),
        Field(
            "name",
            Kind.TEXT,
            "what names of targets and code objects begin with, before the function's",
            "the function's alone",
            pattern=r"[A-Za-z_][A-Za-z0-9_]*",
            pattern_doc="letters, digits and _, no leading digit",
            example='"long"',
        ),
        Field(
            "archs",
            Kind.TEXT_LIST,
            "archs to compile for",
            "those of everything else",
            allowed=KNOWN_ARCHS,
            aliases=ARCH_ALIASES,
            example='["gfx942", "gfx1100"]',
        ),
        Field(
            "dtypes",
            Kind.TEXT_SET,
            "data types: the choice `dtype`",
            "as `choices` says",
            allowed=TRITON_DTYPES,
            aliases=DTYPE_ALIASES,
            example='["fp16", "bf16"]',
        ),
        Field(
            "hdims",
            Kind.INTEGER_SET,
            "head dimensions: the choice `HDIM`",
            "as `choices` says",
            minimum=1,
            maximum=MAX_HDIM,
            example="[64, 128]",
        ),
        Field(
            "causal",
            Kind.TEXT_SET,
            "masks: the choice `CAUSAL`, 0, 1 or 2",
            "as `choices` says",
            allowed=CAUSAL_MASKS,
            example='["no", "top_left"]',
        ),
        Field(
            "choices",
            Kind.CHOICES,
            "values of constants, of `num_warps` and other options, and of what types name",
            "none",
            example="{ BLOCK_M = [64, 128], num_warps = [4] }",
        ),
        Field(
            "timeout",
            Kind.INTEGER,
            "seconds after which a compile is an error, 0 for none",
            "0",
            minimum=0,
            example="480",
        ),
    ),
    required=True,
)

#: Keys that stand for a choice.
_CHOSEN_BY = {"dtypes": "dtype", "hdims": "HDIM", "causal": "CAUSAL"}


@dataclass(frozen=True)
class TritonSpec:
    """One ``[[triton]]`` table.

    Attributes:
        file: "" for qola's own kernels.
        commit: of `remote`, whose tree has the files; "" for those beside the manifest.
        archs: () for those of everything else.
        choices: those of dtypes, hdims and causal among them, by name.
    """

    kernels: tuple[str, ...]
    file: str
    deps: tuple[str, ...]
    remote: str
    commit: str
    signature: tuple[tuple[str, str], ...]
    name: str
    archs: tuple[str, ...]
    choices: tuple[tuple[str, tuple[str, ...]], ...]
    timeout: int
    index: int
    line: int = field(compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the canonical form: JSON values, keys in the order of the fields."""
        tables = {"choices": {k: list(v) for k, v in self.choices}}
        told = {**plain_fields(self), **tables, "signature": dict(self.signature)}
        # Of the commit: where it was fetched from decides nothing, and may have a password in it.
        return {key: value for key, value in told.items() if key != "remote"}

    @property
    def files(self) -> tuple[str, ...]:
        """Its file and those that are imported, as they are called in messages; none for qola's."""
        paths = (self.file, *self.deps) if self.file else ()
        return tuple(f"{self.commit}/{path}" if self.commit else path for path in paths)


def triton_name(name: str, kernel: str) -> str:
    """Return the name of a kernel's target."""
    return f"{name}_{kernel}" if name else kernel


Wrong = tuple[int, str, str, str, str, Severity]
"""A table, its key, what is found, what is expected, how to mend it, and error or warning."""


def wrong_in(tables: Sequence[Mapping[str, Any]]) -> Iterator[Wrong]:
    """Yield what is said twice, or to no end, in tables whose values are right by themselves."""
    for n, table in enumerate(tables):
        written = dict(table.get("choices", ()))
        for key, name in _CHOSEN_BY.items():
            if key in table and name in written:
                found, expected = f"{key}, and {name} in choices", "one of the two"
                yield n, key, found, expected, f"remove {name} of choices", "error"
        for one, other in (("remote", "commit"), ("commit", "remote"), ("commit", "file")):
            if one in table and other not in table:
                found, expected = f"{one} without {other}", "remote, commit and file"
                yield n, one, found, expected, f"remove {one}, or add {other}", "error"
        if "deps" in table and "file" not in table:
            found, expected = "deps without file", "a file that imports them"
            yield n, "deps", found, expected, "remove deps", "warning"


def read_triton(index: int, table: Mapping[str, Any], line: int) -> TritonSpec:
    """Return what a table says, whose values are known to be right."""
    sugar = {"dtype": table.get("dtypes", ()), "HDIM": tuple(map(str, table.get("hdims", ())))}
    sugar["CAUSAL"] = tuple(str(CAUSAL_MASKS.index(mask)) for mask in table.get("causal", ()))
    choices = {**dict(table.get("choices", ())), **{k: v for k, v in sugar.items() if v}}
    return TritonSpec(
        kernels=table["kernels"],
        file=table.get("file", ""),
        deps=table.get("deps", ()),
        remote=table.get("remote", ""),
        commit=table.get("commit", ""),
        signature=table.get("signature", ()),
        name=table.get("name", ""),
        archs=tuple(sorted(set(table.get("archs", ())))),
        choices=tuple(sorted(choices.items())),
        timeout=table.get("timeout", 0),
        index=index,
        line=line,
    )
