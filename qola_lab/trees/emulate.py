"""Tries assembly kernels of trees on the emulator, and a sample of Composable Kernel's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from qola.aiter.attention import ATTENTION
from qola.aiter.tree import AiterTree, read_tree
from qola.build.bazel import BuildOptions
from qola.build.programs import BuiltProgram, build_programs, run_program
from qola.checkout.request import AiterOptions
from qola.common.folder import Folder
from qola.manifest.constants import TESTED_ARCHS
from qola.plan.generate import generate_module
from qola_base.errors import AiterError, QolaError
from qola_base.files import sha256_of_text
from qola_base.progress import log
from qola_lab.trees.check import Library, directions_of, manifest_text
from qola_lab.trees.examine import candidate_libraries
from qola_lab.trees.launches import small_manifests
from qola_lab.trees.report import KernelHealth, KernelVerdict, State, TreeHealth

DIED = "kernels could not be tried"
"""Title of the error of `qola verify` whose process died: ReplayError, whose module needs NumPy."""
#: Shares of limits are finite in JSON.
_LARGEST = 1e300


@dataclass(frozen=True)
class EmulationRequest:
    """The problems of each kernel, as `qola verify` has them.

    Attributes:
        patterns: of names of Composable Kernel's kernels, with * and ?; () for all.
        jobs: parallel actions and problems, None for one per core.
    """

    samples: int = 1
    seed: int = 0
    patterns: tuple[str, ...] = ()
    jobs: int | None = None
    quiet: bool = False

    @property
    def has_sample(self) -> bool:
        """Whether a pattern may select a kernel: only names of code objects contain a slash."""
        return not self.patterns or any("/" not in one for one in self.patterns)

    def takes(self, kernel: str) -> bool:
        """Whether the sample may contain a kernel."""
        return not self.patterns or any(fnmatchcase(kernel, one) for one in self.patterns)


def emulate_trees(
    trees: Sequence[TreeHealth],
    roots: Sequence[Path],
    request: EmulationRequest,
    environ: Mapping[str, str],
) -> list[TreeHealth]:
    """Return the trees with verdicts of the assembly kernels that attention libraries launch.

    Raises:
        QolaError: nothing can be built on this machine.
    """
    tried = [
        _emulate_tree(tree, source, request, environ) if (source := _source(root)) else tree
        for tree, root in zip(trees, roots, strict=True)
    ]
    return share_verdicts(tried)


def share_verdicts(trees: Sequence[TreeHealth]) -> list[TreeHealth]:
    """Give untried kernels the verdict of an equal code object of another tree.

    A tree that does not build may have kernels of one that does.
    """
    known = {
        kernel.sha256: kernel.verdict
        for tree in trees
        for kernel in tree.kernels
        if kernel.verdict and kernel.verdict.state != "untried"
    }

    def shared(kernel: KernelHealth) -> KernelHealth:
        if kernel.verdict and kernel.verdict.state != "untried":
            return kernel
        return replace(kernel, verdict=known.get(kernel.sha256, kernel.verdict))

    return [replace(tree, kernels=tuple(map(shared, tree.kernels))) for tree in trees]


def _source(root: Path) -> AiterTree | None:
    """Return a tree, None if qola cannot read its configuration."""
    try:
        return read_tree(root)
    except AiterError:
        return None


@dataclass(frozen=True)
class _Job:
    """A library to build and try.

    Attributes:
        label: what an untried sample is called.
        keys: its code objects to try; () to try Composable Kernel's kernels.
    """

    label: str
    manifest: str
    keys: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its repository and program, another one for each manifest."""
        return f"health_{sha256_of_text(self.manifest)[:16]}"


def _emulate_tree(
    tree: TreeHealth, source: AiterTree, request: EmulationRequest, environ: Mapping[str, str]
) -> TreeHealth:
    jobs = list(_jobs(tree, source, request))
    found: dict[str, KernelVerdict] = {}
    sample: dict[str, KernelVerdict] = {}
    for job, built in zip(jobs, _build(jobs, source.root, request, environ), strict=True):
        verdicts = found if job.keys else sample
        if built.path is None:
            log.warning(built.error)
            reason = f"the library does not build: {built.error.strip().splitlines()[-1]}"
            verdicts |= dict.fromkeys(job.keys or [job.label], untried(reason))
            continue
        log.info(f"{tree.name}: trying {job.label}")
        program = _Program(built.path, request, environ)
        verdicts |= program.try_keys(job.keys) if job.keys else program.try_sample(job.label)
    kernels = tuple(
        replace(kernel, verdict=found.get(kernel.key, kernel.verdict)) for kernel in tree.kernels
    )
    return replace(tree, kernels=kernels, sample=sample)


