"""Samples problems for AITER's assembly (v3) kernels and their helper kernels.

Only the library's host code decides which of them serves a problem: it is called with many
problems, and the recorded launches show the kernel. Names of code objects are hints that keep the
number of calls low. A wrong hint leaves a kernel without problems, which the outcome reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import PurePosixPath

import numpy as np

from qola.codegen.types import FieldValue
from qola_lab.reference.masks import BOTTOM_RIGHT, NO_MASK, TOP_LEFT, Mask
from qola_lab.verify.case import Sample
from qola_lab.verify.propose import T, pick, propose

CALLS = 400
"""Calls of the entry point for each sample."""
#: Rows of Q and columns of K that such kernels take at once.
_TILES = ("b64x64", "b128x128", "b128x192", "b256x64")
_HDIMS = ((64, 64), (128, 128), (192, 192), (192, 128))
_DTYPES = ("bf16", "fp16")
#: Data types by the word for them in names of code objects.
_NAMED = {**{dtype: dtype for dtype in _DTYPES}, "fp8": "fp8bf16"}
#: AITER's numbers for how float32 becomes bf16.
_CONVERSIONS = {"rtne": 0, "rtna": 1, "rtz": 2}
#: Compute units by which AITER takes a device for an MI308.
_MI308 = 80
_HDIM = re.compile(r"hd(\d+)")


@dataclass(frozen=True)
class Hints:
    """Properties of problems that a kernel may serve.

    Attributes:
        sums: values of is_v3_atomic_fp32.
        cu_count: see Device.
    """

    dtypes: tuple[str, ...] = _DTYPES
    hdims: tuple[tuple[int, int], ...] = _HDIMS
    groups: tuple[bool, ...] = (False, True)
    masks: tuple[str, ...] = ("no", "causal", "window")
    sums: tuple[bool, ...] = (True, False)
    conversion: int = 1
    cu_count: int = 0


def hints_of_code_object(key: str) -> Hints:
    """Return the hints in AITER's name of a code object."""
    path = PurePosixPath(key)
    words = path.stem.split("_")
    sizes = [int(found[1]) for word in words if (found := _HDIM.fullmatch(word))]
    masks = {"causal": "causal", "swa": "window"}
    shuffles = "shuffle" in words
    return Hints(
        dtypes=tuple(dtype for word, dtype in _NAMED.items() if word in words) or _DTYPES,
        hdims=((sizes[0], sizes[-1]),) if sizes else _HDIMS,
        groups=("group" in words,),
        masks=Hints.masks
        if shuffles
        else tuple(m for w, m in masks.items() if w in words) or ("no",),
        sums=(False,) if shuffles or "a16" in words else (True,),
        conversion=next((n for word, n in _CONVERSIONS.items() if word in words), 1),
        cu_count=_MI308 if "MI308" in path.parts else 0,
    )


def hints_of_fields(
    fields: Mapping[str, FieldValue], code_objects: Sequence[str]
) -> Iterator[Hints]:
    """Yield hints for a kernel with these fields that runs before or after code objects."""
    dtype, group = str(fields.get("dtype")), fields.get("mode") == "group"
    for hints in map(hints_of_code_object, code_objects):
        if dtype in hints.dtypes and group in hints.groups and not hints.cu_count:
            yield replace(hints, dtypes=(dtype,), groups=(group,))


def propose_assembly(
    direction: str,
    hints: Hints,
    edge: int,
    chosen: np.random.Generator,
    max_work: int,
    *,
    many: bool,
    every_length: bool = False,
) -> Sample | None:
    """Return a problem that a kernel with these hints may serve; arguments are as of `propose`."""

    def one(of: Sequence[T]) -> T:
        return pick(chosen, of)

    hdim_q, hdim_v = one(hints.hdims)
    fields: dict[str, FieldValue] = {
        "dtype": one(hints.dtypes),
        "hdim_q": hdim_q,
        "hdim_v": hdim_v,
        "mode": "group" if one(hints.groups) else "batch",
        "tile": one(_TILES),
    }
    how = {"many": many, "every_length": every_length}
    sample = propose(direction, fields, edge, chosen, max_work, **how)
    if sample is None:
        return None
    problem = sample.problem
    longest = max(*problem.seqlen_q, *problem.seqlen_k, 2)
    left, right = (int(chosen.integers(1, longest)) for _ in range(2))
    masks = {
        "no": (NO_MASK,),
        "causal": (BOTTOM_RIGHT, TOP_LEFT),
        "window": (Mask("top_left", left, right), Mask("bottom_right", left, right)),
    }
    problem = replace(
        problem,
        **asdict(one(masks[one(hints.masks)])),
        use_asm=True,
        how_v3_bf16_cvt=hints.conversion,
        is_v3_atomic_fp32=one(hints.sums),
    )
    return replace(sample, problem=problem)
