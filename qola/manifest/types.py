"""The manifest as values: what `qola.manifest.load.load` returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from qola.errors import Finding, visible
from qola.manifest.field_types import plain, plain_fields
from qola.manifest.fields import BY_NAME
from qola.manifest.kernels import KernelSpec
from qola.manifest.order import OrderSpec
from qola.manifest.toml_lines import Lines, Path
from qola.manifest.triton import TritonSpec

BuildMode = Literal["pybind", "cpp_itfs"]
Hdims = tuple[tuple[int, int], ...]
MAX_SHOWN = 80
"""The most characters of a key in a finding's place."""


@dataclass(frozen=True)
class ModuleSpec:
    """One ``[[modules]]`` table.

    `hsa_subdirs` is None when not given (the module's own apply); () embeds nothing. `overrides`
    holds the optCompilerConfig.json keys in alphabetical order, lists as tuples, tables as tuples
    of (key, value).
    """

    name: str
    mode: BuildMode | None
    receipt: int | None
    group: str | None
    drop_srcs: tuple[str, ...]
    drop_directions: tuple[str, ...]
    add_directions: tuple[str, ...]
    hsa_subdirs: tuple[str, ...] | None
    overrides: tuple[tuple[str, object], ...]
    index: int
    line: int = field(compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the canonical form: JSON values, keys in the order of the fields."""
        overrides = {
            key: {k: plain(v) for k, v in value}
            if key in _TABLE_OVERRIDES and isinstance(value, tuple)
            else plain(value)
            for key, value in self.overrides
        }
        told = {**plain_fields(self), "overrides": overrides}
        if not self.add_directions:
            # Manifests without it are digested as before there was such a key.
            del told["add_directions"]
        return told


_TABLE_OVERRIDES = frozenset({"flags_extra_hip_per_source"})


@dataclass(frozen=True, kw_only=True)
class _Variant:
    """The dimensions that variants of both directions share.

    Every dimension holds the values to keep, in CK's order; a kernel instance belongs to the
    variant when each of its fields is among them. None stands for all where "all" depends on the
    receipt (`dtype`, `hdim`). `index` counts from 0 within its kind of table.
    """

    index: int
    line: int = field(compare=False)
    receipt: int | None
    dtype: tuple[str, ...] | None
    bias: tuple[str, ...]
    hdim: Hdims | None
    mode: tuple[str, ...]

    table: ClassVar[str]

    def describe(self) -> str:
        """Return how messages call it: ``[[mha_fwd_variants]] #1 (line 14)``."""
        return f"{BY_NAME[self.table].header} #{self.index + 1} (line {self.line})"

    def to_dict(self) -> dict[str, Any]:
        """Return the canonical form: JSON values, keys in the order of the fields."""
        return plain_fields(self)


@dataclass(frozen=True, kw_only=True)
class FwdVariant(_Variant):
    """One ``[[mha_fwd_variants]]`` table: the kernels of the forward directions to keep."""

    table = "mha_fwd_variants"
    mask: tuple[bool, ...]
    lse: tuple[bool, ...]
    dropout: tuple[bool, ...]
    skip: tuple[bool, ...]
    sink: tuple[bool, ...]


@dataclass(frozen=True, kw_only=True)
class BwdVariant(_Variant):
    """One ``[[mha_bwd_variants]]`` table: the kernels of the backward direction to keep."""

    table = "mha_bwd_variants"
    dbias: tuple[bool, ...]
    mask: tuple[bool, ...]
    dropout: tuple[bool, ...]
    deterministic: tuple[bool, ...]


@dataclass(frozen=True)
class PrebuiltSpec:
    """The ``[prebuilt]`` table: sources of prebuilt bundles, and who signs them ("" for nobody)."""

    urls: tuple[str, ...] = ()
    public_key: str = ""


@dataclass(frozen=True)
class Manifest:
    """A whole manifest, valid in itself.

    `namespace` is "" for plain ``qola::``. `architectures` is sorted, and () when not given.
    `warnings` are findings that did not keep it from being valid. Two manifests are equal when
    they ask for the same: comments, order of keys, line numbers and where a prebuilt bundle may
    come from do not count.
    """

    file: str = field(compare=False)
    namespace: str
    aiter_commit: str | None
    patches_dir: str | None
    rocm_versions: tuple[str, ...]
    architectures: tuple[str, ...]
    mode: BuildMode
    keep_unreachable: bool
    batch: int
    modules: tuple[ModuleSpec, ...]
    fwd_variants: tuple[FwdVariant, ...]
    bwd_variants: tuple[BwdVariant, ...]
    warnings: tuple[Finding, ...] = field(compare=False)
    lines: Lines = field(compare=False, repr=False)
    kernels: tuple[KernelSpec, ...] = ()
    triton: tuple[TritonSpec, ...] = ()
    order: OrderSpec = field(default=OrderSpec())
    prebuilt: PrebuiltSpec = field(default=PrebuiltSpec(), compare=False)
    text: str = field(default="", compare=False, repr=False)

    def place(self, *path: str | int) -> str:
        """Return the place of a key, ``"modules", 0, "mode"``, as findings name it.

        A key that is not written gets the line of its table.
        """
        return place_of(self.file, self.lines, path)

    def module_mode(self, module: ModuleSpec, requested: BuildMode | None = None) -> BuildMode:
        """Return the mode a module is built in: its own, else what the command line asks for.

        So it is in ROCm/QoLA: the command line wins over ``[build]``, not over the module.
        """
        return module.mode or requested or self.mode

    def to_dict(self) -> dict[str, Any]:
        """Return what is asked for as JSON values in a fixed order.

        It holds neither file nor line, so that equal manifests give equal digests.
        """
        return {
            "aiter_commit": self.aiter_commit,
            "namespace": self.namespace,
            "patches_dir": self.patches_dir,
            "rocm_versions": list(self.rocm_versions),
            "architectures": list(self.architectures),
            "mode": self.mode,
            "keep_unreachable": self.keep_unreachable,
            "batch": self.batch,
            "modules": [module.to_dict() for module in self.modules],
            "mha_fwd_variants": [variant.to_dict() for variant in self.fwd_variants],
            "mha_bwd_variants": [variant.to_dict() for variant in self.bwd_variants],
            # Manifests without them are digested as before there were such tables.
            **({"kernels": [spec.config.name for spec in self.kernels]} if self.kernels else {}),
            **({"triton": [spec.to_dict() for spec in self.triton]} if self.triton else {}),
            **({"order": self.order.to_dict()} if self.order.to_dict() else {}),
        }


def place_of(file: str, lines: Lines, path: Path) -> str:
    """Return ``file:line [[table]].key`` for a path of keys and indices."""
    where = f"{file}:{lines.of(path)}"
    if not path:
        return where
    name, *rest = (key for key in path if isinstance(key, str))
    table = BY_NAME.get(name)
    words = [table.header if table else name, *rest]
    return " ".join([where, ".".join(visible(word)[:MAX_SHOWN] for word in words)])
