"""Has Bazel compile kernels of lazy libraries and packs them: ``qola kernels build --manifest``."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qola.aiter.attention import ATTENTION
from qola.build import workspace
from qola.build.bazel import BuildOptions, build
from qola.build.build import PLAN
from qola.build.events import DEFAULT_OUTPUTS, EventReader, TargetResult
from qola.build.kernel_selection import Row, Selection, SelectionError, choose
from qola.build.results import describe_failure, results_of
from qola.build.setup import (
    BuildRequest,
    Progress,
    Setup,
    choose_all,
    set_up,
    workspace_locked,
)
from qola.errors import Finding, QolaError
from qola.files import write_if_changed
from qola.plan.model import from_json

SUFFIX = ".qpack"

_SHOWN_NAMES = 20
"""Kernels that there are not which an error lists; others are counted."""


@dataclass(frozen=True)
class PackResult:
    """What became of a pack.

    Attributes:
        rows: the kernels that were selected.
        error: what failed, with the tools' words; "" for nothing: the pack is there.
    """

    rows: tuple[Row, ...]
    error: str = ""


def rows_by_module(
    modules: Mapping[str, Iterable[int]], kernels: Sequence[tuple[str, Sequence[str]]]
) -> dict[str, list[Row]]:
    """Return the kernels of each module, in the order in which qola-kernels lists them.

    Args:
        modules: indices of the kernels of each module.
        kernels: name and archs of each kernel of a plan.
    """
    return {
        name: [(kernels[index][0], arch) for index in indices for arch in kernels[index][1]]
        for name, indices in sorted(modules.items())
    }


def missing_kernels(missing: Sequence[str], place: str) -> SelectionError:
    """Return the error for kernels that are asked for and that there are not.

    Args:
        missing: what there is not.
        place: the manifest that does not have it.
    """
    names = list(missing[:_SHOWN_NAMES])
    if hidden := len(missing) - len(names):
        names.append(f"and {hidden} more")
    return SelectionError(
        Finding(
            place,
            "no kernel " + "\n".join(names),
            "kernels that the manifest has, for its archs",
            "qola kernels list --manifest FILE lists them; qola explain FILE NAME says why one is "
            "left out",
        ),
        f"{len(missing)} kernel{'s are' if len(missing) > 1 else ' is'} not there; "
        "nothing was built",
    )


def build_pack(
    request: BuildRequest,
    selection: Selection,
    output: Path,
    options: BuildOptions,
    environ: Mapping[str, str],
    progress: Progress,
) -> PackResult:
    """Compile the selected kernels, as Bazel does for libraries, and put them into a pack.

    Args:
        request: of what manifest, AITER and archs.
        selection: the kernels.
        output: the pack, absolute; replaced as a whole, and only when all was compiled.
        options: how Bazel builds.
        environ: the environment.
        progress: called with a line when a long step begins.

    Raises:
        QolaError: nothing could be built: the manifest, the AITER tree, the plan or this machine
            is at fault, or there is no such kernel, which is found before anything is compiled.
        OSError: the pack cannot be written.
    """
    setup = set_up(choose_all(request, environ, progress), environ)
    names = [module.name for module in setup.modules if module.name in ATTENTION]
    place, directory = setup.manifest.file, setup.directory
    if not names:
        raise SelectionError(
            Finding(place, "no module with kernels", f"one of {', '.join(ATTENTION)}"),
        )
    with workspace_locked(directory, progress):
        setup.write()
        progress(f"{place}: kernels of {', '.join(names)}, AITER {setup.aiter.describe()}")
        plan = _plan(setup, names, options, environ, progress)
        found = rows_by_module(
            {m["name"]: m["kernels"] for m in plan["modules"] if m["name"] in names},
            [(kernel["name"], kernel["archs"]) for kernel in plan["kernels"]],
        )
        chosen = choose((row for rows in found.values() for row in rows), selection)
        if chosen.missing:
            raise missing_kernels(chosen.missing, place)
        if not chosen.rows:
            raise SelectionError(
                Finding(place, f"no kernels in {', '.join(names)}", "a module with kernels"),
            )
        text = setup.made.pack_file(*_pack_of(found, selection))
        write_if_changed(directory / workspace.PACK_FILE, text)
        progress(f"{place}: pack of {len(chosen.rows)} kernels")
        targets = [workspace.PACK]
        events = build(setup.bazel, directory, targets, options, environ, note=progress)
        (result,) = results_of(events, {"pack": workspace.PACK}).values()
        error = _copy(result, events, output)
    return PackResult(chosen.rows, error)


def _plan(
    setup: Setup,
    modules: Sequence[str],
    options: BuildOptions,
    environ: Mapping[str, str],
    progress: Progress,
) -> Mapping[str, Any]:
    """Returns the plan, for which Bazel builds nothing."""
    only_plan = BuildOptions(
        keep_going=options.keep_going, more=(*options.more, f"--output_groups={PLAN}")
    )
    labels = workspace.targets(modules, lazy=True)
    events = build(setup.bazel, setup.directory, labels, only_plan, environ, note=progress)
    results = results_of(events, dict(zip(modules, labels, strict=True)))
    for result in results.values():
        for path in result.outputs.get(PLAN, ()):
            return from_json(path.read_text(encoding="utf-8"))
    reasons = dict.fromkeys(filter(None, (result.reason for result in results.values())))
    raise QolaError(
        Finding("bazel build", "\n".join(reasons) or "no plan", "a plan of the manifest"),
        "nothing could be built",
    )


def _pack_of(
    found: Mapping[str, Sequence[Row]], selection: Selection
) -> tuple[list[str], list[str]]:
    """Returns the modules a pack is made of, and its kernels as kernel_pack takes them."""
    if selection.everything:
        return [name for name, rows in found.items() if rows], []
    modules: list[str] = []
    kernels: dict[str, None] = {}
    for name, rows in found.items():
        if not any(map(selection.has, rows)):
            continue
        modules.append(name)
        partial = {kernel for kernel, arch in rows if not selection.has((kernel, arch))}
        for kernel, arch in filter(selection.has, rows):
            kernels[f"{kernel}:{arch}" if kernel in partial else kernel] = None
    return modules, [*kernels]


def _copy(result: TargetResult, events: EventReader, output: Path) -> str:
    """Puts the pack in its place; returns what failed where there is none."""
    packs = [path for path in result.outputs.get(DEFAULT_OUTPUTS, ()) if path.suffix == SUFFIX]
    if not result.success:
        return describe_failure(result, events)
    if not packs:
        return "no pack among the outputs"
    output.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place, so that it is there as a whole or not at all.
    with tempfile.TemporaryDirectory(prefix=".qola-", dir=output.parent) as aside:
        copy = Path(aside, output.name)
        shutil.copyfile(packs[0], copy)
        copy.chmod(0o644)
        os.replace(copy, output)
    return ""
