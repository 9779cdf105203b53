"""Builds the libraries of many manifests in one run of Bazel; one that fails stops no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from qola.build import workspace
from qola.build.bazel import BuildOptions, build
from qola.build.events import EventReader
from qola.build.forms import modules_with_kernels
from qola.build.outputs import OutputBase
from qola.build.progress import planned_kernels
from qola.build.results import results_of
from qola.build.setup import (
    ResolvedBuild,
    Setup,
    resolve_build,
    set_up,
    write_workspace,
)
from qola.build.verifier import program_of
from qola.cache import cache_directory, locked
from qola.checkout.request import AiterOptions
from qola.errors import QolaError
from qola.files import sha256_of_text, write_if_changed
from qola.manifest.load import load
from qola.plan.spec import BuildRequest
from qola.progress import log
from qola.ruleset import ruleset_root

_PROGRAMS = "programs"
_FILE = f"{_PROGRAMS}/BUILD.bazel"


@dataclass(frozen=True)
class Made:
    """What came of a manifest.

    Attributes:
        program: that runs its libraries, None where they do not build.
        error: why they do not: the words of the plan, or of the compiler.
    """

    program: Path | None
    error: str = ""


def build_several(
    manifests: Mapping[str, str],
    kind: str,
    options: BuildOptions,
    environ: Mapping[str, str],
    aiter_root: str | Path | None = None,
) -> dict[str, Made]:
    """Build programs that run the libraries of manifests, as `verifier.build_program` does for one.

    Args:
        manifests: their texts, by names that are those of a Bazel repository.
        kind: of the programs, one of `workspace.PROGRAMS`.

    Raises:
        QolaError: nothing could be tried: the AITER tree or this machine is at fault, or a
            manifest is none.
    """
    ruleset = ruleset_root()
    digest = sha256_of_text(ruleset.as_posix())[:16]
    directory = cache_directory(environ) / workspace.WORKSPACES / f"kernels-{digest}"
    with ExitStack() as stack:
        stack.enter_context(locked(directory, "build of kernels"))
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in manifests.items():
            write_if_changed(directory / f"{name}.toml", text)
        setups = _setups(directory, manifests, aiter_root, environ)
        first = next(iter(setups.values()))
        # Programs of other builds are not overwritten: the names of manifests are their content's.
        outputs = stack.enter_context(first.output_base(directory))
        _write(directory, setups, kind, outputs)
        labels = {name: f"//{_PROGRAMS}:{name}" for name in manifests}
        log.info(f"{len(manifests)} manifests, AITER {first.chosen.aiter.describe()}")
        targets = [*labels.values()]
        compiled = _compiled(setups.values())
        events = build(first.bazel, directory, targets, options, environ, compiled)
        return _made(events, labels)


def _setups(
    directory: Path,
    names: Iterable[str],
    aiter_root: str | Path | None,
    environ: Mapping[str, str],
) -> dict[str, Setup]:
    """Return all that building each manifest takes; the tree is chosen once."""
    found: dict[str, Setup] = {}
    chosen: ResolvedBuild | None = None
    for name in names:
        file = directory / f"{name}.toml"
        if chosen is None:
            chosen = resolve_build(BuildRequest(file, aiter=AiterOptions(aiter_root)), environ)
        else:
            manifest = load(file, display=file.name)
            chosen = replace(chosen, manifest=manifest, file=file, modules=manifest.modules)
        found[name] = set_up(chosen, environ)
    return found


def _write(directory: Path, setups: Mapping[str, Setup], kind: str, outputs: OutputBase) -> None:
    """Write the workspace that all of them have in common."""
    made = [setup.made for setup in setups.values()]
    first = next(iter(setups.values()))
    files = dict(first.made.files(first.bazel_version, directory, outputs.base))
    files["MODULE.bazel"] = workspace.module_text(first.made.ruleset, first.made.aiter, made)
    # Programs alone are built.
    files["BUILD.bazel"] = workspace.programs_text([])
    for one in made:
        files |= one.manifest_files()
    programs = []
    for name, setup in setups.items():
        modules = modules_with_kernels(setup.chosen.modules, setup.chosen.manifest.file)
        programs.append(setup.made.program(name, kind, modules))
    files[_FILE] = workspace.programs_text(programs)
    write_workspace(directory, files)


def _compiled(setups: Iterable[Setup]) -> Callable[[Path], Mapping[str, int]]:
    """Return what reads the kernels that all plans compile, see `planned_kernels`."""
    readers = [
        planned_kernels(setup.made.name, [module.name for module in setup.chosen.modules])
        for setup in setups
    ]

    def read(external: Path) -> Mapping[str, int]:
        return {name: count for one in readers for name, count in one(external).items()}

    return read


def _made(events: EventReader, labels: Mapping[str, str]) -> dict[str, Made]:
    try:
        results = results_of(events, labels)
    except QolaError as error:
        # Not one could be tried, each for its own reason or all for one.
        return dict.fromkeys(labels, Made(None, str(error)))
    return {name: Made(*program_of(name, result, events)) for name, result in results.items()}
