"""Checks an AITER tree: the entry point of qola.compat."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from qola.aiter import module_kinds
from qola.aiter.attention import ATTENTION
from qola.aiter.tree import AiterTree, read_tree
from qola.codegen.asm.later import header_name
from qola.compat.check import Check, Report, guarded
from qola.compat.library import Library, check_library, library
from qola.compat.rows import rows_of
from qola.compat.tree_checks import (
    INIT,
    assembly_archs,
    check_archs,
    check_config,
    check_patches,
    check_tree,
)
from qola.compat.upstream import Upstream, differences, directions_of, run_upstream
from qola.errors import Finding, QolaError
from qola.files import lossy_text
from qola.folder import Folder
from qola.manifest.constants import TESTED_ARCHS
from qola.plan.generate import GeneratedModule
from qola.processes import thread_pool
from qola.progress import log

#: Checks that compare with AITER's own files wait for the tasks that generate them.
_WORKERS = 4
_WITHOUT_CK = "-DENABLE_CK=0"
#: AITER's launcher of assembly kernels with sinks has a module of its own, which a manifest names
#: beside the entry source, as TransformerEngine's for gfx1250 does.
_SINK = "fmha_fwd_bf16"


#: A library, generated, and its checks.
Checked = tuple[GeneratedModule | None, list[Check]]
#: Builds a library, and says whether its entry points launch.
Launches = Callable[[Library, GeneratedModule], Check]


def examine(
    root: Path,
    patches: Path | None = None,
    *,
    launches: Launches | None = None,
) -> Report:
    """Check which parts of an AITER tree can be built; the tree is not changed.

    Args:
        patches: a folder of patches; each patch is tried.
        launches: `qola.compat.launches.check_launches`, for libraries without broken checks;
            None compiles nothing.
    """
    trees: list[AiterTree] = []

    def read() -> Check:
        trees.append(read_tree(root))
        return check_tree(trees[0], any(_can_do_without_ck(trees[0], name) for name in ATTENTION))

    checks = [guarded("tree", "", read)]
    if trees:
        checks += [guarded("config", "", lambda: check_config(trees[0]))]
        checks += [guarded("archs", "", lambda: check_archs(trees[0]))]
        checks += _check_libraries(trees[0], launches)
    if patches is not None:
        checks += _all("patch", patches.name, lambda: [*check_patches(root, patches)])
    return Report(tuple(checks))


def _all(name: str, of: str, run: Callable[[], list[Check]]) -> list[Check]:
    """Run checks; an exception becomes one broken check."""
    found: list[Check] = []

    def all_of_them() -> Check:
        found.extend(run())
        return Check(name, of)

    failed = guarded(name, of, all_of_them)
    return [failed] if failed.findings else found


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


def _find(tree: AiterTree, name: str) -> tuple[list[Library], list[Check]]:
    """Return the candidate libraries of a module, and the failed checks of others."""
    makers: list[Callable[[], Library]] = []
    libraries: list[Library] = []

    def collect() -> Check:
        makers.extend(_libraries(tree, name))
        findings = () if makers else (_needs_ck(tree),)
        return Check("generated", name, "cannot be built", findings)

    def make(maker: Callable[[], Library]) -> Check:
        libraries.append(maker())
        return Check("entry", name)

    tried = [guarded("generated", name, collect)]
    tried += [guarded("entry", name, partial(make, maker)) for maker in makers]
    return libraries, [check for check in tried if check.findings]


def _needs_ck(tree: AiterTree) -> Finding:
    return Finding(
        tree.ck_dir,
        "no Composable Kernel, which the module's sources need",
        "the submodule, or sources that ENABLE_CK=0 leaves it out of",
        INIT,
    )


def _sink_sources(tree: AiterTree) -> list[str]:
    files = sorted((tree.root / tree.csrc_dir / "py_itfs_cu").glob("*.cu"))
    found = (f for f in files if header_name(_SINK) in lossy_text(f))
    return [file.relative_to(tree.root).as_posix() for file in found]


def _check_libraries(tree: AiterTree, launches: Launches | None) -> list[Check]:
    """Run the checks of all candidate libraries of the tree."""
    checks: list[Check] = []
    with (
        tempfile.TemporaryDirectory(prefix="qola-") as folder,
        thread_pool(_WORKERS) as pool,
    ):
        running: list[tuple[Library, Future[Checked]]] = []
        for name in [n for n in reversed(ATTENTION) if n in tree.module_names()]:
            libraries, wrong = _find(tree, name)
            checks += wrong
            for number, made in enumerate(libraries):
                log.info(f"{made.of}: generating")
                place = Path(folder, f"{name}_{number}")
                theirs = [
                    pool.submit(run_upstream, tree, call, direction, made.resolved.archs)
                    for direction, call in directions_of(made.module.config).items()
                    if not made.module.config.without_ck
                ]
                own = pool.submit(_check, made, Folder(place), theirs)
                running.append((made, own))
        for made, future in running:
            checks += _all("library", made.of, lambda f=future: f.result()[1])  # type: ignore[misc]
        if launches:
            # One after the other: each has all cores.
            done = [(made, *future.result()) for made, future in running if not future.exception()]
            checks += [c for found in done for c in _launches(launches, *found)]
    return checks


def _launches(
    launches: Launches, library: Library, module: GeneratedModule | None, checks: list[Check]
) -> Iterator[Check]:
    """Build a library, unless a check of it is broken."""
    if module and not any(check.status == "broken" for check in checks):
        yield guarded("launches", library.of, lambda: launches(library, module))


def _check(library: Library, folder: Folder, theirs: list[Future[Upstream]]) -> Checked:
    module, checks = check_library(library, folder)

    def same(future: Future[Upstream]) -> Check:
        upstream = future.result()
        assert module is not None
        found = differences(upstream, module.kernels)
        facts = {"files": len(upstream.files), "archs": list(upstream.archs), "same": not found}
        said = f"{len(upstream.files)} files of AITER's own build for {', '.join(upstream.archs)}"
        return Check("rendered", upstream.direction, said, tuple(found), facts)

    if module is not None:
        checks += [guarded("rendered", library.of, lambda f=f: same(f)) for f in theirs]  # type: ignore[misc]
    return module, checks
