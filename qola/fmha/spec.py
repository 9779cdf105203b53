"""A kernel by a few of its fields: the config that they stand for, or all kernels that have them.

What is left out is not guessed: a kernel does nothing that is not asked for, and all else is that
of the kernel which Composable Kernel emits and which is most like it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from qola.errors import Finding
from qola.fmha.registry import Entry, Registry
from qola.kernel.config import FAMILIES, ConfigError, KernelConfig
from qola.kernel.rules.check import check
from qola.kernel.tile import Tile

ANY = "*"
"""Stands for every value of a field; parts of words may stand with it."""

#: Fields that say most of a kernel, the first before all others.
_FIRST = ("arch", "dtype", "pipeline", "trload", "mode", "mask", "bias", "lse", "dropout")
#: Of fields that are left out, what is taken before anything else: the least, for every length.
_PLAIN: Mapping[str, tuple[Any, ...]] = {
    "mode": ("batch",),
    "vlayout": ("row",),
    "trload": (False,),
    **dict.fromkeys(("bias", "dropout_kind", "qscale", "rope"), ("no",)),
    **dict.fromkeys(("mask", "dbias", "lse", "dropout", "randval", "deterministic"), (False,)),
    **dict.fromkeys(("squant", "logits", "pagedkv", "sink", "skip"), (False,)),
    # True is 1 as well: any head dimension, before multiples of 8.
    **dict.fromkeys(("spad", "skpad", "dpad", "dvpad"), (1, 8)),
}
#: Of these, what a kernel has only if that is said; a kind of dropout goes with dropout.
_UNASKED = (
    *("bias", "mask", "dbias", "lse", "dropout", "deterministic"),
    *("logits", "rope", "sink", "skip"),
)
_OF_DROPOUT = ("dropout_kind", "randval")
_HDIMS = ("hdim_q", "hdim_v")
#: Of families whose tiles say head dimensions: how many numbers a block has, and which they are.
_HDIM_PLACES: Mapping[str, tuple[int, tuple[int, int]]] = {
    **dict.fromkeys(("fwd", "fwd_splitkv", "fwd_pagedkv", "batch_prefill"), (6, (5, 3))),
    "fwd_appendkv": (4, (2, 3)),
    "bwd_dq_dk_dv": (9, (7, 8)),
}


@dataclass(frozen=True)
class KernelSpec:
    """Some fields of a kernel. Make one with `of`.

    Attributes:
        fields: of a KernelConfig, by name; a value, a tuple of several, or a word with * and ?.
    """

    family: str
    fields: tuple[tuple[str, Any], ...]

    @staticmethod
    def of(family: str, **fields: Any) -> KernelSpec:
        """Return what fields say: those of `KernelConfig`, `tile` as text too, `hdim` for both.

        Raises:
            ConfigError: there is no such family, field or tile; all that is wrong.
        """
        wrong = []
        if family not in FAMILIES:
            wrong.append(Finding("family", repr(family), f"one of {', '.join(FAMILIES)}"))
        if "hdim" in fields:
            size = fields.pop("hdim")
            fields = {**dict.fromkeys(_HDIMS, size), **fields}
        known = [name for name in KernelConfig.__dataclass_fields__ if name != "family"]
        wrong += [
            Finding(f"{family}.{name}", "no field of a kernel", ", ".join(known))
            for name in sorted(set(fields) - set(known))
        ]
        values = {}
        for name, value in fields.items():
            several = value if isinstance(value, tuple) else (value,)
            read = tuple(_tile(one) if name == "tile" else one for one in several)
            for one, tile in zip(several, read, strict=True):
                if tile is None and name == "tile":
                    expected = "a tile such as b64_r4x1x1_w16x16x16"
                    wrong.append(Finding(f"{family}.tile", repr(one), expected))
            values[name] = read if isinstance(value, tuple) else read[0]
        if wrong:
            raise ConfigError(wrong)
        return KernelSpec(family, tuple(sorted(values.items())))

    def matching(self, registry: Registry) -> list[Entry]:
        """Return all kernels of a registry that have these fields, in the registry's order."""
        return [
            entry
            for entry in registry
            if entry.config.family == self.family
            and all(_matches(getattr(entry.config, name), value) for name, value in self.fields)
        ]

    def config(self, emitted: Registry) -> KernelConfig:
        """Return the config that the fields stand for, whether CK has such a kernel or not.

        What is left out, or `ANY`, is no mask, no bias and so on; else that of the kernel most like
        it: of several, of one for the most lengths and head dimensions, in the largest tile.

        Args:
            emitted: the kernels that CK has, of `qola.fmha.observe.observe_kernels`.

        Raises:
            ConfigError: a field has several values, or CK has no kernel of the family and arch.
            InvalidError: the config breaks rules; all of them.
        """
        given = {name: value for name, value in self.fields if value != ANY}
        wrong = [
            Finding(f"{self.family}.{name}", repr(value), "one value for one kernel")
            for name, value in given.items()
            if isinstance(value, tuple) or _is_pattern(value)
        ]
        if wrong:
            raise ConfigError(wrong)
        given = {**_hdims_of(self.family, given), **given}
        having = [
            entry.config
            for entry in emitted
            if entry.config.family == self.family
            # None is for any arch.
            and entry.config.arch in (None, given.get("arch", entry.config.arch))
        ]
        if not having:
            archs = ", ".join(sorted({str(entry.config.arch) for entry in emitted})) or "none"
            words = f"{self.family} for {given.get('arch', 'any arch')}"
            raise ConfigError(Finding(words, "no kernel that CK emits", f"archs {archs}"))
        like = min(having, key=lambda one: _distance(one, given))
        if like.arch is None:
            given.pop("arch", None)
        config = replace(like, **{**_unasked(like, given), **given})
        check(config)
        return config


