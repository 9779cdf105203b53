"""What goes into kernel generation and what comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Literal, get_args

from qola.errors import Finding
from qola.kernel import words
from qola.kernel.config import KernelConfig

if TYPE_CHECKING:  # the generator process has no third-party packages, which a manifest may need
    from qola.manifest.types import BwdVariant, FwdVariant

FieldValue = words.FieldValue
Bucket = tuple[int, int]
"""A pair of head dimensions (hdim_q, hdim_v) for which the dispatch has kernels."""

Level = Literal["opaque", "linked", "filtered"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""How far qola can follow a direction, in ascending order; see `Direction`."""


@dataclass(frozen=True)
class RequestedKernel:
    """A kernel that the manifest names by its config, whether CK enumerates it or not.

    Attributes:
        label: the place in the manifest, for messages.
    """

    label: str
    config: KernelConfig


@dataclass(frozen=True)
class Selection:
    """Which kernels of a module are wanted.

    Attributes:
        receipt: CK's receipt for variants without their own; None takes the one AITER uses.
        variants: points of the manifest's matrix; () keeps everything the receipt gives.
        drop_directions: directions without kernels; their dispatch returns -1.
        asm: embed AITER's assembly (v3) kernels, as far as the variants can ask for them.
        embedded: folders below ``hsa/<arch>`` whose kernels may be embedded; None for all that
            the module launches.
        drop_srcs: names of the module's sources that are left out.
        level: the level that each direction has to reach.
        keep_unreachable: also kernels that the dispatch cannot reach.
        add_directions: those of the module's directions that must have kernels.
        kernels: kernels named one by one, in addition to those of variants; if there are no
            variants, the only kernels.
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


@dataclass(frozen=True)
class KernelInstance:
    """One kernel: one source file, one target, one cache entry.

    Attributes:
        name: CK's name for it, the stem of its file.
        direction: fwd, fwd_splitkv, batch_prefill, pagedkv_prefill, fwd_appendkv or bwd.
        role: fwd, splitkv, splitkv_combine, batch_prefill, pagedkv, appendkv, dq_dk_dv, dot_do_o
            or convert_dq; asm_dot_do_o and asm_convert_dq run before and after an assembly (v3)
            kernel.
        archs: the architectures it is compiled for, each into its own code object.
        sha256: digest of its source.
        fields: its `KernelConfig.fields()`, sorted by name; {} if CK's object cannot be read. An
            assembly helper has some of these fields.
        variants: `index` of each variant that selects it; () without variants.
        module, package, headers, entry: how the plan compiles it: its module, package, header set
            and entry source, by name; "" before it is planned.
    """

    name: str
    direction: str
    role: str
    archs: tuple[str, ...]
    sha256: str
    fields: Mapping[str, FieldValue]
    variants: tuple[int, ...] = ()
    module: str = ""
    package: str = ""
    headers: str = ""
    entry: str = ""

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
        name: file name, such as ``fmha_fwd_api.cpp``.
        file: path below the output directory, ``dispatch/<name>``.
        sha256: digest of that file.
        direction: the direction it serves; an entry point names its module's main one.
        role: ``dispatch``, ``entry``, ``asm`` (host code of the v3 path, without kernels) or
            ``table`` (a header of the assembly path).
        archs: the libraries it belongs to: those built for exactly these architectures.
    """

    name: str
    file: str
    sha256: str
    direction: str
    role: str
    archs: tuple[str, ...] = ()


def arch_sets(archs: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return every set of architectures a library may be restricted to, all of them first.

    A dispatch names its kernels, so each set needs a dispatch of its own.
    """
    ordered = sorted(archs)
    sizes = range(len(ordered), 0, -1)
    return tuple(chosen for size in sizes for chosen in combinations(ordered, size))


@dataclass(frozen=True)
class CodeObject:
    """One .co file of AITER's assembly (v3) kernels, to be embedded.

    Attributes:
        key: what the library looks it up by, ``hsa/gfx942/fmha_v3_fwd/MI300/<kernel>.co``.
        sha256: digest of the file.
        size: of the file, in bytes.
    """

    key: str
    file: str
    arch: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Explanation:
    """Why one kernel of the receipts in use is in or out.

    Attributes:
        dropped_by: the rule that drops it, empty when it is kept.
        asked_by: places that ask for it by itself, or for one that it runs beside.
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
    """How far a direction of the CK at hand is followed.

    Attributes:
        level: ``filtered``, where variants select rows of the dispatch, and it is proven that the
            dispatch of these calls just the kernels kept; ``linked``, all of a receipt, where every
            call of the dispatch is known to have its kernel; or ``opaque``, all of a receipt.
        reason: why it is not filtered.
        rows: number of entries of the dispatch that the receipts in use have.
        unknown: fields that the dispatch asks for and no variant can name.
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
        explanations: one per kernel of the receipts in use; only when asked for.
        code_objects: assembly (v3) kernels to embed, by key; () without a v3 path.
        headers: headers that generators make for the sources, as these include them:
            ``asm_fmha_v3_bwd_configs.hpp``. An include of another one must lead into the tree.
        tables: these headers.
        inputs: files of the tree that decided the tables.
        directions: how far each is followed, those without kernels too.
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
