"""Translates CK's names: attributes of its objects, and members in conditions of its dispatch.

CK renames from time to time. The tables list all names, and no versions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any

from qola.codegen.ck.link import NotUnderstoodError, without_comments
from qola.codegen.types import FieldValue

#: The fields of `qola.kernel.config.KernelConfig`, by the names of CK's attributes if these differ.
ALIASES = {
    "hdim": "hdim_q",
    "pipeline_tag": "pipeline",
    "tr_load": "trload",
}
#: Attributes that do not distinguish kernels, or are part of the tile.
_WITHOUT_MEANING = frozenset(
    {"idx", "mask_impl", "constraint", "occupancy", "disabled", "max_seq_q"}
)
_TILE = ("bm0", "bn0", "bk0", "bn1", "bk1", "bk0max")

#: Fields, by the members that conditions of the dispatch compare.
CONDITION_FIELDS = {
    "is_group_mode": "mode",
    "is_v_rowmajor": "vlayout",
    "has_logits_soft_cap": "logits",
    "mask_type": "mask",
    "bias_type": "bias",
    "has_lse": "lse",
    "has_dropout": "dropout",
    "do_fp8_static_quant": "squant",
    "qscale_type": "qscale",
    "skip_min_seqlen_q": "skip",
    "has_sink": "sink",
    "block_table_ptr": "pagedkv",
    "use_pagedkv": "pagedkv",
    "rope_type": "rope",
    "has_dbias": "dbias",
    "is_store_randval": "randval",
    "is_deterministic": "deterministic",
}
_PLACE = frozenset({"data_type", "hdim_q", "hdim_v"})

#: By the object's id, with the object, so that the id is not used again.
_HELD: dict[int, tuple[Any, dict[str, Any]]] = {}

_MEMBER = re.compile(r"\b([at])\.(\w+)(?:\s*==\s*([\w:]+))?")
_MASK = re.compile(r"\bt\.mask_type\s*([=!]=)\s*mask_enum::(\w+)")
_BUCKET = re.compile(r"t\.hdim_q\s*<=\s*(\d+)\s*&&\s*t\.hdim_v\s*<=\s*(\d+)")
_STEP = re.compile(r"\ba\.(hdim_[qv])\b(?:\s*%\s*(\d+)\s*([!=])=\s*0)?")
_DEVICE = re.compile(r'\bcompare\(\s*0\s*,\s*\d+\s*,\s*"(gfx\w+)"\s*\)')


@dataclass(frozen=True)
class Condition:
    """The condition of one row of a dispatch.

    Attributes:
        devices: prefixes of device names, () for any device.
        bucket: largest (hdim_q, hdim_v).
        steps: hdim_q and hdim_v must be multiples of these; if a step is negative, they must not.
        compared: the compared fields, in order, with their values in C++.
        conditional: the row serves only some sequence lengths, device loads or masks.
    """

    devices: tuple[str, ...]
    bucket: tuple[int, int]
    steps: tuple[int, int]
    compared: Mapping[str, str]
    mask: bool | None
    conditional: bool


def read_condition(row: str) -> Condition:
    """Read the text of a dispatch that has a single row."""
    bucket = _BUCKET.search(row)
    if bucket is None:
        raise NotUnderstoodError(f"no head dims in the row `{row.strip()[:400]}`")
    own = _read_own(row[bucket.end() :].partition("using ")[0])
    size = int(bucket[1]), int(bucket[2])
    return replace(own, devices=tuple(_DEVICE.findall(row[: bucket.start()])), bucket=size)


@cache
def _read_own(condition: str) -> Condition:
    """Parse the part of a row's condition after its bucket. Cached, because many rows share it."""
    own = without_comments(condition)
    steps = {"hdim_q": 1, "hdim_v": 1}
    for name, step, sign in _STEP.findall(own):
        if not step or steps[name] != 1:
            raise NotUnderstoodError(f"{name} in the condition `{own.strip()[:400]}`")
        steps[name] = int(step) if sign == "=" else -int(step)
    masks = _MASK.findall(own)
    compared = {}
    for owner, member, word in _MEMBER.findall(own):
        if member in CONDITION_FIELDS or (owner == "t" and member not in _PLACE):
            compared[_field_of(member)] = word
    return Condition(
        devices=(),
        bucket=(0, 0),
        steps=(steps["hdim_q"], steps["hdim_v"]),
        compared=compared,
        mask=("==", "no_mask") not in masks if masks else None,
        conditional="<" in own or any(m[0] == "==" and m[1] != "no_mask" for m in masks),
    )


def _field_of(member: str) -> str:
    return CONDITION_FIELDS.get(member) or re.sub(r"^(?:is|has|do)_|_type$", "", member)


def fields_of(item: Any, masks: Mapping[str, bool]) -> dict[str, FieldValue]:
    """Return the fields of a `KernelConfig` that an object of CK has.

    Args:
        masks: by each of CK's words for masks, whether there is a mask.
    """
    plain = _flat(item)
    found: dict[str, FieldValue] = {}
    for name, value in plain.items():
        if name == "mask":
            found["mask"] = masks.get(value, value)
        elif name == "dropout" and value not in ("t", "f"):
            found["dropout"] = value != "no"
            found["dropout_kind"] = value
            found["randval"] = str(value).endswith("_storerandval")
        elif name == "qscale":
            found["qscale"], found["squant"] = value, value != "no"
        elif name not in _TILE:
            found[ALIASES.get(name, name)] = {"t": True, "f": False}.get(value, value)
    if "tile" not in found and "bm0" in plain:
        found["tile"] = "b" + "x".join(str(plain[part]) for part in _TILE if part in plain)
    if found.get("pipeline") == "unused":
        del found["pipeline"]
    if str(found.get("hdim_q", "")).isdigit():
        found["hdim_q"] = int(str(found["hdim_q"]))
    return found


def without_enum(value: Any) -> Any:
    """Return the name of an enumeration's member, unless it is a text or number itself."""
    return value.name if isinstance(value, Enum) and not isinstance(value, (str, int)) else value


def _flat(item: Any) -> dict[str, Any]:
    """Return the plain values of an object and of its attributes, without CK's prefix F_."""
    found: dict[str, Any] = {}
    for written, given in vars(item).items():
        name = written[2:] if written.startswith("F_") else written
        if name in _WITHOUT_MEANING:
            continue
        value = without_enum(given)
        if value is None or isinstance(value, (str, int)):
            found[name] = value
        else:
            found.update(_held(name, value))
    return found


def _held(name: str, value: Any) -> dict[str, Any]:
    """Return the values of an attribute that is an object: an arch, a tile, a pipeline."""
    if id(value) not in _HELD:
        # An object within itself, and a class, have no values.
        _HELD[id(value)] = value, {}
        if isinstance(value, type):
            found = {}
        elif name == "arch":
            found = {"arch": value.name}
        elif name == "tile":
            found = {"tile": value.name}
        else:
            inner = _flat(value) if hasattr(value, "__dict__") else {}
            found = {name if n == "tag" else n: v for n, v in inner.items()}
        _HELD[id(value)] = value, found
    return _HELD[id(value)][1]
