"""Plans, dispatches and kernel sources of libraries, generated from the pinned AITER tree."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from qola.aiter.attention import ATTENTION
from qola.plan.model import Plan
from qola.repository import __main__ as repository
from qola_lab.verify.repository import Dispatch, Repository

#: All fields of kernels except paged K and V, with and without padded head dimensions.
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
    """A library in a manifest's repository, with the kernels that CK's dispatch launches."""

    def __init__(self, root: Path, module: str) -> None:
        self.root, self.module = root, module
        self._repository = Repository(module, root)
        self._direction = ATTENTION[module].direction
        self.plan = self._repository.plan
        self.kernels = self._repository.of_direction(self._direction)

    @cached_property
    def dispatch(self) -> Dispatch:
        """The library's dispatch."""
        return self._repository.dispatch(self._direction)


def libraries(
    root: Path, aiter_tree: Path, text: str = MANIFEST, *, keep: bool = False
) -> list[Library]:
    """Write the repository of a manifest, and return its libraries.

    Args:
        keep: whether to keep unreachable kernel instances.
    """
    manifest = root / "small.toml"
    edited = text.replace("[build]\n", "[build]\nkeep_unreachable = true\n") if keep else text
    manifest.write_text(edited, encoding="utf-8")
    options = ["--name", "small", "--manifest", str(manifest), "--display", "small.toml"]
    options += ["--aiter", str(aiter_tree), "--aiter-repository", "aiter"]
    assert repository.main([*options, "--output", str(root / "out")]) == 0
    plan = Plan.from_json((root / "out/plan.json").read_text("utf-8"))
    return [Library(root / "out", module.name) for module in plan.modules]
