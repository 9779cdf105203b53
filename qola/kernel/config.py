"""The config of a kernel of Composable Kernel: its family, problems, tile and pipeline."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, get_type_hints

from qola_base.errors import ExitCode, Finding, QolaError
from qola_base.json_types import JsonObject, JsonValue, WrongValueError, parse_json, reader

Switch = bool | None
"""Whether a kernel has a feature; None if its family lacks the field."""

Padding = bool | int | None
"""Whether a kernel pads. In CK's backward: 0, 1, or 8 for multiples of 8 only."""

FAMILIES: Mapping[str, tuple[str, str]] = {
    "fwd": ("fwd", "fwd"),
    "fwd_splitkv": ("fwd_splitkv", "splitkv"),
    "fwd_splitkv_combine": ("fwd_splitkv", "splitkv_combine"),
    "fwd_pagedkv": ("pagedkv_prefill", "pagedkv"),
    "fwd_appendkv": ("fwd_appendkv", "appendkv"),
    "batch_prefill": ("batch_prefill", "batch_prefill"),
    "bwd_dq_dk_dv": ("bwd", "dq_dk_dv"),
    "bwd_dot_do_o": ("bwd", "dot_do_o"),
    "bwd_convert_dq": ("bwd", "convert_dq"),
}
"""Direction and role of each family. The names of families are those of CK's dispatcher."""

_FAMILY_OF = {of: family for family, of in FAMILIES.items()}

#: Abbreviations of fields in the name of a config.
_CODES = {"deterministic": "det", "dropout_kind": "kind", "pipeline": "p", "vlayout": "v"}
#: The beginning of a config's name.
_HEAD = re.compile(
    r"(?P<family>[a-z_]+)\.(?P<dtype>[\w~]+)\.(?P<mode>[\w~]+)\.d(?P<hdim_q>-?\d+)"
    r"x(?P<hdim_v>-?\d+)\.(?P<arch>[\w~]+)\.(?P<tile>[\w-]+)(?P<rest>(?:\.[\w~-]+)*)",
    re.ASCII,
)
#: Prefix of the fields of another CK in a name.
_MORE = "x"

FieldValue = str | int | bool | None
"""The value of a kernel's field."""

_ANY = "any"
"""The encoding of None at a fixed position of a name."""

_PLAIN = {"true": True, "false": False, "null": None}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_OTHER = re.compile(r"[^A-Za-z0-9_]")
_ESCAPED = re.compile(r"(?:~[0-9a-f]{2})+")
#: Prefix of a text that would otherwise be decoded to another type.
_TEXT = "~s"

Triple = tuple[int, int, int]

# Python refuses to make an integer of thousands of digits.
_PART = re.compile(r"(b|r|w|o|maxq)(-?[0-9]{1,9}(?:x[0-9]{1,9})*)")


class ConfigError(QolaError, title="not a kernel config", exit_code=ExitCode.USAGE):
    """A text or a kernel that is not a valid config."""


@dataclass(frozen=True)
class Tile:
    """A tile of CK's generators.

    Attributes:
        block: sizes of a block. Forward: bm0, bn0, bk0, bn1, bk1, bk0max (rows of Q, rows of K, a
            step of hdim_q; hdim_v, a step of the rows of K; hdim_q). The backward has three more
            steps; kernels without matrix instructions have rows only.
        waves: waves along m, n and k, for each matrix product.
        warps: m, n and k of the matrix instructions.
        per_cu: intended blocks per compute unit, None if the compiler decides.
        max_rows: largest seqlen_q, 0 for any; None if the notation lacks it.
    """

    block: tuple[int, ...]
    waves: tuple[Triple, ...] = ()
    warps: tuple[Triple, ...] = ()
    per_cu: int | None = None
    max_rows: int | None = None

    def __str__(self) -> str:
        """Return CK's notation: b128x64x32x64x32x64_r4x1x1_r4x1x1_w32x32x16_w32x32x16."""
        parts = ["b" + _joined(self.block)]
        parts += ["r" + _joined(one) for one in self.waves]
        parts += ["w" + _joined(one) for one in self.warps]
        parts += [] if self.per_cu is None else [f"o{self.per_cu}"]
        parts += [] if self.max_rows is None else [f"maxq{self.max_rows}"]
        return "_".join(parts)

    @staticmethod
    @cache
    def parse(text: str) -> Tile | None:
        """Parse a notation; None if it is invalid."""
        found: dict[str, list[tuple[int, ...]]] = {}
        for part in text.split("_"):
            match = _PART.fullmatch(part)
            if match is None:
                return None
            found.setdefault(match[1], []).append(tuple(map(int, match[2].split("x"))))
        waves, warps = (
            [(one[0], one[1], one[2]) for one in found.get(letter, ()) if len(one) == 3]
            for letter in "rw"
        )
        (block, *_), (per_cu, *_), (most, *_) = (found.get(of, [()]) for of in ("b", "o", "maxq"))
        last = (one[0] if one else None for one in (per_cu, most))
        tile = Tile(block, tuple(waves), tuple(warps), *last)
        # Parts in another order, or unknown ones, are invalid.
        return tile if block and str(tile) == text else None


