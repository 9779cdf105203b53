"""Defines each table and key of a manifest once: type, allowed values, documentation, example.

Reader, JSON schema, starter manifest and docs/reference/manifest.md derive from these definitions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from qola.common.version import docs_url
from qola.manifest.constants import (
    ADDABLE,
    AITER,
    BATCH,
    BUILD_MODES,
    BWD_DTYPES,
    CAUSAL_MASKS,
    DIRECTIONS,
    FMHA_MODES,
    FWD_DTYPES,
    KERNEL_KINDS,
    KNOWN_ARCHS,
    MAX_BATCH,
    MAX_HDIM,
    MAX_INTEGER,
    NATIVE,
    PROFILES,
    TRITON_DTYPES,
)


class ItemType(Enum):
    """The type of a single value or of a list's items."""

    TEXT = "string"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    HDIM = "head dimension, or a pair of them"


class Shape(Enum):
    """How the values of a field are nested: a set is one value or a list, in any order."""

    ONE = "one"
    LIST = "list"
    SET = "set"
    ONE_OR_LIST = "one or list"


class Kind(Enum):
    """The type of a field's value.

    Attributes:
        phrase: names the type in messages and documentation.
        shape: how values are nested; for a table, how the value of each of its keys is.
        items: types that a single value may have.
    """

    phrase: str
    shape: Shape
    items: tuple[ItemType, ...]
    is_table: bool

    def __init__(
        self, phrase: str, shape: Shape, items: tuple[ItemType, ...], is_table: bool = False
    ) -> None:
        self.phrase, self.shape, self.items, self.is_table = phrase, shape, items, is_table

    TEXT = "a string", Shape.ONE, (ItemType.TEXT,)
    INTEGER = "an integer", Shape.ONE, (ItemType.INTEGER,)
    TEXT_LIST = "a list of strings", Shape.LIST, (ItemType.TEXT,)
    TEXT_SET = "a string or a list of strings", Shape.SET, (ItemType.TEXT,)
    BOOL = "true or false", Shape.ONE, (ItemType.BOOLEAN,)
    BOOL_SET = "true, false or a list of both", Shape.SET, (ItemType.BOOLEAN,)
    HDIM_SET = "an integer, or a list of integers and [q, v] pairs", Shape.SET, (ItemType.HDIM,)
    INTEGER_SET = "an integer or a list of integers", Shape.SET, (ItemType.INTEGER,)
    CHOICES = (
        "a table of lists of strings, integers, true and false",
        Shape.ONE_OR_LIST,
        (ItemType.TEXT, ItemType.INTEGER, ItemType.BOOLEAN),
        True,
    )
    TEXTS = "a table of strings", Shape.ONE, (ItemType.TEXT,), True
    ARGUMENTS = (
        "a table of strings, integers, true and false, or of lists of one of these",
        Shape.ONE_OR_LIST,
        (ItemType.TEXT, ItemType.INTEGER, ItemType.BOOLEAN),
        True,
    )
    # Keys of optCompilerConfig.json: AITER writes even booleans as Python expressions.
    EXPR = "a string holding a Python expression", Shape.ONE, (ItemType.TEXT,)
    EXPR_BOOL = (
        'true, false or a string holding a Python expression such as "False"',
        Shape.ONE,
        (ItemType.BOOLEAN, ItemType.TEXT),
    )
    EXPR_LIST = "a list of strings, each a Python expression", Shape.LIST, (ItemType.TEXT,)
    EXPR_OR_LIST = (
        "a string or a list of strings, each a Python expression",
        Shape.ONE_OR_LIST,
        (ItemType.TEXT,),
    )
    EXPR_LISTS = (
        "a table of lists of strings, each a Python expression",
        Shape.LIST,
        (ItemType.TEXT,),
        True,
    )


