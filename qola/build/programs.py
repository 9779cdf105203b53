"""Builds libraries and the programs that run them without a GPU: of one manifest, or of many."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from qola.build.bazel import BuildOptions, beside, build, find_bazel
from qola.build.events import DEFAULT_OUTPUTS, EventReader, TargetResult
from qola.build.forms import modules_with_kernels
from qola.build.outputs import OutputBase
from qola.build.results import describe_failure, results_of
from qola.build.setup import ResolvedBuild, resolve_build
from qola.build.workspace import (
    WORKSPACES,
    Workspace,
    module_text,
    programs_text,
    set_up,
    write,
)
from qola.checkout.request import AiterOptions
from qola.common.ruleset import ruleset_root
from qola.manifest.load import load
from qola.plan.spec import BuildRequest
from qola_base.cache import cache_directory, locked
from qola_base.errors import ExitCode, QolaError
from qola_base.files import sha256_of_text, write_if_changed
from qola_base.progress import flush_progress, log

_PROGRAMS = "programs"
_PINNED = AiterOptions()


class NotBuiltError(QolaError, title="the libraries were not built", exit_code=ExitCode.NOT_BUILT):
    """Libraries that do not build."""


@dataclass(frozen=True)
class BuiltProgram:
    """The program that runs the libraries of a manifest, or else the error messages."""

    path: Path | None
    error: str = ""


def build_program(
    name: str, chosen: ResolvedBuild, options: BuildOptions, environ: Mapping[str, str]
) -> BuiltProgram:
    """Build the libraries of a manifest, and a program that runs their host code.

    Args:
        name: one of `qola.build.workspace.PROGRAMS`, whose package defines the program's arguments.

    Raises:
        QolaError: nothing could be built.
    """
    workspace = set_up(chosen, environ)
    place, directory = chosen.manifest.file, workspace.directory
    names = modules_with_kernels(chosen.modules, place)
    with workspace.opened() as outputs:
        text = programs_text([workspace.program(name, name, names)])
        write_if_changed(directory / name / "BUILD.bazel", text)
        log.info(f"{place}: {', '.join(names)}, AITER {chosen.aiter.describe()}")
        target = f"//{name}:{name}"
        events = build(workspace.bazel, directory, [target], options, environ)
        (result,) = results_of(events, {name: target}).values()
        # The program runs after other builds may start.
        outputs.keep()
        return _find_program(name, result, events)


def run_program(
    program: Path, words: Sequence[str], environ: Mapping[str, str], *, stderr: int | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a program that `build_program` has built, and return its standard output.

    Args:
        stderr: as of subprocess.run.
    """
    # Runfiles of a Bazel around this process are not the program's.
    inherited = {k: v for k, v in environ.items() if not k.startswith(("RUNFILES_", "TEST_"))}
    flush_progress()
    ruleset = ruleset_root()
    command = [*beside(find_bazel(environ, ruleset), ruleset), str(program), *words]
    variables = {"PATH": os.defpath, **inherited}
    return subprocess.run(
        command, env=variables, stdout=subprocess.PIPE, stderr=stderr, check=False
    )


def build_programs(
    manifests: Mapping[str, str],
    kind: str,
    options: BuildOptions,
    environ: Mapping[str, str],
    aiter: AiterOptions = _PINNED,
) -> dict[str, BuiltProgram]:
    """Build a program for each manifest in one run of Bazel; a failure stops no other manifest.

    Args:
        manifests: text of each manifest, by a name that is valid for a Bazel repository.
        kind: one of `qola.build.workspace.PROGRAMS`.
        aiter: the AITER of all.

    Raises:
        QolaError: nothing could be tried, or a manifest is invalid.
    """
    digest = sha256_of_text(ruleset_root().as_posix())[:16]
    directory = cache_directory(environ) / WORKSPACES / f"kernels-{digest}"
    with ExitStack() as stack:
        stack.enter_context(locked(directory, "build of kernels"))
        workspaces: dict[str, Workspace] = {}
        chosen: ResolvedBuild | None = None
        for name, text in manifests.items():
            file = directory / f"{name}.toml"
            write_if_changed(file, text)
            if chosen is None:
                # The AITER tree is chosen once.
                chosen = resolve_build(BuildRequest(file, aiter=aiter), environ)
            else:
                manifest = load(file, display=file.name)
                chosen = replace(chosen, manifest=manifest, file=file, modules=manifest.modules)
            workspaces[name] = set_up(chosen, environ)
        first = next(iter(workspaces.values()))
        # Names of manifests are digests, so no build overwrites the programs of another.
        outputs = stack.enter_context(first.output_base(directory))
        _write(directory, workspaces, kind, outputs)
        labels = {name: f"//{_PROGRAMS}:{name}" for name in manifests}
        log.info(f"{len(manifests)} manifests, AITER {first.chosen.aiter.describe()}")
        modules = {w.name: [m.name for m in w.chosen.modules] for w in workspaces.values()}
        events = build(first.bazel, directory, [*labels.values()], options, environ, modules)
        try:
            results = results_of(events, labels)
        except QolaError as error:
            # No target was tried. The plans' errors may have one cause or many.
            return dict.fromkeys(labels, BuiltProgram(None, str(error)))
        return {name: _find_program(name, result, events) for name, result in results.items()}


def _find_program(name: str, result: TargetResult, events: EventReader) -> BuiltProgram:
    programs = [p for p in result.outputs.get(DEFAULT_OUTPUTS, ()) if p.name == name]
    if result.success and programs:
        return BuiltProgram(programs[0])
    return BuiltProgram(None, describe_failure(result, events))


def _write(
    directory: Path, workspaces: Mapping[str, Workspace], kind: str, outputs: OutputBase
) -> None:
    first = next(iter(workspaces.values()))
    names = [workspace.name for workspace in workspaces.values()]
    files = dict(first.files(directory, outputs.base))
    files["MODULE.bazel"] = module_text(first.ruleset, first.chosen.aiter, names)
    # Only programs are built.
    files["BUILD.bazel"] = programs_text([])
    programs = []
    for name, workspace in workspaces.items():
        files |= workspace.manifest_files()
        chosen = workspace.chosen
        modules = modules_with_kernels(chosen.modules, chosen.manifest.file)
        programs.append(workspace.program(name, kind, modules))
    files[f"{_PROGRAMS}/BUILD.bazel"] = programs_text(programs)
    write(directory, first.ruleset, files)
