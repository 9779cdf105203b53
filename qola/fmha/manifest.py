"""A manifest for kernels by their configs: what builds them, and few others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from qola.errors import Finding
from qola.kernel.config import ConfigError, KernelConfig
from qola.manifest.fields import ADDABLE

#: By module: the table of its variants, its directions, and what a variant may say.
_MODULES: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "libmha_fwd": (
        "mha_fwd_variants",
        ("fwd", "fwd_splitkv", "batch_prefill", *ADDABLE),
        ("mask", "lse", "dropout", "skip", "sink"),
    ),
    "libmha_bwd": ("mha_bwd_variants", ("bwd",), ("mask", "dbias", "dropout")),
}
_Variant = tuple[tuple[str, str], ...]
#: Keys that mean a kind of bias between them.
_TOGETHER = {"has_bias", "has_alibi"}
#: Families that come along with others.
_PARTNERS = ("fwd_splitkv_combine", "bwd_dot_do_o", "bwd_convert_dq")


def manifest(
    configs: Iterable[KernelConfig],
    archs: Sequence[str],
    *,
    namespace: str = "kernels",
    receipt: str | int = "aiter_cpp",
) -> str:
    """Return the manifest of the libraries that have these kernels.

    A variant has no words for tiles and padding: kernels that differ in these alone come along,
    and so do those that run before and after. Of head dimensions that differ in what they have,
    planning says where the dispatch would have holes, and what to add.

    Args:
        configs: of kernels that the receipt has.
        archs: to build for, such as gfx950.
        receipt: CK's, by name or number.

    Raises:
        ConfigError: there is none.
    """
    of_module: dict[str, set[_Variant]] = {}
    directions: dict[str, set[str]] = {}
    for config in configs:
        module = next(m for m, (_, d, _) in _MODULES.items() if config.direction in d)
        directions.setdefault(module, set()).add(config.direction)
        if config.family not in _PARTNERS:
            of_module.setdefault(module, set()).add(_variant(config, _MODULES[module][2]))
    if not of_module:
        found, expected = "no kernel but partners of others", "a main kernel"
        raise ConfigError(Finding("configs", found, expected))
    lines = ["[qola]", _line("namespace", namespace), "[build]"]
    lines += [_line("architectures", [*archs]), _line("mode", "cpp_itfs")]
    for module in sorted(of_module):
        of_aiter = [d for d in _MODULES[module][1] if d not in ADDABLE]
        dropped = [d for d in of_aiter if d not in directions[module]]
        added = sorted(directions[module] & {*ADDABLE})
        lines += ["[[modules]]", _line("name", module), _line("receipt", receipt)]
        lines += [_line("drop_directions", dropped)] if dropped else []
        lines += [_line("add_directions", added)] if added else []
    for module in sorted(of_module):
        for variant in _merged(of_module[module]):
            lines.append(f"[[{_MODULES[module][0]}]]")
            lines += [_line(key, json.loads(value)) for key, value in variant]
    return "\n".join([*lines, ""])


def _variant(config: KernelConfig, flags: Sequence[str]) -> _Variant:
    values: dict[str, Any] = {"dtype": config.dtype, "hdim": [config.hdim_q, config.hdim_v]}
    values |= {"mode": config.mode, "deterministic": config.deterministic}
    values |= {f"has_{name}": getattr(config, name) for name in flags}
    told = {key: [value] for key, value in values.items() if value is not None}
    if config.bias is not None:
        told |= {"has_bias": [config.bias == "bias"], "has_alibi": [config.bias == "alibi"]}
    return tuple((key, json.dumps(value)) for key, value in told.items())


def _merged(variants: Iterable[_Variant]) -> list[_Variant]:
    """Return as many kernels in fewer variants: those that differ in one key alone are one."""
    found = set(variants)
    for key in sorted({key for variant in found for key, _ in variant} - _TOGETHER):
        groups: dict[_Variant, set[str]] = {}
        for variant in found:
            rest = tuple(pair for pair in variant if pair[0] != key)
            values = json.loads(dict(variant).get(key, "[]"))
            groups.setdefault(rest, set()).update(map(json.dumps, values))
        found = {
            (*rest, *([(key, f"[{', '.join(sorted(values))}]")] if values else []))
            for rest, values in groups.items()
        }
    return sorted(found)


def _line(key: str, value: Any) -> str:
    # JSON is TOML for strings, numbers, booleans and lists.
    return f"{key} = {json.dumps(value)}"
