"""The manifest's fields: one table of definitions that validation and documentation both read.

Everything a field may hold is data here, so that a JSON schema can be written from it too.
"""

from __future__ import annotations

from qola.manifest.field_types import Field, Kind, Table
from qola.manifest.kernels import KERNELS
from qola.manifest.order import ORDER
from qola.manifest.receipts import PROFILES
from qola.manifest.triton import TRITON
from qola.manifest.words import (
    ADDABLE,
    ARCH_ALIASES,
    BATCH,
    BELOW,
    BUILD_MODES,
    BWD_DTYPES,
    DIRECTIONS,
    DTYPE_ALIASES,
    FMHA_MODES,
    FWD_DTYPES,
    KNOWN_ARCHS,
    MAX_BATCH,
    NATIVE,
)

_RECEIPTS = tuple(PROFILES.items())


def _replacing() -> tuple[Field, ...]:
    """Fields of a module that replace those of its optCompilerConfig.json entry."""
    same = "AITER's entry"
    return tuple(
        Field(key, kind, doc, omitted, may_be_empty=True)
        for key, kind, doc, omitted in (
            ("srcs", Kind.EXPR_LIST, "source files", same),
            ("flags_extra_cc", Kind.EXPR_LIST, "host compiler flags", same),
            ("flags_extra_hip", Kind.EXPR_LIST, "HIP compiler flags", same),
            (
                "flags_extra_hip_per_source",
                Kind.EXPR_LISTS,
                "HIP compiler flags by source file",
                same,
            ),
            ("extra_ldflags", Kind.EXPR_OR_LIST, "linker flags", same),
            ("extra_include", Kind.EXPR_LIST, "include directories", same),
            ("verbose", Kind.EXPR_BOOL, "print compiler commands", same),
            ("is_python_module", Kind.EXPR_BOOL, "the result is a Python module", same),
            ("is_standalone", Kind.EXPR_BOOL, "the result is an executable", same),
            ("torch_exclude", Kind.EXPR_BOOL, "compile without PyTorch", same),
            ("hipify", Kind.EXPR_BOOL, "translate CUDA sources first", same),
            ("hip_clang_path", Kind.EXPR, "directory of the compiler hipcc uses", same),
            ("blob_gen_cmd", Kind.EXPR_OR_LIST, "generator commands; `{{}}` is their output", same),
            ("md_name", Kind.EXPR, "name of the library, without namespace", "the module's name"),
            ("third_party", Kind.EXPR_LIST, "further sources AITER fetches", same),
            ("is_experimental", Kind.EXPR_BOOL, "AITER calls it experimental", same),
        )
    )


def _adding() -> tuple[Field, ...]:
    """Fields of a module that add to its optCompilerConfig.json entry: plain text, no expressions.

    The keys are those of ROCm/QoLA's registry.
    """
    return tuple(
        Field(key, Kind.TEXT_LIST, doc, "none", may_be_empty=True)
        for key, doc in (
            ("add_srcs", "source files to add"),
            ("add_includes", "include directories to put first"),
            ("add_flags_extra_cc", "host compiler flags to add"),
            ("add_flags_extra_hip", "HIP compiler flags to add"),
            ("add_blob_gen_cmd", "generator commands to add; `{{}}` is their output"),
        )
    )


def _variant_fields(dtypes: tuple[str, ...], booleans: dict[str, str]) -> tuple[Field, ...]:
    """Fields the two variant tables share, around the booleans of one direction."""
    both = "both"
    return (
        Field(
            "dtype",
            Kind.TEXT_SET,
            "data type of the kernels",
            "all",
            allowed=dtypes,
            aliases=DTYPE_ALIASES,
        ),
        *(Field(key, Kind.BOOL_SET, doc, both) for key, doc in booleans.items()),
        Field(
            "hdim",
            Kind.HDIM_SET,
            "head dimension; n stands for [n, n]",
            "all",
            minimum=1,
            example="[64, [192, 128]]",
        ),
        Field(
            "mode",
            Kind.TEXT_SET,
            "batch: equal sequence lengths; group: variable ones",
            both,
            allowed=FMHA_MODES,
            aliases=(("varlen", "group"),),
        ),
        Field(
            "receipt",
            Kind.INTEGER,
            "CK's receipt for it",
            "the module's",
            minimum=0,
            names=_RECEIPTS,
            example='"te"',
        ),
    )


QOLA = Table(
    "qola",
    "What the manifest is for.",
    repeated=False,
    fields=(
        Field(
            "aiter_commit",
            Kind.TEXT,
            "AITER's commit (7 digits or more), tag or version the manifest was written for",
            "not checked",
            pattern=r"\S+",
            pattern_doc="a commit, tag or version without blanks",
            example='"d32b0cb62"',
        ),
        Field(
            "namespace",
            Kind.TEXT,
            "C++ namespace below `qola::`, and prefix of the libraries' names",
            "plain `qola::`, no prefix",
            pattern=r"[A-Za-z_][A-Za-z0-9_]*",
            pattern_doc="one C++ identifier (letters, digits and _, no leading digit, no ::)",
            repair=(r"[^A-Za-z0-9_]+", "_"),
            may_be_empty=True,
            example='"mine"',
        ),
        Field(
            "patches_dir",
            Kind.TEXT,
            "folder of patches for AITER, relative to the manifest",
            "none",
            example='"patches/aiter"',
        ),
        Field(
            "rocm_versions",
            Kind.TEXT_LIST,
            'ROCm versions it is meant for; "7" covers every 7.x, "7.2" every 7.2.x',
            "any",
            pattern=r"[0-9]+(\.[0-9]+){0,3}",
            pattern_doc='numbers and dots, such as "7" or "7.2"',
            repair=(r"^[v<>=~^\s]+|(\.[x*])+$", ""),
            example='["7.2"]',
        ),
    ),
)