@dataclass(frozen=True)
class Field:
    """One key of one table.

    Attributes:
        doc, omitted: meaning, and value or effect when left out, for docs/reference/manifest.md.
        allowed: the only values that a string may have; () allows any.
        pattern: a regular expression that strings must match in full; "" allows any non-empty one.
        may_be_empty: an empty string or list has a meaning.
        names: names that may stand for an integer.
        example: a value for the starter manifest; None takes the first allowed one.
    """

    key: str
    kind: Kind
    doc: str
    omitted: str = ""
    allowed: tuple[str, ...] = ()
    pattern: str = ""
    pattern_doc: str = ""
    minimum: int = 0
    maximum: int = MAX_INTEGER
    required: bool = False
    may_be_empty: bool = False
    names: tuple[tuple[str, int], ...] = ()
    example: Any = None


@dataclass(frozen=True)
class TableSpec:
    """A table of the manifest, or (`repeated`) an array of tables.

    Attributes:
        required: the manifest must have this table or another required one.
    """

    name: str
    doc: str
    repeated: bool
    fields: tuple[Field, ...] = field(hash=False)
    required: bool = False
    by_key: dict[str, Field] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_key", {f.key: f for f in self.fields})

    @property
    def header(self) -> str:
        """The header as TOML writes it: ``[qola]`` or ``[[modules]]``."""
        return f"[[{self.name}]]" if self.repeated else f"[{self.name}]"


_RECEIPTS = tuple(PROFILES.items())
_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
# A relative path that stays below its root: no leading slash, no ".." part.
_BELOW = r"(?!/)(?!(.*/)?\.\.(/|$)).+"


def _variant_fields(dtypes: tuple[str, ...], booleans: dict[str, str]) -> tuple[Field, ...]:
    return (
        Field("dtype", Kind.TEXT_SET, "data type of the kernels", "all", allowed=dtypes),
        *(Field(key, Kind.BOOL_SET, doc, "both", example=True) for key, doc in booleans.items()),
        Field(
            "hdim",
            Kind.HDIM_SET,
            "head dimension; n stands for [n, n]",
            "all",
            minimum=1,
            maximum=MAX_HDIM,
            example=[64, [192, 128]],
        ),
        Field(
            "mode",
            Kind.TEXT_SET,
            "batch: equal sequence lengths; group: variable ones",
            "both",
            allowed=FMHA_MODES,
        ),
        Field(
            "receipt",
            Kind.INTEGER,
            "CK's receipt for it",
            "the module's",
            names=_RECEIPTS,
            example="te",
        ),
    )


QOLA = TableSpec(
    "qola",
    "AITER, ROCm and namespace of the manifest.",
    repeated=False,
    fields=(
        Field(
            "aiter_commit",
            Kind.TEXT,
            "AITER's commit (7 digits or more), tag or version the manifest was written for",
            "not checked",
            pattern=r"\S+",
            pattern_doc="a commit, tag or version without blanks",
            example="d32b0cb62",
        ),
        Field(
            "namespace",
            Kind.TEXT,
            "C++ namespace below `qola::`, and prefix of the libraries' names",
            "plain `qola::`, no prefix",
            pattern=_IDENTIFIER,
            pattern_doc="one C++ identifier (letters, digits and _, no leading digit, no ::)",
            may_be_empty=True,
            example="mine",
        ),
        Field(
            "patches_dir",
            Kind.TEXT,
            "folder of patches for AITER, relative to the manifest, or `qola:patches`, qola's own",
            "none",
            example="patches/aiter",
        ),
        Field(
            "rocm_versions",
            Kind.TEXT_LIST,
            'ROCm versions it is meant for; "7" covers every 7.x, "7.2" every 7.2.x',
            "any",
            pattern=r"[0-9]+(\.[0-9]+){0,3}",
            pattern_doc='numbers and dots, such as "7" or "7.2"',
            example=["7.2"],
        ),
    ),
)

