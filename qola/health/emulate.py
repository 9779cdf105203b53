"""Tries assembly kernels of trees on the emulator, and a sample of Composable Kernel's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from qola.aiter.attention import ATTENTION
from qola.aiter.tree import AiterTree, read_tree
from qola.build.bazel import BuildOptions
from qola.build.programs import build_program, run_program
from qola.build.setup import resolve_build
from qola.cache import cache_directory, own_directory
from qola.checkout.request import AiterOptions
from qola.compat.launches import small_manifests
from qola.compat.library import Library, directions_of, manifest_text
from qola.compat.run import candidate_libraries
from qola.errors import AiterError, QolaError
from qola.files import sha256_of_text, write_if_changed
from qola.folder import Folder
from qola.health.data import KernelHealth, KernelVerdict, State, TreeHealth
from qola.manifest.constants import TESTED_ARCHS
from qola.plan.generate import generate_module
from qola.plan.spec import BuildRequest
from qola.progress import log

DIRECTORY = "health"
"""Directory of the cache with manifests."""
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


def _emulate_tree(
    tree: TreeHealth, source: AiterTree, request: EmulationRequest, environ: Mapping[str, str]
) -> TreeHealth:
    found: dict[str, KernelVerdict] = {}
    sample: dict[str, KernelVerdict] = {}
    for number, library in enumerate(candidate_libraries(source)):
        keys: list[str] = []
        archs: list[str] = []
        for arch in sorted({*library.resolved.archs} & {*TESTED_ARCHS}):
            folder = f"hsa/{arch}/{ATTENTION[library.module.spec.name].asm_subdir}/"
            own = {kernel.key for kernel in tree.kernels if kernel.key.startswith(folder)}
            if own := own - found.keys():
                archs.append(arch)
                keys += sorted(own)
        if keys:
            dropped = sorted(directions_of(library.module.config))
            text = manifest_text({**library.table, "drop_directions": dropped}, archs)
            log.info(f"{tree.name}, {library.of}: trying {len(keys)} assembly kernels")
            name = f"health_{number}_assembly"
            found |= _Program(name, text, source.root, request, environ).verdicts(keys)
        if request.has_sample and not library.module.config.without_ck:
            sample |= _sample(library, number, source.root, request, environ)
    kernels = tuple(
        replace(kernel, verdict=found.get(kernel.key, kernel.verdict)) for kernel in tree.kernels
    )
    return replace(tree, kernels=kernels, sample=sample)


def _sample(
    library: Library,
    number: int,
    root: Path,
    request: EmulationRequest,
    environ: Mapping[str, str],
) -> dict[str, KernelVerdict]:
    """Return verdicts of the smallest selected kernels of each direction of Composable Kernel."""
    try:
        module = generate_module(library.resolved, library.module, Folder())
    except QolaError:  # a broken check of the tree
        return {}
    selected = tuple(kernel for kernel in module.kernels.kernels if request.takes(kernel.name))
    module = replace(module, kernels=replace(module.kernels, kernels=selected))
    found: dict[str, KernelVerdict] = {}
    for name, text in small_manifests(library, module)[0].items():
        if not name.endswith("_assembly"):
            log.info(f"{library.of}: trying the sample {name}")
            found |= _Program(f"health_{number}_{name}", text, root, request, environ).sample()
    return found


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


class _Program:
    """The program of `qola verify` for a manifest, which stores verdicts as `qola verify` does."""

    def __init__(
        self,
        name: str,
        manifest: str,
        root: Path,
        request: EmulationRequest,
        environ: Mapping[str, str],
    ) -> None:
        self._name, self._request, self._environ = name, request, environ
        # Another process may try another tree now.
        key = sha256_of_text(manifest)[:12]
        file = cache_directory(environ) / DIRECTORY / f"{name}_{key}.toml"
        own_directory(file.parent)
        write_if_changed(file, manifest)
        self._build = BuildRequest(file, aiter=AiterOptions(root, skip_checkout=True))

    def verdicts(self, keys: Sequence[str]) -> dict[str, KernelVerdict]:
        """Return the verdict of each of some assembly kernels."""
        path, error = self._program()
        if path is None:
            return dict.fromkeys(keys, untried(error))
        return self._try_keys(path, keys)

    def sample(self) -> dict[str, KernelVerdict]:
        """Return the verdict of each selected kernel of the library, by arch and name.

        If there is none, the manifest's name has the reason.
        """
        path, error = self._program()
        ran = self._run(path, self._request.patterns) if path else None
        if ran is None or ran.outcomes is None:
            return {self._name: untried(ran.error if ran else error)}
        return {f"{one['arch']}/{one['kernel']}": verdict_of(one) for one in ran.outcomes}

    def _program(self) -> tuple[Path | None, str]:
        """Build the program; return its path, or the last line of the error."""
        options = BuildOptions(jobs=self._request.jobs, quiet=self._request.quiet)
        try:
            chosen = resolve_build(self._build, self._environ)
            program = build_program("verify", chosen, options, self._environ)
            path, error = program.path, program.error
        except QolaError as wrong:
            path, error = None, str(wrong)
        if path is None:
            log.warning(error)
            return None, f"the library does not build: {error.strip().splitlines()[-1]}"
        return path, ""

    def _try_keys(self, path: Path, keys: Sequence[str]) -> dict[str, KernelVerdict]:
        ran = self._run(path, keys)
        if ran.outcomes is not None:
            missing = dict.fromkeys(keys, untried("the library does not embed it"))
            return missing | {one["kernel"]: verdict_of(one) for one in ran.outcomes}
        if ran.died and len(keys) > 1:
            # A kernel took the process down. Verdicts of the others are stored, or found now.
            middle = len(keys) // 2
            return self._try_keys(path, keys[:middle]) | self._try_keys(path, keys[middle:])
        return dict.fromkeys(keys, untried(ran.error))

    def _run(self, path: Path, patterns: Sequence[str]) -> _Run:
        request = self._request
        words = [f"--samples={request.samples}", f"--seed={request.seed}", "--json"]
        words += [f"--kernels={pattern}" for pattern in patterns]
        words += [f"--processes={request.jobs}"] if request.jobs else []
        quiet = subprocess.DEVNULL if request.quiet else None
        ran = run_program(path, words, self._environ, stderr=quiet)
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