BUILD = Table(
    "build",
    "How everything is built.",
    repeated=False,
    fields=(
        Field(
            "architectures",
            Kind.TEXT_LIST,
            f"GPU architectures by LLVM name, or `{NATIVE}` alone",
            "`$GPU_ARCHS`, else `native`",
            allowed=(*KNOWN_ARCHS, NATIVE),
            aliases=ARCH_ALIASES,
            example='["gfx950"]',
        ),
        Field(
            "mode",
            Kind.TEXT,
            "pybind: Python modules; cpp_itfs: C++ libraries",
            "`pybind`",
            allowed=BUILD_MODES,
            aliases=(("cpp", "cpp_itfs"), ("c++", "cpp_itfs"), ("pybind11", "pybind")),
        ),
        Field(
            "keep_unreachable",
            Kind.BOOL,
            "also build unreachable kernels, which CK's dispatch never calls",
            "they are left out",
        ),
        Field(
            "batch",
            Kind.INTEGER,
            "the most kernel instances in one compile",
            f"{BATCH}",
            minimum=1,
            maximum=MAX_BATCH,
            example="8",
        ),
    ),
)

_MODULE_OWN = (
    Field(
        "name",
        Kind.TEXT,
        "module of AITER's optCompilerConfig.json, such as `libmha_fwd`",
        pattern=r"[A-Za-z0-9_]+",
        pattern_doc="letters, digits and _",
        required=True,
        example='"libmha_fwd"',
    ),
    Field(
        "mode",
        Kind.TEXT,
        "as in `[build]`, for this module",
        "that of `[build]`",
        allowed=BUILD_MODES,
        aliases=BUILD.by_key["mode"].aliases,
        example='"cpp_itfs"',
    ),
    Field(
        "receipt",
        Kind.INTEGER,
        "CK's receipt: the set of kernels to start from",
        "AITER's entry (600)",
        minimum=0,
        names=_RECEIPTS,
        example='"te"',
    ),
    Field("group", Kind.TEXT, "a name to build several modules by", "none", example='"attention"'),
    Field(
        "drop_srcs",
        Kind.TEXT_LIST,
        "source files to leave out, by file name",
        "none",
        may_be_empty=True,
        example='["mha_fwd_split.cu"]',
    ),
    Field(
        "drop_directions",
        Kind.TEXT_LIST,
        "CK directions to leave out; assembly kernels stay, see `hsa_subdirs`",
        "none",
        allowed=DIRECTIONS,
        may_be_empty=True,
        example='["fwd_splitkv", "batch_prefill"]',
    ),
    Field(
        "add_directions",
        Kind.TEXT_LIST,
        "CK directions to add that AITER has no function for (docs/guide/paged.md)",
        "none",
        allowed=ADDABLE,
        may_be_empty=True,
        example='["pagedkv_prefill", "fwd_appendkv"]',
    ),
    Field(
        "hsa_subdirs",
        Kind.TEXT_LIST,
        "folders below AITER's `hsa/<arch>` whose code objects are embedded",
        "the module's own",
        pattern=BELOW,
        pattern_doc="a relative path without ..",
        may_be_empty=True,
        example='["fmha_v3_fwd"]',
    ),
)

MODULES = Table(
    "modules",
    "A library to build. At least one, but where there is a `[[triton]]` table.",
    repeated=True,
    fields=(*_MODULE_OWN, *_replacing(), *_adding()),
    required=True,
)

OVERRIDE_KEYS = frozenset(MODULES.by_key) - {f.key for f in _MODULE_OWN}
"""Keys of a module that replace (or add to) fields of its optCompilerConfig.json entry."""

FWD_VARIANTS = Table(
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

BWD_VARIANTS = Table(
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

PREBUILT = Table(
    "prebuilt",
    "Where prebuilt bundles are looked for before anything is built (docs/guide/prebuilt.md).",
    repeated=False,
    fields=(
        Field(
            "urls",
            Kind.TEXT_LIST,
            "URLs, or directories relative to the manifest; asked in this order",
            "`$QOLA_PREBUILT_URL`",
            example='["https://example.com/prebuilt"]',
        ),
        Field(
            "public_key",
            Kind.TEXT,
            "minisign's public key of their signer",
            "only digests are checked",
            pattern=r"RW[A-Za-z0-9+/]{54}",
            pattern_doc="56 characters that begin with RW, the second line of a .pub file",
            example='"RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"',
        ),
    ),
)

TABLES = (QOLA, BUILD, MODULES, FWD_VARIANTS, BWD_VARIANTS, KERNELS, TRITON, ORDER, PREBUILT)
"""All tables, in the order of a manifest."""

BY_NAME = {table.name: table for table in TABLES}


def flags(table: Table) -> dict[str, str]:
    """Return the dimensions of a table of variants that are true or false, by key; no bias."""
    return {
        field.key: field.key.removeprefix("has_")
        for field in table.fields
        if field.kind is Kind.BOOL_SET and field.key not in ("has_bias", "has_alibi")
    }
