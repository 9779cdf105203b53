"""Parse the mangled name of a CK kernel into the fields of plan.json.

A kernel instance is an instantiation of CK's templates, and its symbol contains the template
arguments. They identify the planned kernel instance independently of the generated source. The
patterns match CK as in AITER's 0.1.7 wheels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

#: Identifies a kernel instance: role and fields, sorted by name.
Identity = tuple[tuple[str, Any], ...]

#: CK's enumeration of bias kinds, by its value in a symbol.
_BIAS = {"0": "no", "1": "bias", "2": "alibi"}
_DTYPES = {"DF16b": "bf16", "DF16_": "fp16", "f": "fp32"}
_DTYPE = r"(?P<dtype>DF16b|DF16_|f)"
_ARCH = re.compile(r"kentryINS_\d+(gfx\w+?)_tE")
# Batch prefill and the helper kernels of AITER's assembly path are for any arch.
_NO_ARCH = re.compile(r"kentryILi\d+E")


def _bits(*names: str) -> str:
    return "".join(rf"Lb(?P<{name}>[01])E" for name in names)


def _numbers(*names: str) -> str:
    return "".join(rf"Li(?P<{name}>\d+)E" for name in names)


_MASK = r"NS_\d+SimplifiedGenericAttentionMaskI" + _bits("mask") + "EE"
_BIAS_KIND = r"LNS_\d+BlockAttentionBiasEnumE(?P<bias>\d)E"

_FWD = re.compile(
    rf"BlockFmhaPipelineProblemI{_DTYPE}"
    r".*?TileFmhaShapeINS_8sequenceIJ(?P<tile>(?:Li\d+E)+)E.*?"
    + _bits("group")
    + "NS_17ComposedAttention.*?"
    + _MASK
    + _bits("trload")
    + r"NS_\d+TileFmhaTraitsI"
    + _bits("spad", "skpad", "dpad", "dvpad", "logits")
    + _BIAS_KIND
    + "Lb0E"  # gradient of the bias
    + _bits("lse", "dropout", "squant")
    + r"Lin?\d+E"  # blocks per compute unit
    + _bits("skip")
)

_DQ_DK_DV = re.compile(
    rf"BlockFmhaBwdPipelineProblemI{_DTYPE}"
    r".*?TileFmhaBwdShapeINS_8sequenceIJ(?P<tile>(?:Li\d+E)+)E.*?"
    + _numbers("max_seqlen_q")
    + "EE"
    + _bits("group", "deterministic")
    + _MASK
    + r"NS_\d+BlockDropoutBwdI"
    + _bits("dropout", "wg32", "randval")
    + "EE"
    + _bits("trload")
    + r"NS_\d+TileFmhaBwdTraitsI"
    + _numbers("dpad", "dvpad")
    + _BIAS_KIND
    + _bits("dbias")
)

_DOT_DO_O = re.compile(
    rf"BlockFmhaBwdOGradDotOPipelineProblemI{_DTYPE}(?:DF16b|DF16_|f)f"
    + _numbers("bm0", "hdim_v")
    + _bits("group")
    + r"NS_\d+TileFmhaBwdOGradDotOTraitsI"
    + _bits("spad", "dvpad")
)

_CONVERT_DQ = re.compile(
    rf"BlockFmhaBwdConvertQGradPipelineProblemIf{_DTYPE}"
    + _numbers("block", "bm0", "bn0", "hdim_q")
    + _bits("group", "deterministic")
    + r"NS_\d+TileFmhaBwdConvertQGradTraitsI"
    + _bits("spad", "dpad")
)

_SPLITKV = re.compile(
    rf"BlockFmhaFwdSplitKVPipelineProblemI{_DTYPE}"
    r".*?TileFmhaShapeINS_8sequenceIJ(?P<tile>(?:Li\d+E)+)E.*?"
    + _bits("group")
    + "NS_17ComposedAttention.*?"
    + _MASK
    + r"NS_\d+TileFmhaFwdSplitKVTraitsI"
    + _bits("spad", "skpad", "dpad", "dvpad", "logits")
    + _BIAS_KIND
    + "Lb0E"  # gradient of the bias
    + "Lb[01]E"  # log-sum-exp: stored whenever there are splits
    + _bits("squant", "pagedkv")
)

_SPLITKV_COMBINE = re.compile(
    rf"BlockFmhaSplitKVCombinePipelineProblemIff{_DTYPE}"
    + _numbers("hdim_v")
    + _bits("group")
    + _numbers("bn1")
    + r"NS_\d+TileFmhaFwdSplitKVCombineTraitsI"
    + _bits("spad", "dvpad", "lse", "squant")
)

_PAGEDKV = re.compile(
    rf"BlockFmhaFwdPagedKVPipelineProblemI{_DTYPE}"
    r".*?TileFmhaShapeINS_8sequenceIJ(?P<tile>(?:Li\d+E)+)E.*?"
    + _bits("group")
    + "NS_17ComposedAttention.*?"
    + _MASK
    + r"NS_\d+TileFmhaFwdPagedKVTraitsI"
    + _bits("spad", "skpad", "dpad", "dvpad", "logits")
    + _BIAS_KIND
    + "Lb0E"  # gradient of the bias
    + _bits("lse", "pagedkv", "squant")
    + r"Lin?\d+E"  # blocks per compute unit
    + _bits("skip")
)

_APPENDKV = re.compile(
    rf"BlockFmhaFwdAppendKVPipelineProblemI{_DTYPE}(?:DF16b|DF16_|f){{2}}"
    + _numbers("bs", "bsk", "bd", "bdv")
    + "Lb1E"  # V in rows
    + r"LNS_\d+RotaryEmbeddingEnumE(?P<rope>\d)E"
    + _bits("pagedkv")
    + r"NS_\d+TileFmhaFwdAppendKVTraitsI"
    + _bits("spad", "skpad", "dpad", "dvpad")
)
_TILES = ("bm0", "bn0", "bn1", "bs", "bsk", "bd", "bdv")


def _tile(found: re.Match[str]) -> str:
    groups = found.groupdict()
    if "tile" in groups:
        sizes = re.findall(r"Li(\d+)E", groups["tile"])
    else:
        sizes = [groups[name] for name in _TILES if name in groups]
    return "b" + "x".join(sizes)


def _dropout_kind(found: re.Match[str]) -> str:
    if found["dropout"] == "0":
        return "no"
    size = "wg32" if found["wg32"] == "1" else "wg16"
    return f"dropout_{size}" + ("_storerandval" if found["randval"] == "1" else "")


#: Parsers of fields; fields without a parser are numbers, or booleans as 0 and 1.
_READERS: Mapping[str, Callable[[re.Match[str]], Any]] = {
    "bias": lambda found: _BIAS[found["bias"]],
    "dropout_kind": _dropout_kind,
    "dtype": lambda found: _DTYPES[found["dtype"]],
    "mode": lambda found: "group" if found["group"] == "1" else "batch",
    "rope": lambda found: ("no", "inter", "half")[int(found["rope"])],
    "tile": _tile,
}

_PADDING = ("spad", "skpad", "dpad", "dvpad")
_PREFILL = ("tile", "bias", *_PADDING, "logits", "mask", "lse", "dropout", "squant")
_SPLIT = ("tile", "bias", *_PADDING, "logits", "mask", "squant", "pagedkv")

#: Fields in a symbol of each role, in addition to dtype and (except for appendkv) mode.
_SHOWN: Mapping[str, tuple[str, ...]] = {
    "fwd": (*_PREFILL, "trload", "skip"),
    "dq_dk_dv": (
        *("tile", "bias", "max_seqlen_q", "dpad", "dvpad", "dropout_kind", "deterministic"),
        *("mask", "dropout", "randval", "trload", "dbias"),
    ),
    "dot_do_o": ("tile", "hdim_v", "spad", "dvpad"),
    "convert_dq": ("tile", "hdim_q", "spad", "dpad", "deterministic"),
    "batch_prefill": _PREFILL,
    "splitkv": _SPLIT,
    "splitkv_combine": ("tile", "hdim_v", "spad", "dvpad", "lse", "squant"),
    "pagedkv": (*_SPLIT, "lse", "skip"),
    "appendkv": ("tile", *_PADDING, "rope", "pagedkv"),
    "asm_dot_do_o": ("hdim_v", "spad", "dvpad"),
    "asm_convert_dq": ("hdim_q", "bn0", "spad", "dpad", "deterministic"),
}

_ROLES: Mapping[str, re.Pattern[str]] = {
    "fwd": _FWD,
    "dq_dk_dv": _DQ_DK_DV,
    "dot_do_o": _DOT_DO_O,
    "convert_dq": _CONVERT_DQ,
    "splitkv": _SPLITKV,
    "splitkv_combine": _SPLITKV_COMBINE,
    "pagedkv": _PAGEDKV,
    "appendkv": _APPENDKV,
}
_ROLES_WITHOUT_ARCH: Mapping[str, re.Pattern[str]] = {
    "batch_prefill": re.compile("FmhaBatchPrefill.*?" + _FWD.pattern),
    "asm_dot_do_o": _DOT_DO_O,
    "asm_convert_dq": _CONVERT_DQ,
}

#: Roles whose instances have several kernels: for even and uneven splits, and numbers of splits.
SEVERAL_KERNELS = frozenset({"splitkv", "splitkv_combine"})


def _identity(role: str, arch: str, fields: Mapping[str, Any]) -> Identity:
    return tuple(sorted({**fields, "role": role, "arch": arch}.items()))


def _names(role: str) -> tuple[str, ...]:
    return ("dtype", *(() if role == "appendkv" else ("mode",)), *_SHOWN[role])


def of_symbol(symbol: str) -> Identity:
    """Parse a kernel's mangled name.

    Args:
        symbol: name of a kernel, or of its descriptor (".kd").

    Raises:
        ValueError: the symbol is not a known attention kernel.
    """
    arch = _ARCH.search(symbol)
    roles = _ROLES if arch else _ROLES_WITHOUT_ARCH if _NO_ARCH.search(symbol) else {}
    for role, pattern in roles.items():
        if found := pattern.search(symbol):
            shown = {
                name: _READERS[name](found) if name in _READERS else int(found[name])
                for name in _names(role)
            }
            return _identity(role, arch[1] if arch else "", shown)
    raise ValueError(f"not an attention kernel as CK names them: {symbol}")


def of_plan(kernel: Mapping[str, Any]) -> Identity:
    """Return the identity of a kernel instance in plan.json."""
    role = kernel["role"]
    max_seqlen = str(kernel["fields"].get("tile", "")).partition("_maxq")[2]
    fields = {**kernel["fields"], "max_seqlen_q": int(max_seqlen or 0)}
    shown = {name: fields[name] for name in _names(role)}
    # A symbol also has warps and occupancy, but their form differs between roles.
    if "tile" in shown:
        shown["tile"] = shown["tile"].split("_")[0]
    return _identity(role, fields.get("arch") or "", shown)
