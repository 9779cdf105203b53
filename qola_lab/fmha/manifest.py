"""Makes manifests that build chosen kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from qola.kernel.config import ConfigError, KernelConfig
from qola.manifest.constants import ADDABLE
from qola.manifest.toml import TomlTable, toml_document
from qola_base.errors import Finding

#: Directions of each module, without those that manifests add.
_DIRECTIONS: Mapping[str, tuple[str, ...]] = {
    "libmha_bwd": ("bwd",),
    "libmha_fwd": ("fwd", "fwd_splitkv", "batch_prefill"),
}
#: Families of helper kernels, which come along with others.
_HELPERS = ("fwd_splitkv_combine", "bwd_dot_do_o", "bwd_convert_dq")


def make_manifest(
    configs: Iterable[KernelConfig],
    archs: Sequence[str],
    *,
    namespace: str = "kernels",
    receipt: str | int = "aiter_cpp",
) -> str:
    """Return the manifest of the libraries that have only these kernels and helper kernels.

    Args:
        configs: main kernels, also such that CK does not enumerate; of two that take the same
            problems, the first gets them.
        archs: such as gfx950.
        receipt: CK's, by name or number; kernels that CK lacks are made by the receipt's.

    Raises:
        ConfigError: `configs` is empty, or names a helper kernel.
    """
    kernels = list(dict.fromkeys(configs))
    if helpers := [config for config in kernels if config.family in _HELPERS]:
        why = "helper kernels come along with main kernels"
        raise ConfigError(
            Finding(config.name, f"family {config.family}: {why}", "a main kernel")
            for config in helpers
        )
    if not kernels:
        raise ConfigError(Finding("configs", "none", "a kernel"))
    modules: list[TomlTable] = []
    names: list[TomlTable] = []
    for module, known in _DIRECTIONS.items():
        own = [c for c in kernels if (c.direction == "bwd") == (module == "libmha_bwd")]
        directions = {config.direction for config in own}
        dropped = [direction for direction in known if direction not in directions]
        keys = {"drop_directions": dropped, "add_directions": sorted(directions & {*ADDABLE})}
        if own:
            table = {"name": module, "receipt": receipt}
            modules.append(table | {key: found for key, found in keys.items() if found})
            names.append({"names": [config.name for config in own]})
    tables: dict[str, TomlTable | list[TomlTable]] = {
        "qola": {"namespace": namespace},
        "build": {"architectures": [*archs], "mode": "cpp_itfs"},
        "modules": modules,
        "kernels": names,
    }
    return toml_document(tables)
