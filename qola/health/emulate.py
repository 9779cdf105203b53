"""Tries the assembly kernels of trees on the emulator, and a sample of Composable Kernel's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from qola.compat.library import Library, check_library, directions_of, manifest_text
from qola.compat.run import candidate_libraries
from qola.errors import AiterError, QolaError
from qola.files import sha256_of_text, write_if_changed
from qola.folder import Folder
from qola.health.data import KernelHealth, KernelVerdict, State, TreeHealth
from qola.manifest.constants import TESTED_ARCHS
from qola.plan.spec import BuildRequest
from qola.progress import log
from qola.verify.store import VerdictStore

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
        jobs: parallel actions and problems, None for one per core.
    """

    samples: int = 1
    seed: int = 0
    jobs: int | None = None
    quiet: bool = False


class CodeObjectVerdicts:
    """Stored verdicts of assembly kernels, by the digest of the code object.

    The problems depend on sources of all of `qola verify`. Only kernels that were tried are stored.
    """

    def __init__(self, request: EmulationRequest, environ: Mapping[str, str]) -> None:
        self._store = VerdictStore(environ, "qola.verify.__main__")
        self._problems = [request.samples, request.seed]

    def find(self, sha256: str) -> KernelVerdict | None:
        """Return the verdict of a code object, None if it was not tried."""
        found: KernelVerdict | None = self._store.find([sha256, self._problems], KernelVerdict)
        return found

    def store(self, sha256: str, verdict: KernelVerdict) -> None:
        """Store a verdict if the kernel was tried."""
        if verdict.state != "untried":
            self._store.store([sha256, self._problems], verdict)


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
    store = CodeObjectVerdicts(request, environ)
    tried = [
        _emulate_tree(tree, source, store, request, environ) if (source := _source(root)) else tree
        for tree, root in zip(trees, roots, strict=True)
    ]
    # Now from every tree: a tree that does not build may have kernels of one that does.
    return [
        replace(tree, kernels=tuple(_with_stored(kernel, store) for kernel in tree.kernels))
        for tree in tried
    ]


def _source(root: Path) -> AiterTree | None:
    """Return a tree, None if qola cannot read its configuration."""
    try:
        return read_tree(root)
    except AiterError:
        return None


def _with_stored(kernel: KernelHealth, store: CodeObjectVerdicts) -> KernelHealth:
    is_tried = kernel.verdict is not None and kernel.verdict.state != "untried"
    if is_tried or "/fmha_" not in kernel.key:
        return kernel
    return replace(kernel, verdict=store.find(kernel.sha256) or kernel.verdict)


def _emulate_tree(
    tree: TreeHealth,
    source: AiterTree,
    store: CodeObjectVerdicts,
    request: EmulationRequest,
    environ: Mapping[str, str],
) -> TreeHealth:
    digests = {kernel.key: kernel.sha256 for kernel in tree.kernels}
    found: dict[str, KernelVerdict] = {}
    sample: dict[str, KernelVerdict] = {}
    for number, library in enumerate(candidate_libraries(source)):
        archs = [arch for arch in library.resolved.archs if arch in TESTED_ARCHS]
        folders = tuple(
            f"hsa/{arch}/{ATTENTION[library.module.spec.name].asm_subdir}/" for arch in archs
        )
        own = [key for key in digests if key.startswith(folders) and key not in found]
        found |= {key: known for key in own if (known := store.find(digests[key]))}
        todo = [key for key in own if key not in found]
        log.info(f"{tree.name}, {library.of}: {len(own) - len(todo)} verdicts stored")
        if todo:
            dropped = sorted(directions_of(library.module.config))
            table = {**library.table, "drop_directions": dropped}
            name = f"health_{number}_assembly"
            program = _Program(name, manifest_text(table, archs), source.root, request, environ)
            for key, verdict in program.verdicts(todo):
                found[key] = verdict
                store.store(digests[key], verdict)
        if source.has_ck and digests:
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
    """Return verdicts of the smallest kernels of each direction of Composable Kernel."""
    module, _ = check_library(library, Folder())
    texts = small_manifests(library, module)[0] if module else {}
    found: dict[str, KernelVerdict] = {}
    for name, text in texts.items():
        if not name.endswith("_assembly"):
            program = _Program(f"health_{number}_{name}", text, root, request, environ)
            found |= dict(program.verdicts(()))
    return found


class _Program:
    """The program of `qola verify` for a manifest, built when it first runs."""

    def __init__(
        self,
        name: str,
        manifest: str,
        root: Path,
        request: EmulationRequest,
        environ: Mapping[str, str],
    ) -> None:
        self._request, self._environ = request, environ
        # Another process may try another tree now.
        key = sha256_of_text(manifest)[:12]
        file = cache_directory(environ) / DIRECTORY / f"{name}_{key}.toml"
        own_directory(file.parent)
        write_if_changed(file, manifest)
        self._build = BuildRequest(file, aiter=AiterOptions(root, skip_checkout=True))

    def verdicts(self, keys: Sequence[str]) -> Iterator[tuple[str, KernelVerdict]]:
        """Yield the verdict of each kernel, () for all of the library."""
        options = BuildOptions(jobs=self._request.jobs, quiet=self._request.quiet)
        error = ""
        try:
            chosen = resolve_build(self._build, self._environ)
            program = build_program("verify", chosen, options, self._environ)
            path, error = program.path, program.error
        except QolaError as wrong:
            path, error = None, str(wrong)
        if path is None:
            reason = f"the library does not build: {error.strip().splitlines()[-1]}"
            log.warning(error)
            yield from ((key, KernelVerdict("untried", reasons=(reason,))) for key in keys)
            return
        yield from self._run(path, keys)

    def _run(self, path: Path, keys: Sequence[str]) -> Iterator[tuple[str, KernelVerdict]]:
        request = self._request
        words = [f"--samples={request.samples}", f"--seed={request.seed}", "--json"]
        words += [f"--kernels={key}" for key in keys]
        words += [f"--processes={request.jobs}"] if request.jobs else []
        quiet = subprocess.DEVNULL if request.quiet else None
        ran = run_program(path, words, self._environ, stderr=quiet)
        # Host code of AITER prints to standard output, too.
        output = ran.stdout.decode(errors="replace")
        start = output.find('{"schema"')
        died = ran.returncode < 0 or DIED in output
        if start < 0 and died and len(keys) > 1:
            # A kernel took the process down. Verdicts of the others are stored, or found now.
            for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
                yield from self._run(path, half)
            return
        if start < 0:
            reason = f"the process that tried it ended with exit code {ran.returncode}"
            yield from ((key, KernelVerdict("untried", reasons=(reason,))) for key in keys)
            return
        kernels = json.loads(output[start:])["kernels"]
        known = {one["kernel"] for one in kernels}
        yield from ((one["kernel"], verdict_of(one)) for one in kernels)
        missing = KernelVerdict("untried", reasons=("the library does not embed it",))
        yield from ((key, missing) for key in keys if key not in known)


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