def _jobs(tree: TreeHealth, source: AiterTree, request: EmulationRequest) -> Iterator[_Job]:
    """Yield the libraries of a tree, each code object in the first one that may launch it."""
    keys = {kernel.key for kernel in tree.kernels}
    for library in candidate_libraries(source):
        folder = ATTENTION[library.module.spec.name].asm_subdir
        by_arch = {
            arch: sorted(key for key in keys if key.startswith(f"hsa/{arch}/{folder}/"))
            for arch in sorted({*library.resolved.archs} & {*TESTED_ARCHS})
        }
        if archs := [arch for arch, own in by_arch.items() if own]:
            own = tuple(key for arch in archs for key in by_arch[arch])
            keys -= {*own}
            dropped = sorted(directions_of(library.module.config))
            text = manifest_text({**library.table, "drop_directions": dropped}, archs)
            yield _Job(f"assembly kernels of {library.of}", text, own)
        if request.has_sample and not library.module.config.without_ck:
            yield from _sample(library, request)


def _sample(library: Library, request: EmulationRequest) -> Iterator[_Job]:
    """Yield libraries of the smallest selected kernels of each direction of Composable Kernel."""
    try:
        module = generate_module(library.resolved, library.module, Folder())
    except QolaError:  # a broken check of the tree
        return
    selected = tuple(kernel for kernel in module.kernels.kernels if request.takes(kernel.name))
    module = replace(module, kernels=replace(module.kernels, kernels=selected))
    for label, text in small_manifests(library, module)[0].items():
        if not label.endswith("_assembly"):
            yield _Job(label, text)


def _build(
    jobs: Sequence[_Job], root: Path, request: EmulationRequest, environ: Mapping[str, str]
) -> list[BuiltProgram]:
    """Build the programs of a tree in one run of Bazel, since each run has outputs of its own."""
    if not jobs:
        return []
    options = BuildOptions(jobs=request.jobs, quiet=request.quiet)
    texts = {job.name: job.manifest for job in jobs}
    aiter = AiterOptions(root, skip_checkout=True)
    try:
        made = build_programs(texts, "verify", options, environ, aiter)
    except QolaError as error:
        return [BuiltProgram(None, str(error))] * len(jobs)
    return [made[job.name] for job in jobs]


@dataclass(frozen=True)
class _Run:
    """A run of a program.

    Attributes:
        outcomes: kernels in the JSON of `qola verify`, None after an error.
        died: whether a kernel may have ended the process.
    """

    outcomes: list[Mapping[str, Any]] | None
    died: bool = False
    error: str = ""


@dataclass(frozen=True)
class _Program:
    """The program of `qola verify` for a library, which stores verdicts as `qola verify` does."""

    path: Path
    request: EmulationRequest
    environ: Mapping[str, str]

    def try_sample(self, label: str) -> dict[str, KernelVerdict]:
        """Return the verdict of each selected kernel of the library, by arch and name.

        If there is none, the label has the reason.
        """
        ran = self._run(self.request.patterns)
        if ran.outcomes is None:
            return {label: untried(ran.error)}
        return {f"{one['arch']}/{one['kernel']}": verdict_of(one) for one in ran.outcomes}

    def try_keys(self, keys: Sequence[str]) -> dict[str, KernelVerdict]:
        """Return the verdict of each of some assembly kernels."""
        ran = self._run(keys)
        if ran.outcomes is not None:
            missing = dict.fromkeys(keys, untried("the library does not embed it"))
            return missing | {one["kernel"]: verdict_of(one) for one in ran.outcomes}
        if ran.died and len(keys) > 1:
            # A kernel took the process down. Verdicts of the others are stored, or found now.
            middle = len(keys) // 2
            return self.try_keys(keys[:middle]) | self.try_keys(keys[middle:])
        return dict.fromkeys(keys, untried(ran.error))

    def _run(self, patterns: Sequence[str]) -> _Run:
        request = self.request
        words = [f"--samples={request.samples}", f"--max-samples={request.samples}"]
        words += [f"--seed={request.seed}", "--json"]
        words += [f"--kernels={pattern}" for pattern in patterns]
        words += [f"--processes={request.jobs}"] if request.jobs else []
        quiet = subprocess.DEVNULL if request.quiet else None
        ran = run_program(self.path, words, self.environ, stderr=quiet)
        # Host code of AITER prints to standard output, too.
        output = ran.stdout.decode(errors="replace")
        start = output.find('{"schema"')
        if start < 0:
            error = f"the process that tried it ended with exit code {ran.returncode}"
            return _Run(None, ran.returncode < 0 or DIED in output, error)
        return _Run(json.loads(output[start:])["kernels"])


def untried(reason: str) -> KernelVerdict:
    """Return the verdict of a kernel that was not tried."""
    return KernelVerdict("untried", reasons=(reason,))


def verdict_of(outcome: Mapping[str, Any]) -> KernelVerdict:
    """Return the verdict of a kernel in the JSON of `qola verify`."""
    trials = outcome["trials"]
    reasons: Sequence[str] = outcome["faults"]
    if not reasons and outcome["state"] == "untried":
        reasons = [outcome["missing"]]
    # An instruction that is not emulated says nothing about the kernel.
    unsupported = bool(reasons) and all(": unsupported: " in reason for reason in reasons)
    state: State = "untried" if unsupported else outcome["state"]
    shares = (float(verdict["share"]) for trial in trials for verdict in trial["verdicts"])
    worst = min(round(max(shares, default=0.0), 3), _LARGEST)
    return KernelVerdict(state, len(trials), worst, tuple(reasons))
