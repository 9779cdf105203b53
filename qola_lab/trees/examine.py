"""Runs all checks of an AITER tree."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from qola.aiter import module_kinds
from qola.aiter.attention import ATTENTION
from qola.aiter.tree import AiterTree, GeneratorCall, read_tree
from qola.codegen.asm.later import header_name
from qola.codegen.asm.script import run_script
from qola.codegen.types import KernelSet
from qola.common.folder import Folder
from qola.common.processes import thread_pool
from qola.manifest.constants import TESTED_ARCHS
from qola.plan.generate import GeneratedModule
from qola_base.errors import CodegenError, Finding, QolaError
from qola_base.files import lossy_text
from qola_base.progress import log
from qola_lab.trees.check import (
    INIT,
    Check,
    Library,
    Report,
    assembly_archs,
    check_archs,
    check_config,
    check_library,
    check_patches,
    check_tree,
    directions_of,
    guarded,
    library,
    rows_of,
)

#: Checks that compare with AITER's own files wait for the tasks that generate them.
_WORKERS = 4
_WITHOUT_CK = "-DENABLE_CK=0"
#: AITER's launcher of assembly kernels with sinks is a separate module. A manifest lists it next to
#: the entry source, as TransformerEngine's manifest for gfx1250 does.
_SINK = "fmha_fwd_bf16"


#: A library, generated, and its checks.
Checked = tuple[GeneratedModule | None, list[Check]]
#: Builds a library, and says whether its entry points launch.
Launches = Callable[[Library, GeneratedModule], Check]


_HEAVY = "bwd"
"""Direction that is compared for one arch only: its generator needs half a minute for two."""


@dataclass(frozen=True)
class Upstream:
    """The generator's files of a direction.

    Attributes:
        archs: those passed to the generator; it writes a separate dispatch for the first.
        files: digest by name.
    """

    direction: str
    archs: tuple[str, ...]
    files: dict[str, str]


def examine(root: Path, patches: Path | None = None, *, launches: Launches | None = None) -> Report:
    """Check which parts of an AITER tree can be built; the tree is not changed.

    Args:
        patches: a folder of patches; each patch is tried.
        launches: `qola_lab.trees.launches.check_launches`, for libraries without broken checks;
            None compiles nothing.
    """
    checks: list[Check] = []
    trees: list[AiterTree] = []
    with guarded(checks, "tree", ""):
        tree = read_tree(root)
        trees.append(tree)
        checks.append(check_tree(tree, any(_can_do_without_ck(tree, name) for name in ATTENTION)))
    for tree in trees:
        with guarded(checks, "config", ""):
            checks.append(check_config(tree))
        with guarded(checks, "archs", ""):
            checks.append(check_archs(tree))
        _check_libraries(checks, tree, launches)
    if patches is not None:
        with guarded(checks, "patch", patches.name):
            checks += list(check_patches(root, patches))
    return Report(tuple(checks))


def _can_do_without_ck(tree: AiterTree, name: str) -> bool:
    """Return whether conditions in a module's sources can exclude Composable Kernel."""
    try:
        config = tree.module(name, more_flags=[_WITHOUT_CK])
    except QolaError:
        return False
    header = f"{tree.csrc_dir}/include/{ATTENTION[name].header}.h"
    files = [*module_kinds.sources(tree, config, ()), header]
    texts = (tree.text(file) for file in files if (tree.root / file).is_file())
    return any(re.search(r"^\s*#\s*(?:el)?if.*\bENABLE_CK\b", text, re.M) for text in texts)


def _libraries(tree: AiterTree, name: str) -> Iterator[Callable[[], Library]]:
    """Yield the candidates of a module: with Composable Kernel, without it, and for gfx1250."""
    if tree.has_ck:
        yield partial(library, tree, name, TESTED_ARCHS, name)
    if not _can_do_without_ck(tree, name):
        return
    config = tree.module(name, more_flags=[_WITHOUT_CK])
    dropped = sorted(directions_of(config))
    alone = partial(library, tree, name, drop_directions=dropped)
    if archs := tuple(sorted({arch for arch, _ in rows_of(tree, config)})):
        yield partial(alone, archs=archs, of=f"{name} without CK", add_flags_extra_cc=[_WITHOUT_CK])
    sources = _sink_sources(tree)
    for arch, folders in assembly_archs(tree).items():
        if ATTENTION[name].direction == "fwd" and _SINK in folders and sources:
            yield partial(
                alone,
                archs=(arch,),
                of=f"{name} without CK, {arch}",
                srcs=[*config.srcs, *sources],
                hsa_subdirs=[_SINK],
                add_flags_extra_cc=[_WITHOUT_CK, f"-DFAV{arch[3:]}_ON=1"],
            )


def candidate_libraries(tree: AiterTree) -> Iterator[Library]:
    """Yield the libraries that can be made of a tree, forward first."""
    for name in [n for n in reversed(ATTENTION) if n in tree.module_names()]:
        yield from _find([], tree, name)


