"""Makes manifests that build chosen kernels, and few others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from qola.errors import Finding
from qola.kernel.config import ConfigError, KernelConfig
from qola.manifest.constants import ADDABLE
from qola.manifest.toml import toml_document

#: By module: the table of its variants, its directions, and the flags of a variant.
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


def make_manifest(
    configs: Iterable[KernelConfig],
    archs: Sequence[str],
    *,
    namespace: str = "kernels",
    receipt: str | int = "aiter_cpp",
) -> str:
    """Return the manifest of the libraries that have these kernels.

    A variant has no fields for tiles and padding: kernels that differ only in these come along
    (`make_exact_manifest` names kernels instead), and so do helper kernels. Of head
    dimensions with different kernels, planning names holes in the dispatch, and the missing
    variants.

    Args:
        configs: of kernels that the receipt has.
        archs: to build for, such as gfx950.
        receipt: CK's, by name or number.

    Raises:
        ConfigError: there is none.
    """
    of_module: dict[str, set[_Variant]] = {}
    by_module = _by_module(configs)
    for module, own in by_module.items():
        mains = [config for config in own if config.family not in _PARTNERS]
        if mains:
            of_module[module] = {_variant(config, _MODULES[module][2]) for config in mains}
    if not of_module:
        words = "no kernel but partners of others"
        raise ConfigError(Finding("configs", words, "a main kernel"))
    tables = _start(namespace, archs, receipt, {name: by_module[name] for name in of_module})
    for module in sorted(of_module):
        tables[_MODULES[module][0]] = [
            {key: json.loads(value) for key, value in variant}
            for variant in _merged(of_module[module])
        ]
    return toml_document(tables)


def make_exact_manifest(
    configs: Iterable[KernelConfig],
    archs: Sequence[str],
    *,
    namespace: str = "kernels",
    receipt: str | int = "aiter_cpp",
) -> str:
    """Return the manifest of the libraries that have these kernels and none but their partners.

    Args:
        configs: of main kernels, whether CK has them or not; of two that take the same problems,
            the first gets them.
        archs: to build for, such as gfx950.
        receipt: CK's, by name or number: of its kernels those are made that CK does not have.

    Raises:
        ConfigError: there is no kernel, or one is a helper kernel.
    """
    by_module = _by_module(configs)
    partners = [c for own in by_module.values() for c in own if c.family in _PARTNERS]
    if partners or not by_module:
        words = "partners come along with main kernels"
        found = [Finding(c.name, f"family {c.family}: {words}", "a main kernel") for c in partners]
        raise ConfigError(found or Finding("configs", "none", "a kernel"))
    tables = _start(namespace, archs, receipt, by_module)
    tables["kernels"] = [
        {"names": [config.name for config in by_module[module]]} for module in sorted(by_module)
    ]
    return toml_document(tables)


def _by_module(configs: Iterable[KernelConfig]) -> dict[str, list[KernelConfig]]:
    """Return kernels by their modules, each once."""
    found: dict[str, list[KernelConfig]] = {}
    for config in dict.fromkeys(configs):
        module = next(m for m, (_, d, _) in _MODULES.items() if config.direction in d)
        found.setdefault(module, []).append(config)
    return found


def _start(
    namespace: str,
    archs: Sequence[str],
    receipt: str | int,
    by_module: Mapping[str, Sequence[KernelConfig]],
) -> dict[str, Any]:
    """Return the tables of a manifest up to its modules, which drop all other directions."""
    modules = []
    for module in sorted(by_module):
        directions = {config.direction for config in by_module[module]}
        of_aiter = [d for d in _MODULES[module][1] if d not in ADDABLE]
        dropped = [d for d in of_aiter if d not in directions]
        added = sorted(directions & {*ADDABLE})
        table: dict[str, Any] = {"name": module, "receipt": receipt}
        table |= {"drop_directions": dropped} if dropped else {}
        modules.append(table | ({"add_directions": added} if added else {}))
    return {
        "qola": {"namespace": namespace},
        "build": {"architectures": [*archs], "mode": "cpp_itfs"},
        "modules": modules,
    }


def _variant(config: KernelConfig, flags: Sequence[str]) -> _Variant:
    values: dict[str, Any] = {"dtype": config.dtype, "hdim": [config.hdim_q, config.hdim_v]}
    values |= {"mode": config.mode, "deterministic": config.deterministic}
    values |= {f"has_{name}": getattr(config, name) for name in flags}
    variant = {key: [value] for key, value in values.items() if value is not None}
    if config.bias is not None:
        variant |= {"has_bias": [config.bias == "bias"], "has_alibi": [config.bias == "alibi"]}
    return tuple((key, json.dumps(value)) for key, value in variant.items())


def _merged(variants: Iterable[_Variant]) -> list[_Variant]:
    """Merge variants that differ in one key only."""
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
