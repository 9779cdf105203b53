"""Has Bazel build libraries, and what runs them without a GPU, as ``qola verify`` does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from qola.build.bazel import BuildOptions, build
from qola.build.events import DEFAULT_OUTPUTS, EventReader, TargetResult
from qola.build.forms import modules_with_kernels
from qola.build.results import describe_failure, results_of
from qola.build.setup import ResolvedBuild, set_up
from qola.files import write_if_changed
from qola.progress import log


def build_program(
    name: str,
    chosen: ResolvedBuild,
    options: BuildOptions,
    environ: Mapping[str, str],
) -> tuple[Path | None, str]:
    """Build the libraries of a manifest, and a program that runs their host code.

    Args:
        name: one of `workspace.PROGRAMS`.

    Returns:
        The program, and ""; or None and the tools' error messages if it cannot be built.

    Raises:
        QolaError: nothing could be built: the manifest, the AITER tree, the plan or this machine
            is at fault.
    """
    setup = set_up(chosen, environ)
    place, directory = chosen.manifest.file, setup.directory
    names = modules_with_kernels(chosen.modules, place)
    with setup.workspace() as outputs:
        text = setup.made.program_file(name, names)
        write_if_changed(directory / name / "BUILD.bazel", text)
        log.info(f"{place}: {', '.join(names)}, AITER {chosen.aiter.describe()}")
        target = f"//{name}:{name}"
        events = build(setup.bazel, directory, [target], options, environ)
        (result,) = results_of(events, {name: target}).values()
        # It is run when others may build again.
        outputs.keep()
        return program_of(name, result, events)


def program_of(name: str, result: TargetResult, events: EventReader) -> tuple[Path | None, str]:
    """Return the program that a target of the name became; else None, and the tools' words."""
    programs = [p for p in result.outputs.get(DEFAULT_OUTPUTS, ()) if p.name == name]
    if result.success and programs:
        return programs[0], ""
    return None, describe_failure(result, events)
