"""The manifest as dataclasses: the result of `qola.manifest.load.load`.

`index` counts from 0 within a kind of table. `place` is the place of a table for findings:
``manifest.toml:14 [[mha_fwd_variants]]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from qola.kernel.selection import RequestedKernel, VariantFilter
from qola.manifest.fields import BY_NAME
from qola.manifest.toml import Lines, Path
from qola_base.errors import Finding, visible
from qola_base.json_types import JsonObject, JsonValue

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

BuildMode = Literal["pybind", "cpp_itfs"]
ManifestMode = Literal["pybind", "cpp_itfs", "aiter"]
Hdims = tuple[tuple[int, int], ...]


def _canonical(spec: DataclassInstance, **own: JsonValue) -> JsonObject:
    """Return the fields of a table except its position, with tuples as lists; `own` replaces."""
    names = (f.name for f in fields(spec) if f.name not in ("index", "place"))
    return {name: own.get(name, _lists(getattr(spec, name))) for name in names}


def _lists(value: Any) -> Any:
    return [_lists(item) for item in value] if isinstance(value, tuple) else value


@dataclass(frozen=True)
class ModuleSpec:
    """One ``[[modules]]`` table.

    Attributes:
        hsa_subdirs: None if not given (the module's own apply); () embeds nothing.
        names: further names of a module that AITER's Python imports, sorted.
        overrides: the optCompilerConfig.json keys in alphabetical order, lists as tuples, tables as
            tuples of (key, value).
    """

    name: str
    mode: BuildMode | None = None
    receipt: int | None = None
    group: str | None = None
    drop_srcs: tuple[str, ...] = ()
    drop_directions: tuple[str, ...] = ()
    add_directions: tuple[str, ...] = ()
    hsa_subdirs: tuple[str, ...] | None = None
    overrides: tuple[tuple[str, Any], ...] = ()
    names: tuple[str, ...] = ()
    index: int = 0

    def to_json(self) -> JsonObject:
        """Return the canonical form, without empty `add_directions` and `names`."""
        overrides = {
            key: {k: _lists(v) for k, v in value}
            if key == "flags_extra_hip_per_source"
            else _lists(value)
            for key, value in self.overrides
        }
        data = _canonical(self, overrides=overrides)
        for key in ("add_directions", "names"):
            if not data[key]:
                del data[key]
        return data


_NO_DIMENSIONS = ("index", "place", "receipt", "hdim")
"""Fields of variants that are not fields of kernels."""


@dataclass(frozen=True, kw_only=True)
class _Variant:
    """The dimensions that variants of both directions share.

    Every dimension holds the values to keep, in CK's order; a kernel instance belongs to the
    variant if each of its fields is among them. None means all values of a dimension that depends
    on the receipt (`dtype`, `hdim`).
    """

    index: int
    place: str = field(compare=False)
    receipt: int | None
    dtype: tuple[str, ...] | None
    bias: tuple[str, ...]
    hdim: Hdims | None
    mode: tuple[str, ...]

    table: ClassVar[str]

    def to_json(self) -> JsonObject:
        """Return the canonical form."""
        return _canonical(self)

    def filter(self, default_receipt: int) -> VariantFilter:
        """Return the filter that keeps the variant's kernels.

        Args:
            default_receipt: CK's receipt for a variant without its own.
        """
        dimensions = (f.name for f in fields(self) if f.name not in _NO_DIMENSIONS)
        values = {name: getattr(self, name) for name in dimensions}
        return VariantFilter(
            index=self.index,
            place=self.place,
            receipt=default_receipt if self.receipt is None else self.receipt,
            where={name: allowed for name, allowed in values.items() if allowed is not None},
            hdims=self.hdim,
        )


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


_NAMED_DTYPES = ("fp16", "bf16", "fp8bf16", "fp8", "fp32")
_NAMED_BIASES = {"nbias": "no", "bias": "bias", "alibi": "alibi"}
_NAMED_FLAGS = ("mask", "lse", "dropout", "skip", "sink", "dbias", "deterministic")


def _words(name: str) -> Iterator[tuple[str, str | bool]]:
    """Yield each field that a name of AITER's states, with its value."""
    for word in name.split("_"):
        if word in _NAMED_DTYPES:
            yield "dtype", word
        elif word in _NAMED_BIASES:
            yield "bias", _NAMED_BIASES[word]
        elif word.removeprefix("n") in _NAMED_FLAGS:
            yield word.removeprefix("n"), not word.startswith("n")


def unserved(name: str, variants: Sequence[FwdVariant | BwdVariant]) -> str:
    """Return the fields of a name for which no variant selects kernels, "" if one selects all."""
    least: list[str] = []
    for variant in variants:
        lacking = [
            f"{field} = {str(value).lower() if isinstance(value, bool) else value}"
            for field, value in _words(name)
            if (values := getattr(variant, field, None)) is not None and value not in values
        ]
        if not lacking:
            return ""
        least = lacking if not least or len(lacking) < len(least) else least
    return ", ".join(least)


@dataclass(frozen=True)
class TritonSpec:
    """One ``[[triton]]`` table.

    Attributes:
        file: "" for qola's own kernels.
        commit: the commit of `remote` whose tree has the files; "" for files next to the manifest.
        archs: () for those of the manifest.
        choices: values by name, including those of dtypes, hdims and causal.
    """

    kernels: tuple[str, ...]
    file: str = ""
    deps: tuple[str, ...] = ()
    remote: str = ""
    commit: str = ""
    signature: tuple[tuple[str, str], ...] = ()
    name: str = ""
    archs: tuple[str, ...] = ()
    choices: tuple[tuple[str, tuple[str, ...]], ...] = ()
    timeout: int = 0
    index: int = 0

    def to_json(self) -> JsonObject:
        """Return the canonical form.

        Without `remote`: the commit identifies the files, and a URL may contain a password.
        """
        choices = {k: list(v) for k, v in self.choices}
        data = _canonical(self, choices=choices, signature=dict(self.signature))
        del data["remote"]
        return data

    @property
    def files(self) -> tuple[str, ...]:
        """Its file and the files that it imports, as messages name them; () for qola's kernels."""
        paths = (self.file, *self.deps) if self.file else ()
        return tuple(f"{self.commit}/{path}" if self.commit else path for path in paths)


Argument = str | int | bool


@dataclass(frozen=True)
class FunctionSpec:
    """One ``[[functions]]`` table: a function of AITER's csrc/cpp_itfs.

    Attributes:
        arguments: values by name; a list stands for a function for each of its values.
    """

    name: str
    arguments: tuple[tuple[str, Argument | tuple[Argument, ...]], ...] = ()
    index: int = 0

    def to_json(self) -> JsonObject:
        """Return the canonical form."""
        return _canonical(self, arguments={key: _lists(value) for key, value in self.arguments})

    def combinations(self) -> Iterator[dict[str, Argument]]:
        """Yield the arguments of each function."""
        lists = [value if isinstance(value, tuple) else (value,) for _, value in self.arguments]
        for values in product(*lists):
            yield {key: value for (key, _), value in zip(self.arguments, values, strict=True)}


def triton_name(name: str, kernel: str) -> str:
    """Return the name of a kernel's target."""
    return f"{name}_{kernel}" if name else kernel


@dataclass(frozen=True)
class PrebuiltSpec:
    """The ``[prebuilt]`` table: sources of prebuilt bundles and their signer's key, "" for none."""

    urls: tuple[str, ...] = ()
    public_key: str = ""


@dataclass(frozen=True)
class Manifest:
    """A valid manifest.

    Two manifests are equal if they request the same libraries: comments, order of keys, line
    numbers and sources of prebuilt bundles do not count.

    Attributes:
        namespace: "" for plain ``qola::``.
        archs: sorted; () if not given.
        warnings: findings that do not make the manifest invalid.
        max_bytes: size of a library above which the build fails.
        order: preferred kinds of kernels by direction, without default orders.
    """

    file: str = field(compare=False)
    namespace: str
    aiter_commit: str | None
    patches_dir: str | None
    rocm_versions: tuple[str, ...]
    archs: tuple[str, ...]
    mode: ManifestMode
    keep_unreachable: bool
    refuse_proven_faults: bool
    batch: int
    max_bytes: int | None
    modules: tuple[ModuleSpec, ...]
    fwd_variants: tuple[FwdVariant, ...]
    bwd_variants: tuple[BwdVariant, ...]
    warnings: tuple[Finding, ...] = field(compare=False)
    lines: Lines = field(compare=False, repr=False)
    kernels: tuple[RequestedKernel, ...]
    triton: tuple[TritonSpec, ...]
    functions: tuple[FunctionSpec, ...]
    order: Mapping[str, tuple[str, ...]] = field(hash=False)
    prebuilt: PrebuiltSpec = field(compare=False)
    text: str = field(compare=False, repr=False)

    def place(self, *path: str | int) -> str:
        """Return the place of a key, ``"modules", 0, "mode"``, or of its table, for findings."""
        return place_of(self.file, self.lines, path)

    def module_mode(self, module: ModuleSpec, requested: BuildMode | None = None) -> BuildMode:
        """Return the mode of a module: its own, the command line's, or that of ``[build]``."""
        return module.mode or requested or ("pybind" if self.mode == "aiter" else self.mode)

    @property
    def for_aiter(self) -> bool:
        """Whether AITER's own Python imports the modules."""
        return self.mode == "aiter"

    def to_json(self) -> JsonObject:
        """Return the request in a fixed order, without file and lines."""
        optional = {
            "refuse_proven_faults": self.refuse_proven_faults,
            "max_bytes": self.max_bytes,
            "kernels": [kernel.config.name for kernel in self.kernels],
            "triton": [spec.to_json() for spec in self.triton],
            "functions": [spec.to_json() for spec in self.functions],
            "order": {direction: list(kinds) for direction, kinds in self.order.items()},
        }
        return {
            "aiter_commit": self.aiter_commit,
            "namespace": self.namespace,
            "patches_dir": self.patches_dir,
            "rocm_versions": list(self.rocm_versions),
            "architectures": list(self.archs),
            "mode": self.mode,
            "keep_unreachable": self.keep_unreachable,
            "batch": self.batch,
            "modules": [module.to_json() for module in self.modules],
            "mha_fwd_variants": [variant.to_json() for variant in self.fwd_variants],
            "mha_bwd_variants": [variant.to_json() for variant in self.bwd_variants],
            **{key: value for key, value in optional.items() if value},
        }


def place_of(file: str, lines: Lines, path: Path) -> str:
    """Return ``file:line [[table]].key`` for a path of keys and indices."""
    where = f"{file}:{lines.of(path)}"
    if not path:
        return where
    name, *rest = (key for key in path if isinstance(key, str))
    keys = [BY_NAME[name].header if name in BY_NAME else name, *rest]
    return f"{where} {'.'.join(visible(key)[:80] for key in keys)}"
