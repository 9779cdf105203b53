"""Runs CK's generators in this process, and observes the kernels that they emit.

``python -m qola_lab.fmha.observe TREE FILE`` writes archs.json in ten seconds.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from qola.aiter.tree import read_tree
from qola.codegen.ck.link import traits_of
from qola.codegen.ck.observe import Recording
from qola.codegen.ck.output import archs_of, record, tags_of
from qola.codegen.ck.rows import Dispatch, read_base
from qola.codegen.ck.vocabulary import fields_of
from qola.kernel.archs import Archs
from qola.kernel.config import KernelConfig
from qola.manifest.constants import PROFILES
from qola_lab.fmha.registry import Entry, Registry

#: Of each direction, receipts that have all its tiles between them: CK's default, and float32.
_RECEIPTS = (
    *(("fwd", 0), ("fwd", 800), ("fwd_splitkv", 0), ("fwd_appendkv", 0), ("pagedkv_prefill", 0)),
    *(("batch_prefill", 0), ("bwd", 2), ("bwd", 800)),
)
#: One of each family of archs that CK has kernels for.
_TARGETS = ("gfx942", "gfx950", "gfx1201")


def observe_kernels(
    tree: Path,
    direction: str,
    archs: Sequence[str] = ("gfx942", "gfx950"),
    receipt: int = PROFILES["aiter_cpp"],
) -> Registry:
    """Return the kernels that a receipt has for a direction, of no library yet.

    Args:
        tree: of AITER.
        direction: fwd, fwd_splitkv, batch_prefill, bwd, fwd_appendkv or pagedkv_prefill.

    Raises:
        QolaError: the directory is not an AITER tree.
        NotUnderstoodError: its CK cannot be followed.
    """
    script = tree / read_tree(tree).fmha_dir / "generate.py"
    seen = _recorded(script, direction, receipt, archs)
    base = read_base(direction, seen, Dispatch(seen))
    found = {kernel.name: kernel for kernel in base.kernels}
    tags = tags_of(archs, base.rows, found.values())
    return Registry(
        Entry("", k.name, archs_of(k, tags), KernelConfig.from_fields(direction, k.role, k.fields))
        for k in found.values()
    )


def observe_archs(tree: Path) -> Archs:
    """Return the tiles and pipelines of each arch in an AITER tree's CK.

    Raises:
        QolaError: the directory is not an AITER tree, or its CK cannot be parsed.
    """
    script = tree / read_tree(tree).fmha_dir / "generate.py"
    configs = (config for call in _RECEIPTS for config in _configs(script, *call))
    return Archs.observed(configs)


def _recorded(script: Path, direction: str, receipt: int, archs: Sequence[str]) -> Recording:
    # With its bytecode, a fetched tree would count as edited.
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CK's
            return record(script, direction, receipt, archs, Path(scratch))
    finally:
        sys.dont_write_bytecode = before


def _configs(script: Path, direction: str, receipt: int) -> Iterator[KernelConfig]:
    seen = _recorded(script, direction, receipt, _TARGETS)
    roles: dict[type, str] = {}
    for file, item in seen.kernels.items():
        if type(item) not in roles:
            (traits,) = traits_of(seen.files[file])
            roles[type(item)] = traits.role or direction
        fields = fields_of(item, {})
        # The dispatch has it, which nobody asks here.
        fields.setdefault("hdim_v", fields["hdim_q"])
        yield KernelConfig.from_fields(direction, roles[type(item)], fields)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(observe_archs(Path(sys.argv[1])).to_json(), encoding="utf-8")