def _tile(value: Any) -> Any:
    """Return a tile of its notation, None of a text that is neither that nor a pattern."""
    return value if not isinstance(value, str) or _is_pattern(value) else Tile.parse(value)


def _is_pattern(value: Any) -> bool:
    return isinstance(value, str) and bool(set(value) & set("*?"))


def _matches(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, tuple):
        return any(_matches(value, one) for one in wanted)
    if _is_pattern(wanted):
        return wanted == ANY or fnmatchcase(str(value), wanted)
    # A boolean is an int, and padding may be either.
    return bool(value == wanted)


def _hdims_of(family: str, given: Mapping[str, Any]) -> dict[str, int]:
    """Return the head dimensions that a tile is for, where nothing else says them."""
    tile = given.get("tile")
    block = tile.block if isinstance(tile, Tile) else ()
    count, places = _HDIM_PLACES.get(family, (0, (0, 0)))
    sizes = [block[place] for place in places] if block and len(block) == count else []
    return dict(zip(_HDIMS, sizes, strict=False))


def _unasked(like: KernelConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a kernel does not have because nobody has asked for it."""
    names = _UNASKED if "dropout" in given else (*_UNASKED, *_OF_DROPOUT)
    return {name: _PLAIN[name][0] for name in names if getattr(like, name) is not None}


def _distance(config: KernelConfig, given: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return how far a kernel is from fields that are given; the least is taken."""
    others = [name for name in given if name not in (*_FIRST, *_HDIMS, "tile")]
    far = [name in given and getattr(config, name) != given[name] for name in _FIRST]
    rest = sum(getattr(config, name) != given[name] for name in others)
    sizes = [_from_above(getattr(config, name), given.get(name)) for name in _HDIMS]
    more = [_place(getattr(config, name), _PLAIN[name]) for name in _PLAIN if name not in given]
    largest = [-size for size in config.tile.block[:2]]
    return (far, sizes, rest, more, largest, config.name)


def _from_above(size: int, wanted: Any) -> tuple[bool, int]:
    """Return how far a size is from one that is wanted: one that is too small is further."""
    return (False, 0) if wanted is None else (size < wanted, abs(size - wanted))


def _place(value: Any, order: Iterable[Any]) -> int:
    known = [None, *order]
    return known.index(value) if value in known else len(known)
