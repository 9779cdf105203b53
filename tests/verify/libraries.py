"""Libraries of the pinned tree, as far as their dispatch and their kernels' sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from qola.plan.model import KernelInstance, Plan
from qola.repository import __main__ as repository
from qola.verify.dispatch import Dispatch

#: Every field of kernels but paged K and V, at head dimensions with and without padding.
MANIFEST = """\
[qola]
namespace = "small"
[build]
architectures = ["gfx942", "gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
receipt = 700
[[modules]]
name = "libmha_bwd"
receipt = 700
[[mha_fwd_variants]]
dtype = "bf16"
hdim = 128
mode = ["batch", "group"]
has_alibi = false
has_bias = false
[[mha_fwd_variants]]
dtype = "fp16"
hdim = 64
[[mha_bwd_variants]]
dtype = "fp16"
hdim = 64
has_alibi = false
deterministic = false
[[mha_bwd_variants]]
dtype = "bf16"
hdim = 128
has_bias = false
has_alibi = false
has_dropout = false
has_dbias = false
deterministic = true
"""


@dataclass(frozen=True)
class Library:
    """A library of a manifest's repository."""

    root: Path
    plan: Plan
    module: str
    api: str

    @property
    def kernels(self) -> list[KernelInstance]:
        """Its kernel instances that a dispatch of CK launches."""
        direction = self.api.removeprefix("fmha_").removesuffix("_api.cpp")
        every = self.plan.kernels_of(self.plan.module(self.module))
        return [
            kernel
            for kernel in every
            if kernel.direction == direction and not kernel.role.startswith("asm_")
        ]

    @cached_property
    def dispatch(self) -> Dispatch:
        """Its dispatch."""
        sources: Mapping[str, str] = {
            kernel.name: (self.root / kernel.source).read_text("utf-8") for kernel in self.kernels
        }
        text = (self.root / self.module / "dispatch" / self.api).read_text("utf-8")
        return Dispatch(text, sources)


def libraries(
    root: Path, aiter_tree: Path, text: str = MANIFEST, *, keep: bool = False
) -> list[Library]:
    """Write the repository of a manifest, and return its libraries.

    Args:
        keep: with unreachable kernel instances.
    """
    manifest = root / "small.toml"
    told = text.replace("[build]\n", "[build]\nkeep_unreachable = true\n") if keep else text
    manifest.write_text(told, encoding="utf-8")
    words = ["--name", "small", "--manifest", str(manifest), "--display", "small.toml"]
    words += ["--aiter", str(aiter_tree), "--aiter-repository", "aiter"]
    assert repository.main([*words, "--output", str(root / "out")]) == 0
    plan = Plan.from_json((root / "out/plan.json").read_text(encoding="utf-8"))
    return [
        Library(root / "out", plan, "libmha_fwd", "fmha_fwd_api.cpp"),
        Library(root / "out", plan, "libmha_bwd", "fmha_bwd_api.cpp"),
    ]
