"""One kernel of Composable Kernel in words: what it computes, for which problems, and how."""

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
"""Whether a kernel has something; None where kernels of its family do not say."""

Padding = bool | int | None
"""Whether a kernel pads; of CK's backward 0, 1, or 8 for multiples of 8 alone."""

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
"""Families, by the names of CK's own dispatcher: direction and role, as plans have them."""

_FAMILY_OF = {of: family for family, of in FAMILIES.items()}

#: What a config's name calls its fields, where that is shorter.
_CODES = {"deterministic": "det", "dropout_kind": "kind", "pipeline": "p", "vlayout": "v"}
#: What a config's name begins with.
_HEAD = re.compile(
    r"(?P<family>[a-z_]+)\.(?P<dtype>[\w~]+)\.(?P<mode>[\w~]+)\.d(?P<hdim_q>-?\d+)"
    r"x(?P<hdim_v>-?\d+)\.(?P<arch>[\w~]+)\.(?P<tile>[\w-]+)(?P<rest>(?:\.[\w~-]+)*)",
    re.ASCII,
)
#: Of another CK's fields.
_MORE = "x"


class ConfigError(QolaError):
    """A text or a kernel that is no config."""

    exit_code = ExitCode.USAGE
    default_title = "no kernel config"


@dataclass(frozen=True)
class KernelConfig:
    """A kernel, whether CK has it or not.

    Attributes:
        family: one of `FAMILIES`.
        mode: batch, or group for sequences one behind the other; None for either.
        arch: CK's name for the archs it is for: gfx9 is all before gfx950; None any.
        vlayout: row, or col for V transposed.
        bias: no, bias or alibi.
        dropout_kind: which of CK's kinds of dropout the backward has.
        randval: it stores the random numbers of its dropout.
        squant: it scales what it reads in 8 bits by numbers of the caller.
        qscale: by which of them, where CK has several kinds.
        skip: it skips sequences below a length.
        trload: it reads by gfx950's transposing loads.
        spad, skpad, dpad, dvpad: it takes any length of Q and of K, any head dimension of Q and
            of V, not just whole tiles.
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
        """Sort what is of another CK."""
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
        """The direction it belongs to."""
        return FAMILIES[self.family][0]

    @property
    def role(self) -> str:
        """What it does in that direction."""
        return FAMILIES[self.family][1]

    @property
    def name(self) -> str:
        """A name with all of it, which `parse` reads: a file may have it."""
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
    def parse(name: str) -> KernelConfig:
        """Return the config of a name.

        Raises:
            ConfigError: it is none that `name` gives.
        """
        match = _HEAD.fullmatch(name)
        if match is None:
            found = f"not of the form {_FORM}"
            raise ConfigError(Finding(name, found, "a name that KernelConfig.name gave"))
        try:
            config = KernelConfig.from_values(_values_of(match))
        except ValueError as error:
            raise ConfigError(Finding(name, str(error), "escapes of a text")) from None
        if config.name != name:
            raise ConfigError(Finding(name, "not as KernelConfig.name gives it", config.name))
        return config

    def values(self) -> dict[str, Any]:
        """Return the values that a config of its family has, as JSON values."""
        own = {name: value for name, value in self.fields().items() if name in _NAMES}
        found: dict[str, Any] = {"family": self.family, **own}
        return {**found, "more": dict(self.more)} if self.more else found

    @staticmethod
    def from_values(values: Mapping[str, Any]) -> KernelConfig:
        """Return the config with the values that `values` returns.

        Raises:
            ConfigError: a key is unknown or missing, or a value is of another type.
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
        """Return the config as a line that `from_json` reads."""
        return json.dumps(self.values(), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> KernelConfig:
        """Return the config of a line of `to_json`.

        Raises:
            ConfigError: it is not JSON, or none of such a line.
        """
        try:
            values = parse_json(text)
        except WrongValueError as error:
            raise ConfigError(Finding("JSON", str(error), "what to_json writes")) from None
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
#: Of each field: what reads its value, and what it is if left out.
_READERS = {
    field.name: (
        {"tile": _read_tile, "family": _read_family, "more": _read_more}.get(field.name)
        or reader(_HINTS[field.name]),
        field.default,
    )
    for field in fields(KernelConfig)
}
#: Fields that a kernel of CK has, too, in the order of names.
_NAMES = tuple(name for name in _READERS if name not in ("family", "more"))
_OPTIONAL = tuple(
    name for name in _NAMES if _READERS[name][1] is not MISSING and name not in ("arch", "mode")
)
_LONG = {code: name for name, code in _CODES.items()}
_FORM = "family.dtype.mode.dQxV.arch.tile, and further words"


def _word(code: str, value: FieldValue) -> str:
    """Return a field as a name has it: mask, nmask, bias-alibi, dpad-8."""
    if isinstance(value, bool):
        return code if value else f"n{code}"
    return f"{code}-{word(value)}"


def _read(text: str) -> tuple[str, FieldValue]:
    """Return field and value of a word in a name."""
    code, dash, value = text.partition("-")
    if dash:
        return code, value_of(value)
    known = _LONG.get(code, code)
    return (code[1:], False) if known not in _READERS and code[:1] == "n" else (code, True)


def _values_of(match: re.Match[str]) -> dict[str, Any]:
    """Return what `from_values` takes, from a name of the right form.

    Raises:
        ValueError: an escape is none.
    """
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
