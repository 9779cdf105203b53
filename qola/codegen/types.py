"""The input of kernel generation, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Literal, get_args

from qola.kernel import config
from qola.kernel.config import KernelConfig
from qola.kernel.selection import RequestedKernel
from qola_base.errors import Finding

if TYPE_CHECKING:  # the generator process has no third-party packages, which a manifest may need
    from qola.manifest.types import BwdVariant, FwdVariant

FieldValue = config.FieldValue
Bucket = tuple[int, int]
"""A pair of head dimensions (hdim_q, hdim_v) for which the dispatch has kernels."""

Level = Literal["opaque", "linked", "filtered"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""How well qola understands a direction, in ascending order; see `Direction`."""


@dataclass(frozen=True)
class Selection:
    """Selects kernels of a module.

    The manifest's resolution makes it (qola/plan/resolve.py).

    Attributes:
        receipt: CK's receipt for variants without their own; None for AITER's receipt.
        variants: () keeps all kernels of the receipt.
        drop_directions: directions without kernels; their dispatch returns -1.
        asm: embed AITER's assembly (v3) kernels that serve problems of the variants.
        embedded: folders below ``hsa/<arch>`` whose kernels may be embedded; None for all folders
            that the module launches from.
        drop_srcs: names of the module's sources that are left out.
        level: the level that each direction must reach.
        keep_unreachable: keep kernels that the dispatch cannot reach.
        add_directions: directions of the module that must have kernels.
        kernels: requested kernels, in addition to those of variants; without variants, the only
            kernels.
        place: returns the place in the manifest of a key of the module, for findings.
    """

    receipt: int | None = None
    variants: Sequence[FwdVariant | BwdVariant] = ()
    drop_directions: frozenset[str] = frozenset()
    asm: bool = False
    embedded: Sequence[str] | None = None
    drop_srcs: frozenset[str] = frozenset()
    level: Level = LEVELS[0]
    keep_unreachable: bool = False
    add_directions: frozenset[str] = frozenset()
    kernels: Sequence[RequestedKernel] = ()
    place: Callable[[str], str] = "[[modules]].{}".format


@dataclass(frozen=True)
class KernelInstance:
    """One kernel: one source file, one target, one cache entry.

    Attributes:
        name: CK's name for it, the stem of its file.
        direction: fwd, fwd_splitkv, batch_prefill, pagedkv_prefill, fwd_appendkv or bwd.
        role: fwd, splitkv, splitkv_combine, batch_prefill, pagedkv, appendkv, dq_dk_dv, dot_do_o
            or convert_dq; asm_dot_do_o and asm_convert_dq run around an assembly (v3) kernel.
        archs: the architectures for which it is compiled, each with its own code object.
        sha256: digest of its source.
        fields: its `KernelConfig.fields()`, sorted by name; {} if CK's object cannot be read. An
            assembly helper has some of these fields.
        variants: `index` of each variant that selects it; () without variants.
        module, entry: names of its module and of the source of its kernel library in the plan;
            "" before.
    """

    name: str
    direction: str
    role: str
    archs: tuple[str, ...]
    sha256: str
    fields: Mapping[str, FieldValue]
    variants: tuple[int, ...] = ()
    module: str = ""
    entry: str = ""

    @property
    def config(self) -> KernelConfig:
        """The config of a kernel whose `fields` are complete.

        Raises:
            ConfigError: it is an assembly helper, or CK's object could not be read.
        """
        return KernelConfig.from_fields(self.direction, self.role, self.fields)

    @property
    def file(self) -> str:
        """Path of its source below the module's directory."""
        return f"kernels/{self.name}.cpp"

    @property
    def source(self) -> str:
        """Path of its source in the manifest's repository."""
        return f"{self.module}/{self.file}"


@dataclass(frozen=True)
class GeneratedSource:
    """A generated source that is not a kernel: a dispatch, an entry point or part of the v3 path.

    Attributes:
        file: path below the output directory, ``dispatch/<name>``.
        direction: the direction it serves; an entry point names its module's main one.
        role: ``dispatch``, ``entry``, ``asm`` (host code of the v3 path, without kernels) or
            ``table`` (a header of the assembly path).
        archs: it belongs to the libraries for exactly these architectures.
    """

    name: str
    file: str
    sha256: str
    direction: str
    role: str
    archs: tuple[str, ...] = ()


def arch_sets(archs: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return every set of architectures for which a library may be built, all of them first.

    A dispatch names its kernels, so each set needs its own dispatch.
    """
    ordered = sorted(archs)
    sizes = range(len(ordered), 0, -1)
    return tuple(chosen for size in sizes for chosen in combinations(ordered, size))


@dataclass(frozen=True)
class CodeObject:
    """One .co file of AITER's assembly (v3) kernels, to be embedded.

    Attributes:
        key: the library looks it up by ``hsa/gfx942/fmha_v3_fwd/MI300/<kernel>.co``.
        size: in bytes.
    """

    key: str
    file: str
    arch: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Explanation:
    """The reason why one kernel of the used receipts is kept or dropped.

    Attributes:
        dropped_by: the rule that drops it, "" if it is kept.
        asked_by: places in the manifest that request it, or a kernel whose helper it is.
    """

    name: str
    direction: str
    role: str
    archs: tuple[str, ...]
    fields: Mapping[str, FieldValue] = field(repr=False)
    kept_by: tuple[int, ...]
    dropped_by: str
    asked_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Direction:
    """How well qola understands a direction of CK.

    Attributes:
        level: ``filtered``: variants select rows, and the dispatch is proven to call exactly the
            kept kernels. ``linked``: all of a receipt, and every call of the dispatch
            is proven to have its kernel. ``opaque``: all of a receipt.
        reason: why it is not filtered.
        rows: number of dispatch entries of the used receipts.
        unknown: fields that the dispatch compares and no variant can name.
    """

    name: str
    level: Level
    reason: str
    rows: int
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class KernelSet:
    """Everything generated for one module.

    Attributes:
        kernels: sorted by direction, then in CK's order.
        sources: dispatch sources, then entry points.
        warnings: dispatch hazards that CK itself has.
        explanations: one for each kernel of the used receipts; () unless requested.
        code_objects: assembly (v3) kernels to embed, by key; () without a v3 path.
        headers: names by which sources include generated headers, such as
            ``asm_fmha_v3_bwd_configs.hpp``. Every other include must lead into the tree.
        tables: these headers.
        inputs: files of the tree from which the tables were generated.
        directions: the level of each direction, also of those without kernels.
    """

    kernels: tuple[KernelInstance, ...]
    sources: tuple[GeneratedSource, ...]
    warnings: tuple[Finding, ...] = ()
    explanations: tuple[Explanation, ...] = field(default=(), repr=False)
    code_objects: tuple[CodeObject, ...] = ()
    headers: tuple[str, ...] = ()
    tables: tuple[GeneratedSource, ...] = ()
    inputs: tuple[str, ...] = ()
    directions: tuple[Direction, ...] = ()
