"""Finds the kernel of each layer of a model, and writes the smallest manifest that has them all."""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qola.aiter.tree import AiterTree
from qola.codegen.ck.link import NotUnderstoodError
from qola.common.folder import Folder
from qola.manifest.toml import TomlTable, TomlTables, toml_document
from qola.plan import planner
from qola.plan.request import Request
from qola.plan.spec import BuildRequest
from qola.query.planned import plan_request
from qola_base.errors import CodegenError, ExitCode, Finding, QolaError
from qola_base.json_types import JsonValue
from qola_lab.fmha.registry import Entry, Registry
from qola_lab.models.config import LayerAttention, LayerGroup, Model
from qola_lab.problems import AttentionProblem, make_problem
from qola_lab.problems.problem import condition_text
from qola_lab.verify.repository import Repository

PAGE_BLOCK_SIZE = 128
"""Rows of a page: Composable Kernel's split-KV kernels take multiples of it."""

#: Lengths of Q, and of K and V, of two sequences: long and short ones.
_PREFILL = (([4096, 1000], [4096, 1000]), ([100, 37], [100, 37]))
_PAGED = (([1, 1], [4096, 1000]), ([100, 37], [4096, 1000]))
_DECODE = (([1, 1], [4096, 1000]),)


@dataclass(frozen=True)
class Phase:
    """A use of a layer's attention in a server.

    Attributes:
        name: prefill (K and V of the same step), context (K and V of earlier steps, merged by the
            LSE), paged (decoding, and prefill in chunks, over a cache in pages) or latent (decoding
            over MLA's compressed cache).
        problems: for long and for short sequences.
    """

    name: str
    problems: tuple[AttentionProblem, ...]


def phases_of(attention: LayerAttention, dtype: str) -> tuple[Phase, ...]:
    """Return the phases of a layer, with problems in the data type of its activations."""
    prefill = Phase("prefill", tuple(_problems("fwd", _PREFILL, attention, dtype)))
    latent = attention.latent
    if latent is None:
        return prefill, Phase("paged", tuple(_problems("fwd_splitkv", _PAGED, attention, dtype)))
    context = {"return_lse": True, "mask_type": "no", "window_size_right": -1}
    absorbed = LayerAttention(attention.nhead_q, 1, latent.hdim_q, latent.hdim_v)
    return (
        prefill,
        Phase("context", tuple(_problems("fwd", _PAGED[1:], attention, dtype, **context))),
        Phase("latent", tuple(_problems("fwd_splitkv", _DECODE, absorbed, dtype))),
    )


def _problems(
    direction: str,
    lengths: tuple[tuple[list[int], list[int]], ...],
    attention: LayerAttention,
    dtype: str,
    **more: Any,
) -> Iterator[AttentionProblem]:
    """Yield causal problems; with `more`, other fields of them."""
    fields: dict[str, Any] = {
        "mask_type": "bottom_right",
        # A window of n keys contains the query's own.
        "window_size_left": attention.window - 1,
        "window_size_right": 0,
        "has_sink": attention.has_sink,
        "logits_soft_cap": attention.logits_soft_cap,
        "use_asm": direction == "fwd",
    }
    if direction == "fwd_splitkv":
        fields["page_block_size"] = PAGE_BLOCK_SIZE
    for seqlen_q, seqlen_k in lengths:
        yield make_problem(
            *(direction, dtype),
            hdim=(attention.hdim_q, attention.hdim_v),
            seqlen_q=seqlen_q,
            seqlen_k=seqlen_k,
            nhead_q=attention.nhead_q,
            nhead_k=attention.nhead_k,
            **fields | more,
        )


#: AITER's Triton kernel for paged K and V, which compiles when it is called.
_UNIFIED = "aiter/ops/triton/unified_attention.py"
_UNIFIED_FUNCTION = "unified_attention"
#: AITER's module of MLA's decoding, and the directory of its code objects below hsa/<arch>.
_MLA_MODULE, _MLA_DIRECTORY = "module_mla_asm", "mla"


def find_alternatives(
    tree: AiterTree, attention: LayerAttention, phase: str, arch: str
) -> tuple[str, ...]:
    """Return modules and Triton functions of the tree for a phase, as text."""
    if phase == "latent":
        return tuple(_mla(tree, arch))
    return tuple(_unified(tree, attention))


def _mla(tree: AiterTree, arch: str) -> Iterator[str]:
    directory = tree.root / tree.hsa_dir / arch / _MLA_DIRECTORY
    count = len([*directory.rglob("*.co")])
    if count and _MLA_MODULE in tree.module_names():
        yield f"assembly: {_MLA_MODULE}, {count} code objects for {arch}, chosen by its host code"