def _joined(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))


@dataclass(frozen=True)
class KernelConfig:
    """A kernel, whether CK enumerates it or not.

    Attributes:
        family: one of `FAMILIES`.
        mode: batch, or group for packed sequences of different lengths; None for either.
        arch: CK's name for its archs: gfx9 is all before gfx950; None for any.
        vlayout: row, or col for transposed V.
        bias: no, bias or alibi.
        dropout_kind: CK's kind of dropout in the backward.
        randval: stores the random numbers of its dropout.
        squant: scales 8-bit inputs by factors of the caller; qscale is CK's kind of these factors.
        skip: skips sequences below a length.
        trload: uses transposing loads of gfx950.
        spad, skpad, dpad, dvpad: accepts any seqlen_q, seqlen_k, hdim_q and hdim_v, not only whole
            tiles.
        more: fields of another CK, sorted by name.
    """

    family: str
    dtype: str
    hdim_q: int
    hdim_v: int
    tile: Tile
    mode: str | None = None
    arch: str | None = None
    pipeline: str | None = None
    vlayout: str | None = None
    mask: bool | str | None = None
    bias: str | None = None
    dbias: Switch = None
    lse: Switch = None
    dropout: Switch = None
    dropout_kind: str | None = None
    randval: Switch = None
    deterministic: Switch = None
    squant: Switch = None
    qscale: str | None = None
    rope: str | None = None
    logits: Switch = None
    pagedkv: Switch = None
    sink: Switch = None
    skip: Switch = None
    trload: Switch = None
    spad: Padding = None
    skpad: Padding = None
    dpad: Padding = None
    dvpad: Padding = None
    more: tuple[tuple[str, FieldValue], ...] = ()

    def __post_init__(self) -> None:
        if self.more:
            object.__setattr__(self, "more", tuple(sorted(dict(self.more).items())))

    @staticmethod
    def from_fields(direction: str, role: str, fields: Mapping[str, FieldValue]) -> KernelConfig:
        """Return the config whose `fields()` are these.

        Raises:
            ConfigError: the role is not of CK's attention, or a value has the wrong type.
        """
        family = _FAMILY_OF.get((direction, role))
        if family is None:
            known = ", ".join(f"{d} {r}" for d, r in _FAMILY_OF)
            raise ConfigError(Finding("kernel", f"{direction} {role}", f"one of {known}"))
        own = {name: fields[name] for name in _NAMES if fields.get(name) is not None}
        more = {name: value for name, value in fields.items() if name not in _NAMES}
        return KernelConfig.from_values({"family": family, **own, "more": more})

    def fields(self) -> dict[str, FieldValue]:
        """Return the values that are not None by name, without the family."""
        found = {name: getattr(self, name) for name in _NAMES}
        found = {name: value for name, value in found.items() if value is not None}
        return {**found, "tile": str(self.tile), **dict(self.more)}

    @property
    def direction(self) -> str:
        """The direction of its family."""
        return FAMILIES[self.family][0]

    @property
    def role(self) -> str:
        """The role of its family."""
        return FAMILIES[self.family][1]

    @property
    def name(self) -> str:
        """A name with all fields, valid as a file name; `from_name` parses it."""
        mode, arch = (_ANY if one is None else _encode(one) for one in (self.mode, self.arch))
        words = [self.family, _encode(self.dtype), mode, f"d{self.hdim_q}x{self.hdim_v}", arch]
        words.append(str(self.tile))
        for name in _OPTIONAL:
            value = getattr(self, name)
            if value is not None:
                words.append(_word(_CODES.get(name, name), value))
        words += [f"{_MORE}-{_encode(name)}-{_encode(value)}" for name, value in self.more]
        return ".".join(words)

    @staticmethod
    def from_name(name: str) -> KernelConfig:
        """Parse a name; raise ConfigError if it is not the name of a config."""
        match = _HEAD.fullmatch(name)
        if match is None:
            found = f"not of the form {_FORM}"
            raise ConfigError(Finding(name, found, "the name of a KernelConfig"))
        try:
            config = KernelConfig.from_values(_values_of(match))
        except ValueError as error:
            raise ConfigError(Finding(name, str(error), "escapes of a text")) from None
        if config.name != name:
            raise ConfigError(Finding(name, "fields in another order or form", config.name))
        return config

    def values(self) -> JsonObject:
        """Return the values that are not None, as JSON values."""
        own = {name: value for name, value in self.fields().items() if name in _NAMES}
        found: JsonObject = {"family": self.family, **own}
        return {**found, "more": dict(self.more)} if self.more else found

    @staticmethod
    def from_values(values: Mapping[str, JsonValue]) -> KernelConfig:
        """Return the config with the values of `values()`.

        Raises:
            ConfigError: a key is unknown or missing, or a value has the wrong type.
        """
        place = str(values.get("family", "kernel"))[:80]
        findings = [
            Finding(f"{place}.{name}", "an unknown key", f"one of {', '.join(sorted(_READERS))}")
            for name in sorted(values)
            if name not in _READERS
        ]
        read: dict[str, Any] = {}
        for name, (read_value, default) in _READERS.items():
            if name not in values and default is not MISSING:
                continue
            try:
                if name not in values:
                    raise WrongValueError(": left out")
                read[name] = read_value(values[name])
            except WrongValueError as error:
                found = str(error).removeprefix(": ")
                findings.append(Finding(f"{place}.{name}", found, "a value of a kernel config"))
        if findings:
            raise ConfigError(findings)
        return KernelConfig(**read)

    def to_json(self) -> str:
        """Return the config as one line of JSON."""
        return json.dumps(self.values(), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> KernelConfig:
        """Read the line that `to_json` wrote; raise ConfigError if it has another form."""
        try:
            values = parse_json(text)
        except WrongValueError as error:
            raise ConfigError(Finding("JSON", str(error), "the output of to_json")) from None
        if type(values) is not dict:
            raise ConfigError(Finding("JSON", repr(values)[:80], "an object"))
        return KernelConfig.from_values(values)


def _read_tile(value: Any) -> Tile:
    tile = Tile.parse(value) if isinstance(value, str) else None
    if tile is None:
        raise WrongValueError(f": {repr(value)[:80]}, expected a tile such as b64_r4x1x1_w16x16x16")
    return tile


def _read_family(value: Any) -> str:
    if type(value) is not str or value not in FAMILIES:
        raise WrongValueError(f": {repr(value)[:80]}, expected one of {', '.join(FAMILIES)}")
    return str(value)


def _read_more(value: Any) -> tuple[tuple[str, FieldValue], ...]:
    plain = reader(FieldValue)
    if type(value) is not dict:
        raise WrongValueError(f": {repr(value)[:80]}, expected an object")
    return tuple(sorted((name, plain(one)) for name, one in value.items()))


_HINTS = get_type_hints(KernelConfig)
#: By field: the reader of its JSON value, and its default.
_READERS = {
    field.name: (
        {"tile": _read_tile, "family": _read_family, "more": _read_more}.get(field.name)
        or reader(_HINTS[field.name]),
        field.default,
    )
    for field in fields(KernelConfig)
}
#: The fields in the order of a config's name.
_NAMES = tuple(name for name in _READERS if name not in ("family", "more"))
_OPTIONAL = tuple(
    name for name in _NAMES if _READERS[name][1] is not MISSING and name not in ("arch", "mode")
)
_LONG = {code: name for name, code in _CODES.items()}
_FORM = "family.dtype.mode.dQxV.arch.tile, then other fields"


def _word(code: str, value: FieldValue) -> str:
    """Format a field for a name: mask, nmask, bias-alibi, dpad-8."""
    if isinstance(value, bool):
        return code if value else f"n{code}"
    return f"{code}-{_encode(value)}"


def _read(text: str) -> tuple[str, FieldValue]:
    """Parse a field and its value in a name."""
    code, dash, value = text.partition("-")
    if dash:
        return code, _decode(value)
    known = _LONG.get(code, code)
    return (code[1:], False) if known not in _READERS and code[:1] == "n" else (code, True)


def _values_of(match: re.Match[str]) -> JsonObject:
    """Parse a name into arguments of `from_values`; an invalid escape is a ValueError."""
    head = match.groupdict()
    data: JsonObject = {name: head[name] for name in ("family", "tile")}
    data["dtype"] = _decode(head["dtype"])
    data |= {name: int(head[name]) for name in ("hdim_q", "hdim_v")}
    data |= {name: _decode(head[name]) for name in ("mode", "arch") if head[name] != _ANY}
    more: dict[str, FieldValue] = {}
    for text in filter(None, head["rest"].split(".")):
        code, _, own = text.partition("-")
        if code == _MORE and "-" in own:
            name, _, value = own.partition("-")
            more[str(_decode(name))] = _decode(value)
        else:
            code, value_read = _read(text)
            data[_LONG.get(code, code)] = value_read
    return {**data, "more": more}


def _encode(value: FieldValue) -> str:
    """Encode a value; `_decode` reads it."""
    if isinstance(value, str):
        mistaken = not value or value == _ANY or value in _PLAIN or _NUMBER.fullmatch(value)
        return _TEXT * bool(mistaken) + _OTHER.sub(_escape, value)
    if value is None or isinstance(value, bool):
        return {True: "true", False: "false", None: "null"}[value]
    return _OTHER.sub(_escape, str(value))


def _decode(text: str) -> FieldValue:
    """Decode a value; escapes that are not UTF-8 are a ValueError."""
    plain = _ESCAPED.sub(_unescape, text.removeprefix(_TEXT))
    if text.startswith(_TEXT):
        return plain
    if _NUMBER.fullmatch(plain):
        return int(plain)
    return _PLAIN.get(plain, plain)


def _escape(match: re.Match[str]) -> str:
    return "".join(f"~{byte:02x}" for byte in match[0].encode("utf-8", "surrogatepass"))


def _unescape(match: re.Match[str]) -> str:
    return bytes.fromhex(match[0].replace("~", "")).decode("utf-8", "surrogatepass")