BUILD = TableSpec(
    "build",
    "How everything is built.",
    repeated=False,
    fields=(
        Field(
            "architectures",
            Kind.TEXT_LIST,
            f"GPU architectures by LLVM name, or only `{NATIVE}`",
            f"`$GPU_ARCHS`, else `{NATIVE}`",
            allowed=(*KNOWN_ARCHS, NATIVE),
            example=["gfx950"],
        ),
        Field(
            "mode",
            Kind.TEXT,
            "pybind: Python modules; cpp_itfs: C++ libraries; aiter: the modules that AITER's own "
            "Python imports",
            "`pybind`",
            allowed=(*BUILD_MODES, AITER),
        ),
        Field(
            "keep_unreachable",
            Kind.BOOL,
            "also build unreachable kernels, which CK's dispatch never calls",
            "they are not built",
            example=True,
        ),
        Field(
            "refuse_proven_faults",
            Kind.BOOL,
            f"refuse to plan kernels with a proven fault ({docs_url('guide/health.md')})",
            "`qola plan` warns of them",
            example=True,
        ),
        Field(
            "batch",
            Kind.INTEGER,
            "maximal number of kernel instances in one compile",
            f"{BATCH}",
            minimum=1,
            maximum=MAX_BATCH,
            example=8,
        ),
        Field(
            "max_bytes",
            Kind.INTEGER,
            "size of a library above which the build fails, for limits of package indexes",
            "no limit",
            minimum=1,
            maximum=2**40,
            example=60_000_000,
        ),
    ),
)

_MODULE_KEYS = (
    Field(
        "name",
        Kind.TEXT,
        "module of AITER's optCompilerConfig.json, such as `libmha_fwd`",
        pattern=r"[A-Za-z0-9_]+",
        pattern_doc="letters, digits and _",
        required=True,
        example="libmha_fwd",
    ),
    Field(
        "mode",
        Kind.TEXT,
        "as in `[build]`, for this module",
        "that of `[build]`",
        allowed=BUILD_MODES,
        example="cpp_itfs",
    ),
    Field(
        "receipt",
        Kind.INTEGER,
        "CK's receipt: the set of kernels to start from",
        "AITER's entry (600)",
        names=_RECEIPTS,
        example="te",
    ),
    Field("group", Kind.TEXT, "a name to build several modules by", "none", example="attention"),
    Field(
        "names",
        Kind.TEXT_LIST,
        "in mode aiter, further names by which AITER's Python imports the module: its variants",
        "none",
        pattern=r"[A-Za-z_][A-Za-z0-9_]*",
        pattern_doc="names of Python modules",
        may_be_empty=True,
        example=["mha_fwd_bf16_nbias_nmask_nlse_ndropout"],
    ),
    Field(
        "drop_srcs",
        Kind.TEXT_LIST,
        "source files to leave out, by file name",
        "none",
        may_be_empty=True,
        example=["mha_fwd_split.cu"],
    ),
    Field(
        "drop_directions",
        Kind.TEXT_LIST,
        "CK directions to leave out; assembly kernels stay, see `hsa_subdirs`",
        "none",
        allowed=DIRECTIONS,
        may_be_empty=True,
        example=["fwd_splitkv", "batch_prefill"],
    ),
    Field(
        "add_directions",
        Kind.TEXT_LIST,
        f"CK directions to add that AITER has no function for ({docs_url('guide/paged.md')})",
        "none",
        allowed=ADDABLE,
        may_be_empty=True,
        example=["pagedkv_prefill", "fwd_appendkv"],
    ),
    Field(
        "hsa_subdirs",
        Kind.TEXT_LIST,
        "folders below AITER's `hsa/<arch>` whose code objects are embedded",
        "the module's own",
        pattern=_BELOW,
        pattern_doc="a relative path without ..",
        may_be_empty=True,
        example=["fmha_v3_fwd"],
    ),
)

