"""The attention modules: the C++ libraries that AITER builds without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

from qola.aiter.tree import AiterTree
from qola.errors import AiterError, Finding


@dataclass(frozen=True)
class AttentionModule:
    """What belongs to one of them.

    Attributes:
        direction: its main one, fwd or bwd; also that of its assembly (v3) kernels.
        entry_source: qola's source of its entry points, without suffix.
        asm_subdir: folder below AITER's hsa/<arch> with its assembly (v3) kernels.
    """

    direction: str
    entry_source: str
    asm_subdir: str


ATTENTION = {
    "libmha_fwd": AttentionModule("fwd", "mha_fwd", "fmha_v3_fwd"),
    "libmha_bwd": AttentionModule("bwd", "mha_bwd", "fmha_v3_bwd"),
}
"""The attention modules by name."""


@dataclass(frozen=True)
class Entry:
    """An entry point of AITER that qola passes on.

    Attributes:
        name: the function, in namespace aiter there and in the manifest's namespace here.
        header: AITER's header that declares it, without suffix; also the name of qola's source.
        forms: the numbers of parameters that qola's source of that name serves.
    """

    name: str
    header: str
    forms: tuple[int, ...]


ENTRIES = {
    "fwd": Entry("mha_fwd", "mha_fwd", (12, 2)),
    "fwd_splitkv": Entry("mha_fwd_splitkv", "mha_fwd", (7,)),
    "batch_prefill": Entry("mha_batch_prefill", "mha_fwd", (8,)),
    "bwd": Entry("mha_bwd", "mha_bwd", (15, 2)),
}
"""Entry points by the direction they run.

The longer forms are those of the 0.1.7 wheels; later trees take (args, stream_config).
"""


def parameters(tree: AiterTree, entry: Entry) -> int:
    """Return how many parameters an entry point has in this tree: it tells its form.

    Raises:
        AiterError: the header is missing, declares no such function, or a form not served.
    """
    header = f"{tree.csrc_dir}/include/{entry.header}.h"
    count = tree.parameter_count(header, entry.name)
    if count not in entry.forms:
        raise AiterError(
            Finding(
                place=header,
                found=f"{entry.name} takes {count} parameters"
                if count
                else f"no declaration of {entry.name}",
                expected=f"{' or '.join(map(str, entry.forms))} parameters",
                fix="use an AITER whose entry points are served, or leave the direction out "
                "(drop_directions)",
            )
        )
    return count