def _unified(tree: AiterTree, attention: LayerAttention) -> Iterator[str]:
    if not (tree.root / _UNIFIED).is_file():
        return
    needed = {"sinks"} if attention.has_sink else set()
    needed |= {"window_size"} if attention.window else set()
    needed |= {"softcap"} if attention.logits_soft_cap else set()
    for node in ast.walk(tree.syntax_tree(_UNIFIED)):
        if isinstance(node, ast.FunctionDef) and node.name == _UNIFIED_FUNCTION:
            names = {one.arg for one in (*node.args.args, *node.args.kwonlyargs)}
            if needed <= names:
                yield f"Triton: {_UNIFIED} has its parameters, and compiles at run time"


MODULE = "libmha_fwd"
_FILE = "model.toml"
"""Name of the manifests that are planned, but not written to a file."""
_DIRECTIONS = ("fwd", "fwd_splitkv", "batch_prefill")


class CoverageError(QolaError, title="no manifest for this model", exit_code=ExitCode.PLAN):
    """No kernel serves a model, or the manifest's plan lacks a kernel for which it is written."""


@dataclass(frozen=True)
class ServedPhase:
    """How an arch serves a phase of a group of layers.

    Attributes:
        kernels: main kernels of Composable Kernel, () if it is missing.
        assembly: code objects that host code prefers, if callers allow assembly kernels (use_asm).
        missing: why no kernel serves it, "" if one does.
        alternatives: other kernels of AITER's Python.
    """

    group: LayerGroup
    phase: Phase
    arch: str
    kernels: tuple[Entry, ...] = ()
    assembly: tuple[str, ...] = ()
    missing: str = ""
    alternatives: tuple[str, ...] = ()


@dataclass(frozen=True)
class Coverage:
    """A manifest for a model, and the kernels that its plan has for each phase of each layer.

    Attributes:
        aiter: version of the AITER tree, "" if unknown.
        tables: the manifest.
        kernels: number of kernel instances in its plan.
    """

    model: Model
    aiter: str
    tables: TomlTables
    served: tuple[ServedPhase, ...]
    kernels: int


def find_coverage(
    model: Model, build: BuildRequest, namespace: str, environ: Mapping[str, str]
) -> Coverage:
    """Plan all kernels of a model's data type, and then only those that its layers use.

    Args:
        build: archs and AITER tree; its manifest is not read.
        namespace: of the manifest.

    Raises:
        CoverageError: no layer has a kernel.
        QolaError: the tree cannot be planned.
    """
    archs = build.spec.archs
    everything = _manifest(namespace, archs, _DIRECTIONS[:2], [_variant(model.dtype)])
    with tempfile.TemporaryDirectory(prefix="qola-") as name:
        folder = Path(name)
        try:
            wide = _Library(everything, folder / "all", build, environ)
        except CodegenError as error:
            # Findings about the variant name a manifest that the user does not have.
            if not any(_FILE in finding.place for finding in error.findings):
                raise
            place = f"{model.file}, attention in {model.dtype}"
            raise CoverageError(
                Finding(place, f.found, f.expected, "another torch_dtype")
                if _FILE in f.place
                else f
                for f in error.findings
            ) from None
        found = list(_find_all(model, wide, archs))
        used = {entry for one in found for entry in one.kernels}
        if not used:
            raise CoverageError(_missing(model, found))
        tables = _smallest(model, namespace, archs, found)
        small = _Library(tables, folder / "used", build, environ)
        _prove(model, found, list(_find_all(model, small, archs)))
        version = small.request.tree.version
        return Coverage(model, version, tables, tuple(found), len(small.repository.kernels))


class _Library:
    """The plan of a manifest with one library, and its kernels by name."""

    def __init__(
        self, tables: TomlTables, folder: Path, build: BuildRequest, environ: Mapping[str, str]
    ) -> None:
        folder.mkdir()
        manifest = folder / _FILE
        manifest.write_text(toml_document(tables), encoding="utf-8")
        request = plan_request(replace(build, manifest_path=manifest), manifest.name, environ)
        plan = planner.make_plan(request, Folder(folder))
        (folder / "plan.json").write_text(plan.to_json(), encoding="utf-8")
        self.request: Request = request
        self.repository = Repository(MODULE, folder)
        self.registry = Registry.of(MODULE, folder)


def _find_all(model: Model, library: _Library, archs: Sequence[str]) -> Iterator[ServedPhase]:
    for group in model.groups:
        if group.attention is None:
            continue
        for phase in phases_of(group.attention, model.dtype):
            for arch in archs:
                yield _find(library, group, group.attention, phase, arch)


def _find(
    library: _Library, group: LayerGroup, attention: LayerAttention, phase: Phase, arch: str
) -> ServedPhase:
    kernels: dict[Entry, None] = {}
    assembly: dict[str, None] = {}
    for problem in phase.problems:
        try:
            entries, missing = _select(library, problem, arch)
            objects = library.repository.assembly(problem, arch)
        except NotUnderstoodError as error:
            entries, missing, objects = (), f"its dispatch is not understood: {error}", ()
        if not entries:
            other = find_alternatives(library.request.tree, attention, phase.name, arch)
            return ServedPhase(group, phase, arch, missing=missing, alternatives=other)
        kernels |= dict.fromkeys(entries)
        assembly |= dict.fromkeys(objects)
    return ServedPhase(group, phase, arch, tuple(kernels), tuple(assembly))


