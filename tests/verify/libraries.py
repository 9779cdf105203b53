"""Libraries of the pinned tree, as far as their dispatch and their kernels' sources."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from qola.aiter.attention import ATTENTION
from qola.plan.model import Plan
from qola.repository import __main__ as repository
from qola.verify.dispatch import Dispatch
from qola.verify.repository import Repository

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


class Library:
    """A library of a manifest's repository, and its kernels that a dispatch of CK launches."""

    def __init__(self, root: Path, module: str) -> None:
        self.root, self.module = root, module
        self._repository = Repository(module, root)
        self._direction = ATTENTION[module].direction
        self.plan = self._repository.plan
        self.kernels = self._repository.of_direction(self._direction)

    @cached_property
    def dispatch(self) -> Dispatch:
        """Its dispatch."""
        return self._repository.dispatch(self._direction)


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
    plan = Plan.from_json((root / "out/plan.json").read_text("utf-8"))
    return [Library(root / "out", module.name) for module in plan.modules]