# Keys that replace those of the module's optCompilerConfig.json entry.
_REPLACING = (
    ("srcs", Kind.EXPR_LIST, "source files"),
    ("flags_extra_cc", Kind.EXPR_LIST, "host compiler flags"),
    ("flags_extra_hip", Kind.EXPR_LIST, "HIP compiler flags"),
    ("flags_extra_hip_per_source", Kind.EXPR_LISTS, "HIP compiler flags by source file"),
    ("extra_ldflags", Kind.EXPR_OR_LIST, "linker flags"),
    ("extra_include", Kind.EXPR_LIST, "include directories"),
    ("verbose", Kind.EXPR_BOOL, "print compiler commands"),
    ("is_python_module", Kind.EXPR_BOOL, "the result is a Python module"),
    ("is_standalone", Kind.EXPR_BOOL, "the result is an executable"),
    ("torch_exclude", Kind.EXPR_BOOL, "compile without PyTorch"),
    ("hipify", Kind.EXPR_BOOL, "translate CUDA sources first"),
    ("hip_clang_path", Kind.EXPR, "directory of the compiler hipcc uses"),
    ("blob_gen_cmd", Kind.EXPR_OR_LIST, "generator commands; `{{}}` is their output"),
    ("md_name", Kind.EXPR, "name of the library, without namespace"),
    ("third_party", Kind.EXPR_LIST, "further sources AITER fetches"),
    ("is_experimental", Kind.EXPR_BOOL, "AITER calls it experimental"),
)

REFUSED_KEYS = (
    "extra_ldflags",
    "is_python_module",
    "is_standalone",
    "torch_exclude",
    "hipify",
    "hip_clang_path",
    "md_name",
    "third_party",
    "add_srcs",
    "add_blob_gen_cmd",
)
"""Keys of ROCm/QoLA that a manifest may have, and for which planning its module is an error."""

# Keys of ROCm/QoLA's registry that add plain text to the entry.
_ADDING = (
    ("add_srcs", "source files to add"),
    ("add_includes", "include directories to put first"),
    ("add_flags_extra_cc", "host compiler flags to add"),
    ("add_flags_extra_hip", "HIP compiler flags to add"),
    ("add_blob_gen_cmd", "generator commands to add; `{{}}` is their output"),
)


def _override(key: str, kind: Kind, doc: str, omitted: str) -> Field:
    """Return the field of a key that changes AITER's entry."""
    refused = "; read for ROCm/QoLA, a plan refuses it" if key in REFUSED_KEYS else ""
    return Field(key, kind, doc + refused, omitted, may_be_empty=True)


MODULES = TableSpec(
    "modules",
    "A library to build. At least one, unless there is a `[[triton]]` or `[[functions]]` table.",
    repeated=True,
    fields=(
        *_MODULE_KEYS,
        *(_override(key, kind, doc, "AITER's entry") for key, kind, doc in _REPLACING),
        *(_override(key, Kind.TEXT_LIST, doc, "none") for key, doc in _ADDING),
    ),
    required=True,
)

OVERRIDE_KEYS = frozenset(MODULES.by_key) - {f.key for f in _MODULE_KEYS}
"""Keys of a module that replace (or add to) fields of its optCompilerConfig.json entry."""

FWD_VARIANTS = TableSpec(
    "mha_fwd_variants",
    "Kernels to keep in `libmha_fwd`; without any such table, all the receipt gives.",
    repeated=True,
    fields=_variant_fields(
        FWD_DTYPES,
        {
            "has_bias": "elementwise bias; wins over ALiBi",
            "has_alibi": "ALiBi bias",
            "has_mask": "a mask: causal or sliding window",
            "has_lse": "stores the log-sum-exp (training needs it)",
            "has_dropout": "dropout",
            "has_skip": "skips sequences below a length (CK's skip_min_seqlen_q)",
            "has_sink": "attention sink",
        },
    ),
)

BWD_VARIANTS = TableSpec(
    "mha_bwd_variants",
    "Kernels to keep in `libmha_bwd`; without any such table, all the receipt gives.",
    repeated=True,
    fields=_variant_fields(
        BWD_DTYPES,
        {
            "has_bias": "elementwise bias; wins over ALiBi",
            "has_alibi": "ALiBi bias",
            "has_dbias": "gradient of the elementwise bias",
            "has_mask": "a mask: causal or sliding window",
            "has_dropout": "dropout",
            "deterministic": "same result on every run, without atomics",
        },
    ),
)