def _find(checks: list[Check], tree: AiterTree, name: str) -> list[Library]:
    """Return the candidate libraries of a module; append checks of those that cannot be made."""
    makers: list[Callable[[], Library]] = []
    libraries: list[Library] = []
    with guarded(checks, "generated", name):
        makers += _libraries(tree, name)
        if not makers:
            found = "no Composable Kernel, which the module's sources need"
            expected = "the submodule, or sources that ENABLE_CK=0 leaves it out of"
            finding = Finding(tree.ck_dir, found, expected, INIT)
            checks.append(Check("generated", name, "cannot be built", (finding,)))
    for make in makers:
        with guarded(checks, "entry", name):
            libraries.append(make())
    return libraries


def _sink_sources(tree: AiterTree) -> list[str]:
    files = sorted((tree.root / tree.csrc_dir / "py_itfs_cu").glob("*.cu"))
    found = (f for f in files if header_name(_SINK) in lossy_text(f))
    return [file.relative_to(tree.root).as_posix() for file in found]


def _check_libraries(checks: list[Check], tree: AiterTree, launches: Launches | None) -> None:
    """Run the checks of all candidate libraries of the tree."""
    with tempfile.TemporaryDirectory(prefix="qola-") as folder, thread_pool(_WORKERS) as pool:
        running: list[tuple[Library, Future[Checked]]] = []
        for name in [n for n in reversed(ATTENTION) if n in tree.module_names()]:
            for number, made in enumerate(_find(checks, tree, name)):
                log.info(f"{made.of}: generating")
                place = Path(folder, f"{name}_{number}")
                theirs = [
                    pool.submit(run_upstream, tree, call, direction, made.resolved.archs)
                    for direction, call in directions_of(made.module.config).items()
                    if not made.module.config.without_ck
                ]
                running.append((made, pool.submit(_check, made, Folder(place), theirs)))
        for made, future in running:
            with guarded(checks, "library", made.of):
                checks += future.result()[1]
        # One after the other: each has all cores.
        for made, future in running if launches else ():
            module, found = (None, []) if future.exception() else future.result()
            if launches and module and not any(check.status == "broken" for check in found):
                with guarded(checks, "launches", made.of):
                    checks.append(launches(made, module))


def _check(library: Library, folder: Folder, theirs: list[Future[Upstream]]) -> Checked:
    module, checks = check_library(library, folder)
    for future in theirs if module else ():
        with guarded(checks, "rendered", library.of):
            assert module is not None
            upstream = future.result()
            found = tuple(differences(upstream, module.kernels))
            archs, files = list(upstream.archs), len(upstream.files)
            said = f"{files} files of AITER's own build for {', '.join(archs)}"
            facts = {"files": files, "archs": archs, "same": not found}
            checks.append(Check("rendered", upstream.direction, said, found, facts))
    return module, checks


def run_upstream(
    tree: AiterTree, call: GeneratorCall, direction: str, archs: Sequence[str]
) -> Upstream:
    """Run CK's generator for a direction.

    Raises:
        CodegenError: it fails.
    """
    script = tree.root / call.script
    targets = tuple(archs[-1:] if direction == _HEAVY else archs)
    args = ["-d", direction, "--receipt", call.ck_receipt, "--output_dir", "{}"]
    place = f"CK's generate.py, direction {direction}"
    try:
        files = run_script(script, [*args, "--targets", ",".join(targets)], place)
    except CodegenError as error:
        if "exit code 2" not in error.findings[0].found:
            raise
        targets = tuple(archs)  # an older generator has no --targets
        files = run_script(script, args, place)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return Upstream(direction, targets, digests)


def differences(upstream: Upstream, kernels: KernelSet) -> list[Finding]:
    """Return the differences between a module generated by qola without filters and AITER's own."""
    archs = {*upstream.archs}
    ours = {
        f"{kernel.name}.cpp": kernel.sha256
        for kernel in kernels.kernels
        if kernel.direction == upstream.direction
        and archs & {*kernel.archs}
        and not kernel.role.startswith("asm_")
    }
    ours |= {
        f"{source.name}.cpp": source.sha256
        for source in kernels.sources
        if source.role == "dispatch"
        and source.direction == upstream.direction
        and {*source.archs} == archs
    }
    theirs = upstream.files
    wrong = sorted(n for n in {*ours, *theirs} if ours.get(n) != theirs.get(n))
    if not wrong:
        return []
    found = (
        f"{len(wrong)} of {len(theirs)} files differ from those of AITER's own build, "
        f"such as {wrong[0]}"
    )
    fix = "report it with the tree's commit; until then drop the direction (drop_directions)"
    expected = "the same bytes, as nothing is filtered"
    return [Finding(f"direction {upstream.direction}", found, expected, fix)]