def _select(
    library: _Library, problem: AttentionProblem, arch: str
) -> tuple[tuple[Entry, ...], str]:
    """Return Composable Kernel's kernels of a problem, or why there are none."""
    dispatch = library.registry.dispatch(problem.direction)
    plain = replace(problem, use_asm=False)
    entries = tuple(map(library.registry.named, dispatch.taken(plain, arch)))
    if entries and problem.has_sink and not entries[0].config.sink:
        # Dispatches before sinks do not look at them.
        return (), "attention sinks: the tree's Composable Kernel has no kernel with them"
    if entries:
        return entries, ""
    own = [e.config for e in library.registry if e.config.direction == problem.direction]
    largest = max(((config.hdim_q, config.hdim_v) for config in own), default=(0, 0))
    hdim = f"head dimension {problem.hdim_q}x{problem.hdim_v}"
    if problem.hdim_q > largest[0]:
        return (), f"{hdim}: the largest of {problem.direction} is {largest[0]}x{largest[1]}"
    for _, failed in dispatch.refusals(plain, arch)[:1]:
        needs = ", ".join(dict.fromkeys(map(condition_text, failed)))
        return (), f"{hdim}, {problem.dtype}: the nearest kernel needs {needs}"
    return (), f"no kernel of the direction {problem.direction}"


def _missing(model: Model, found: Iterable[ServedPhase]) -> Iterator[Finding]:
    """Yield a finding for each phase of a model that no kernel serves."""
    reasons: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for one in found:
        reasons.setdefault((one.phase.name, one.missing, one.alternatives), []).append(one.arch)
    if not reasons:
        expected = "a layer with softmax attention"
        yield Finding(model.file, "linear attention in all layers", expected)
    for (phase, missing, alternatives), archs in reasons.items():
        place = f"{model.file} {phase} on {', '.join(dict.fromkeys(archs))}"
        fix = "; ".join(alternatives) or "an AITER tree with such a kernel: --aiter-root DIR"
        yield Finding(place, missing, f"a kernel of {MODULE}", fix)


def _variant(dtype: str, **more: JsonValue) -> TomlTable:
    plain = dict.fromkeys(("has_bias", "has_alibi", "has_dropout", "has_skip"), False)
    return {"dtype": dtype, **more, "mode": "group", **plain}


def _manifest(
    namespace: str,
    archs: Sequence[str],
    directions: Iterable[str],
    variants: Sequence[TomlTable],
) -> TomlTables:
    dropped = [direction for direction in _DIRECTIONS if direction not in directions]
    return {
        "qola": {"namespace": namespace},
        "build": {"architectures": [*archs], "mode": "cpp_itfs"},
        "modules": [{"name": MODULE, "drop_directions": dropped}],
        "mha_fwd_variants": variants,
    }


def _smallest(
    model: Model, namespace: str, archs: Sequence[str], found: Sequence[ServedPhase]
) -> TomlTables:
    """Return the manifest whose variants have the values of the kernels in use."""
    variants: dict[tuple[tuple[int, int], bool, bool, bool], None] = {}
    directions = set()
    for one in found:
        for problem in one.phase.problems if one.kernels else ():
            hdim = (problem.hdim_q, problem.hdim_v)
            directions.add(problem.direction)
            for config in (entry.config for entry in one.kernels):
                # Combine kernels come along with split-KV kernels.
                if not config.family.endswith("_combine"):
                    mask = config.mask not in (False, "no", None)
                    variants[hdim, mask, bool(config.lse), bool(config.sink)] = None
    tables = [
        _variant(
            model.dtype,
            hdim=hdim[0] if hdim[0] == hdim[1] else [[*hdim]],
            has_mask=mask,
            has_lse=lse,
            has_sink=sink,
        )
        for hdim, mask, lse, sink in variants
    ]
    return _manifest(namespace, archs, directions, tables)


def _prove(model: Model, found: Sequence[ServedPhase], planned: Sequence[ServedPhase]) -> None:
    """Check that the manifest's plan has the same kernels for each phase."""
    wrong = []
    for before, after in zip(found, planned, strict=True):
        names = [[entry.name for entry in one.kernels] for one in (before, after)]
        if names[0] != names[1] or before.assembly != after.assembly:
            place = f"{model.file} {before.phase.name} on {before.arch}"
            got = ", ".join((*names[1], *after.assembly)) or after.missing
            expected = ", ".join((*names[0], *before.assembly)) or before.missing
            wrong.append(Finding(place, f"the manifest's plan has {got}", expected))
    if wrong:
        raise CoverageError(wrong, "the manifest does not serve the model as all kernels do")
