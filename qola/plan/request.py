"""The request of a plan: a manifest, an AITER tree and the choices of one build."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from qola.aiter.attention import ATTENTION, TORCH_ATTENTION, is_attention
from qola.aiter.tree import AiterTree, ModuleConfig, read_tree
from qola.codegen.types import Selection
from qola.common.answers import NO_ANSWERS, AnswerCache
from qola.common.layout import patches_folder
from qola.fetch.git import CheckoutHead, read_head
from qola.fetch.pins import PatchPin, patch_files, pin_patches, pinned_id, recorded_patches
from qola.manifest.archs import native_archs, resolve_archs, split
from qola.manifest.load import Manifest, ModuleSpec
from qola.plan.spec import BuildSpec
from qola.plan.triton_kernels import triton_files
from qola_base.errors import Finding


@dataclass(frozen=True)
class Request:
    """The inputs of a plan.

    Attributes:
        name: name of the manifest; targets are named after it.
        spec: the choices that replace the manifest's.
        default_archs: archs if neither spec nor manifest names any ($GPU_ARCHS); () for the GPUs of
            this machine.
        native: returns the archs of this machine; only called if they are needed.
        rocm_version: HIP version of the toolchain, None if there is none.
        aiter_id: commit or version of the tree according to its pin, "" for a tree without one.
        head: HEAD of a git checkout; empty if the tree has a pin, or the manifest names no commit.
        aiter_patches: patches that the tree has.
        patches: patches in the manifest's patches_dir.
        triton: Python files of the manifest's kernels in Triton, by path.
        answers: cache of plans and of generators' answers.
    """

    name: str
    manifest: Manifest
    tree: AiterTree
    spec: BuildSpec = field(default_factory=BuildSpec)
    default_archs: tuple[str, ...] = ()
    native: Callable[[], tuple[str, ...]] = native_archs
    rocm_version: str | None = None
    aiter_id: str = ""
    aiter_patches: tuple[PatchPin, ...] = ()
    patches: tuple[PatchPin, ...] = ()
    triton: Mapping[str, str] = field(default_factory=dict)
    answers: AnswerCache = NO_ANSWERS
    head: CheckoutHead = field(default_factory=CheckoutHead)

    def resolve_archs(self) -> tuple[str, ...]:
        """Return the archs to plan for, sorted."""
        return resolve_archs(self.spec.archs, self.manifest, self.default_archs, self.native)


def make_request(
    manifest: Manifest,
    file: Path,
    tree: Path,
    spec: BuildSpec,
    environ: Mapping[str, str],
    *,
    name: str,
    trees: Mapping[str, Path],
    rocm_version: str | None = None,
    answers: AnswerCache = NO_ANSWERS,
    checkout: Path | None = None,
) -> Request:
    """Read the tree, the patches and the Triton files of a request.

    Args:
        file: the manifest's file; its patches and Triton files are relative to its directory.
        tree: a prepared AITER tree.
        environ: GPU_ARCHS names the archs if neither spec nor manifest does.
        trees: fetched trees of kernels in Triton, by commit.
        checkout: the user's own tree, if `tree` links to it or is a patched copy of it.
    """
    aiter_id = pinned_id(tree)
    reads_head = bool(manifest.aiter_commit) and not aiter_id
    patches: tuple[PatchPin, ...] = ()
    if manifest.patches_dir and not spec.override_aiter_commit:
        place = manifest.place("qola", "patches_dir")
        patches = pin_patches(
            patch_files(patches_folder(manifest.patches_dir, file.parent), place=place)
        )
    return Request(
        name=name,
        manifest=manifest,
        tree=read_tree(tree),
        spec=spec,
        default_archs=split([environ.get("GPU_ARCHS", "")]),
        rocm_version=rocm_version,
        aiter_id=aiter_id,
        aiter_patches=recorded_patches(tree),
        patches=patches,
        triton=triton_files(manifest, file, trees),
        answers=answers,
        head=read_head(checkout or tree) if reads_head else CheckoutHead(),
    )


@dataclass(frozen=True)
class ResolvedModule:
    """A module of the manifest with its evaluated entry.

    Attributes:
        config: its entry of optCompilerConfig.json with the manifest's changes.
        selection: selects its kernel instances.
        torch: it is compiled with PyTorch's headers.
        rocm: names of the ROCm libraries whose headers it includes, without HIP, sorted; () for
            attention.
    """

    spec: ModuleSpec
    config: ModuleConfig
    selection: Selection
    torch: bool = False
    rocm: tuple[str, ...] = ()


@dataclass(frozen=True)
class ResolvedRequest:
    """A request that passed the checks of `qola.plan.resolve.resolve`; its archs are sorted."""

    request: Request
    archs: tuple[str, ...]
    modules: tuple[ResolvedModule, ...]
    warnings: tuple[Finding, ...]

    @property
    def attention(self) -> tuple[ResolvedModule, ...]:
        """The C++ libraries, which have kernel instances."""
        return tuple(module for module in self.modules if module.config.name in ATTENTION)

    @property
    def torch(self) -> tuple[ResolvedModule, ...]:
        """The torch modules of attention, which have kernel instances too."""
        return tuple(module for module in self.modules if module.config.name in TORCH_ATTENTION)

    @property
    def further(self) -> tuple[ResolvedModule, ...]:
        """The modules that are not attention."""
        return tuple(module for module in self.modules if not is_attention(module.config.name))

    def place(self, spec: ModuleSpec, key: str) -> str:
        """Return the place of a module's key in the manifest."""
        return self.request.manifest.place("modules", spec.index, key)
