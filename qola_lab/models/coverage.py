"""Finds the kernel of each layer of a model, and writes the smallest manifest that has them all."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

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
from qola_lab.models.alternatives import find_alternatives
from qola_lab.models.config import LayerAttention, LayerGroup, Model
from qola_lab.models.problems import Phase, phases_of
from qola_lab.problems import AttentionProblem
from qola_lab.problems.ck import condition_text
from qola_lab.verify.dispatch import Dispatch
from qola_lab.verify.repository import Repository

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
    """The plan of a manifest with one library, and its dispatch."""

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
        self._dispatches: dict[str, Dispatch] = {}

    @cached_property
    def registry(self) -> Registry:
        """Its kernels by name."""
        return Registry.of(MODULE, self.repository.repository)

    def dispatch(self, direction: str) -> Dispatch:
        """Return the dispatch of a direction, read once."""
        if direction not in self._dispatches:
            self._dispatches[direction] = self.repository.dispatch(direction)
        return self._dispatches[direction]


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
    dispatch = library.dispatch(problem.direction)
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