FILTERED = {
    FWD_VARIANTS: (
        "libmha_fwd",
        "module_mha_fwd",
        "module_mha_varlen_fwd",
        "module_mha_batch_prefill",
    ),
    BWD_VARIANTS: ("libmha_bwd", "module_mha_bwd", "module_mha_varlen_bwd"),
}
"""The modules that each variant table filters."""

KERNELS = TableSpec(
    "kernels",
    "Kernels of Composable Kernel by name, including ones that it does not enumerate "
    f"({docs_url('guide/python.md')}). "
    "The library contains only these, and those that variants keep.",
    repeated=True,
    fields=(
        Field(
            "names",
            Kind.TEXT_LIST,
            "names of `KernelConfig`",
            pattern=r"[a-z_]+(\.[\w~]+){2}\.d\d+x\d+\.[\w~]+\.b[\w-]+(\.[\w~-]+)*",
            pattern_doc="names that KernelConfig.name gives",
            required=True,
            example=[
                "fwd.bf16.batch.d64x64.gfx950.b64x64x32x64x32x64_r4x1x1_r4x1x1_w16x16x32"
                "_w16x16x32.p-qr_async.v-row.nmask.bias-no.lse.ndropout.nsquant.nlogits.nskip"
                ".ntrload.spad.nskpad.dpad.dvpad"
            ],
        ),
    ),
)

FUNCTIONS = TableSpec(
    "functions",
    "Functions of AITER's second JIT, `csrc/cpp_itfs`, such as paged attention and sampling "
    f"({docs_url('guide/serving.md')}). In mode aiter only.",
    repeated=True,
    fields=(
        Field(
            "name",
            Kind.TEXT,
            "the function: the Python file in `csrc/cpp_itfs` with its `compile`, without .py",
            pattern=_IDENTIFIER,
            pattern_doc="letters, digits and _, no leading digit",
            required=True,
            example="pa_ragged",
        ),
        Field(
            "arguments",
            Kind.ARGUMENTS,
            "arguments of that `compile` by name; with lists, a library for each combination",
            "those that `compile` has by default",
            may_be_empty=True,
            example={"gqa_ratio": 8, "npar_loops": [1, 2], "dtype": "__hip_bfloat16"},
        ),
    ),
    required=True,
)

