"""The config of a kernel of Composable Kernel: its family, problems, tile and pipeline."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, get_type_hints

from qola.errors import ExitCode, Finding, QolaError
from qola.json_types import WrongValueError, parse_json, reader
from qola.kernel.tile import Tile
from qola.kernel.words import ANY, FieldValue, value_of, word

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


class ConfigError(QolaError):
    """A text or a kernel that is not a valid config."""

    exit_code = ExitCode.USAGE
    default_title = "not a kernel config"


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
        mode, arch = (ANY if one is None else word(one) for one in (self.mode, self.arch))
        words = [self.family, word(self.dtype), mode, f"d{self.hdim_q}x{self.hdim_v}", arch]
        words.append(str(self.tile))
        for name in _OPTIONAL:
            value = getattr(self, name)
            if value is not None:
                words.append(_word(_CODES.get(name, name), value))
        words += [f"{_MORE}-{word(name)}-{word(value)}" for name, value in self.more]
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

    def values(self) -> dict[str, Any]:
        """Return the values that are not None, as JSON values."""
        own = {name: value for name, value in self.fields().items() if name in _NAMES}
        found: dict[str, Any] = {"family": self.family, **own}
        return {**found, "more": dict(self.more)} if self.more else found

    @staticmethod
    def from_values(values: Mapping[str, Any]) -> KernelConfig:
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
    return f"{code}-{word(value)}"


def _read(text: str) -> tuple[str, FieldValue]:
    """Parse a field and its value in a name."""
    code, dash, value = text.partition("-")
    if dash:
        return code, value_of(value)
    known = _LONG.get(code, code)
    return (code[1:], False) if known not in _READERS and code[:1] == "n" else (code, True)


def _values_of(match: re.Match[str]) -> dict[str, Any]:
    """Parse a name into arguments of `from_values`; an invalid escape is a ValueError."""
    head = match.groupdict()
    data: dict[str, Any] = {name: head[name] for name in ("family", "tile")}
    data["dtype"] = value_of(head["dtype"])
    data |= {name: int(head[name]) for name in ("hdim_q", "hdim_v")}
    data |= {name: value_of(head[name]) for name in ("mode", "arch") if head[name] != ANY}
    more: dict[str, FieldValue] = {}
    for text in filter(None, head["rest"].split(".")):
        code, _, own = text.partition("-")
        if code == _MORE and "-" in own:
            name, _, value = own.partition("-")
            more[str(value_of(name))] = value_of(value)
        else:
            code, value_read = _read(text)
            data[_LONG.get(code, code)] = value_read
    return {**data, "more": more}