TRITON = TableSpec(
    "triton",
    f"Triton kernels to compile ahead of time ({docs_url('guide/triton.md')}).",
    repeated=True,
    fields=(
        Field(
            "kernels",
            Kind.TEXT_LIST,
            "functions with `@triton.jit`: qola's own, or those of `file`",
            pattern=_IDENTIFIER,
            pattern_doc="names of functions",
            required=True,
            example=["attention_forward"],
        ),
        Field(
            "file",
            Kind.TEXT,
            "Python file with the functions, relative to the manifest, or in the tree of `commit`",
            "qola's own kernels",
            pattern=_BELOW + r"\.py",
            pattern_doc="a relative path without .., that ends with .py",
            example="kernels/mine.py",
        ),
        Field(
            "deps",
            Kind.TEXT_LIST,
            "Python files that `file` imports, relative to the same directory",
            "none",
            pattern=_BELOW + r"\.py",
            pattern_doc="relative paths without .., that end with .py",
            example=["kernels/parts.py"],
        ),
        Field(
            "remote",
            Kind.TEXT,
            "git repository with `file` and `deps`, if they belong to another project",
            "they are next to the manifest",
            pattern=r"(/|(https?|ssh|file)://|[A-Za-z0-9_][A-Za-z0-9_.@-]*:(?!:|//)).+",
            pattern_doc="a URL of http, https, ssh or file, HOST:PATH, or a directory from / on",
            example="https://github.com/ROCm/aotriton.git",
        ),
        Field(
            "commit",
            Kind.TEXT,
            "commit of `remote`, fetched without its submodules",
            "as `remote`",
            pattern=r"[0-9a-f]{40}",
            pattern_doc="40 hexadecimal digits: a branch or a tag can come to mean another tree",
            example="30ae96716b3e7a1bf0d7892ce3b8288244f8ebec",
        ),
        Field(
            "signature",
            Kind.TEXTS,
            "types of parameters without annotation, or a constant instead of a parameter",
            "the types in annotations",
            example={"Out": "*{dtype}:16", "num_seqlens": "i32", "PADDED_HEAD": "=False"},
        ),
        Field(
            "name",
            Kind.TEXT,
            "prefix of the names of targets and code objects",
            "only the function's name",
            pattern=_IDENTIFIER,
            pattern_doc="letters, digits and _, no leading digit",
            example="long",
        ),
        Field(
            "archs",
            Kind.TEXT_LIST,
            "archs to compile for",
            "those of the manifest",
            allowed=KNOWN_ARCHS,
            example=["gfx942", "gfx1100"],
        ),
        Field(
            "dtypes",
            Kind.TEXT_SET,
            "data types: the choice `dtype`",
            "as in `choices`",
            allowed=TRITON_DTYPES,
            example=["fp16", "bf16"],
        ),
        Field(
            "hdims",
            Kind.INTEGER_SET,
            "head dimensions: the choice `HDIM`",
            "as in `choices`",
            minimum=1,
            maximum=MAX_HDIM,
            example=[64, 128],
        ),
        Field(
            "causal",
            Kind.TEXT_SET,
            "masks: the choice `CAUSAL`, 0, 1 or 2",
            "as in `choices`",
            allowed=CAUSAL_MASKS,
            example=["no", "top_left"],
        ),
        Field(
            "choices",
            Kind.CHOICES,
            "values of constants, of `num_warps` and other options, and of names in types",
            "none",
            example={"BLOCK_M": [64, 128], "num_warps": [4]},
        ),
        Field(
            "timeout",
            Kind.INTEGER,
            "seconds after which a compile is an error, 0 for none",
            "0",
            example=480,
        ),
    ),
    required=True,
)

ORDER = TableSpec(
    "order",
    "Preferred kernels if several can serve a problem, for programs that call qola_order.hpp "
    f"({docs_url('guide/triton.md')}). Kinds that are left out serve nothing.",
    repeated=False,
    fields=tuple(
        Field(
            direction,
            Kind.TEXT_LIST,
            f"kinds of kernels for {direction}, the preferred one first",
            ", ".join(KERNEL_KINDS),
            allowed=KERNEL_KINDS,
            example=["triton", "assembly", "composable_kernel"],
        )
        for direction in ("forward", "backward")
    ),
)

PREBUILT = TableSpec(
    "prebuilt",
    f"Sources of prebuilt bundles, tried before a build ({docs_url('guide/prebuilt.md')}).",
    repeated=False,
    fields=(
        Field(
            "urls",
            Kind.TEXT_LIST,
            "URLs, or directories relative to the manifest, in the order to try",
            "`$QOLA_PREBUILT_URL`",
            example=["https://example.com/prebuilt"],
        ),
        Field(
            "public_key",
            Kind.TEXT,
            "minisign's public key of their signer",
            "only digests are checked",
            pattern=r"RW[A-Za-z0-9+/]{54}",
            pattern_doc="56 characters that begin with RW, the second line of a .pub file",
            example="RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3",
        ),
    ),
)

TABLES = (
    *(QOLA, BUILD, MODULES, FUNCTIONS, FWD_VARIANTS, BWD_VARIANTS, KERNELS, TRITON),
    *(ORDER, PREBUILT),
)
"""All tables, in the order of a manifest."""

BY_NAME = {table.name: table for table in TABLES}


def flags(table: TableSpec) -> dict[str, str]:
    """Return a variant table's dimensions with boolean values by key, except those of the bias."""
    return {
        field.key: field.key.removeprefix("has_")
        for field in table.fields
        if field.kind is Kind.BOOL_SET and field.key not in ("has_bias", "has_alibi")
    }
