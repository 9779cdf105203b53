"""Builds a manifest's libraries with Bazel and installs them, for `qola build` and Python."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from qola.aiter.attention import ATTENTION, TORCH_ATTENTION
from qola.build import workspace
from qola.build.bazel import BuildOptions, build
from qola.build.events import DEFAULT_OUTPUTS, EventReader, TargetResult
from qola.build.forms import Forms
from qola.build.install import BuildResult, ModuleRecord, install, not_made, outdated, run_record
from qola.build.pack import SUFFIX
from qola.build.progress import planned_kernels
from qola.build.results import broken_below, describe_failure, results_of, said_by
from qola.build.setup import ResolvedBuild, Setup
from qola.files import write_if_changed
from qola.layout import RECORD, TRITON, WHEELS, library_file, triton_file
from qola.plan.model import Plan, PlannedModule, PythonModule, TorchModule
from qola.progress import log

PLAN = "plan"
"""Output group of a qola_library with plan.json."""

_LOG = "--execution_log_"


def build_all(
    setup: Setup,
    forms: Forms,
    options: BuildOptions,
    environ: Mapping[str, str],
    wheel: str = "",
) -> Built:
    """Build the modules, and a bundle of the successful ones.

    The caller holds the workspace until it has read the results.

    Args:
        wheel: version of the bundle's Python wheel, "" for none.

    Raises:
        QolaError: nothing could be built.
    """
    chosen, directory = setup.chosen, setup.directory
    file = chosen.manifest.file
    names = chosen.names
    kind = "lazy libraries, " if forms.lazy else ""
    log.info(f"{file}: {kind}{', '.join(names)}, AITER {chosen.aiter.describe()}")
    labels = workspace.targets(names, forms.lazy)
    # A lazy build compiles no kernels.
    counted = planned_kernels(setup.made.name, () if forms.lazy else names)
    events = build(setup.bazel, directory, labels, options, environ, counted)
    results = results_of(events, dict(zip(names, labels, strict=True)))
    # Read now: the next run of Bazel removes the output of failed actions.
    errors = {n: describe_failure(r, events) for n, r in results.items() if not r.success}
    broken = {n: broken_below(r, events) for n, r in results.items()}
    good = [name for name in names if name in (*ATTENTION, TRITON) and results[name].success]
    bundle = _Bundle()
    if good:
        text = setup.made.bundle_file(good, forms, wheel)
        write_if_changed(directory / workspace.BUNDLE_FILE, text)
        packages = f"bundle and wheel {wheel}" if wheel else "bundle"
        log.info(f"{file}: {packages} of {', '.join(good)}")
        # This build would overwrite the execution log of the libraries.
        unlogged = replace(options, more=tuple(w for w in options.more if not w.startswith(_LOG)))
        asked = [workspace.BUNDLE, *([workspace.WHEEL] if wheel else [])]
        found = build(setup.bazel, directory, asked, unlogged, environ)
        bundle = _bundle(found, asked)
    else:
        # The file of an earlier build names other libraries.
        (directory / workspace.BUNDLE_FILE).unlink(missing_ok=True)
    return Built(results, errors, broken, bundle)


@dataclass(frozen=True)
class _Bundle:
    """The bundle of the successful modules.

    Attributes:
        directory: None if there is no bundle.
        wheel: its Python wheel, None if there is none.
        error: why the bundle or the wheel could not be made, "" if they were or need not be.
    """

    directory: Path | None = None
    wheel: Path | None = None
    error: str = ""


@dataclass(frozen=True)
class Built:
    """The results of a build.

    Attributes:
        broken: kernel instances and other targets that did not build, by module.
    """

    results: Mapping[str, TargetResult]
    errors: Mapping[str, str]
    broken: Mapping[str, list[str]]
    bundle: _Bundle


def _bundle(events: EventReader, asked: Sequence[str]) -> _Bundle:
    """Return the bundle and its wheel, or the error of a missing one."""
    results = {label: events.targets.get(label) for label in asked}
    outputs = {
        label: result.outputs.get(DEFAULT_OUTPUTS, ()) if result else ()
        for label, result in results.items()
    }
    # Bazel reports a directory, or the files in it.
    found = [path if path.is_dir() else path.parent for path in outputs[workspace.BUNDLE]]
    holding = [path for path in found if (path / RECORD).is_file()]
    directory = min(holding, key=lambda path: len(path.parts)) if holding else None
    wheel = next(iter(outputs.get(workspace.WHEEL, ())), None)
    if directory and (wheel or workspace.WHEEL not in asked):
        return _Bundle(directory, wheel)
    # Actions write errors to standard error; rules and BUILD files call fail.
    said = [said_by(action).strip() for _, action in sorted(events.failed.items())]
    words = [text for text in (*said, *events.errors()) if text]
    reasons = [result.reason for result in results.values() if result and result.reason]
    return _Bundle(directory, None, "\n".join(words or reasons) or f"{events.told} says why")


def _install(chosen: ResolvedBuild, lazy: bool, built: Built, output: Path) -> BuildResult:
    results, bundle, namespace = built.results, built.bundle, chosen.manifest.namespace
    files: dict[str, Path] = {}
    failed: list[str] = []
    records: list[ModuleRecord] = []
    bundled: dict[str, Any] = {"modules": []}
    if bundle.directory:
        paths = sorted(path for path in bundle.directory.rglob("*") if path.is_file())
        files = {path.relative_to(bundle.directory).as_posix(): path for path in paths}
        bundled = json.loads(files.pop(RECORD).read_text(encoding="utf-8"))
    if bundle.wheel:
        files[f"{WHEELS}/{bundle.wheel.name}"] = bundle.wheel
    names = chosen.names
    failed += not_made(namespace, names, files)
    known = {module["name"]: module for module in bundled["modules"]}
    library_files = _library_files(chosen, results)
    archs = bundled.get("archs") or chosen.spec.archs or chosen.manifest.architectures
    for name in names:
        library = _library_of(results[name])
        place = f"lib/{library.name if library else library_files[name]}"
        if library:
            files.setdefault(place, library)
            for pack in _packs_of(results[name]):
                files.setdefault(f"lib/{pack.name}", pack)
        else:
            failed.append(place)
        about = known.get(name, {})
        records.append(_module_record(about, name, built, library, output / place))
    are_lazy = lazy and any(name in ATTENTION for name in names)
    record = run_record(chosen, records, archs, lazy=are_lazy, bundle_error=bundle.error)
    whole = cast(BuildResult, {**bundled, **record})
    if bundle.wheel:
        whole["wheel"] = str(output / WHEELS / bundle.wheel.name)
    own: list[str] = []
    if not lazy or bundle.directory:
        good = [module["name"] for module in records if module["success"]]
        own = outdated(namespace, good, lazy, output)
    install(output, files, failed, whole, own)
    return whole


def _library_files(chosen: ResolvedBuild, results: Mapping[str, TargetResult]) -> dict[str, str]:
    """Return the file name of each module's library, also of failed ones."""
    plans = [path for result in results.values() for path in result.outputs.get(PLAN, ())]
    planned: list[PlannedModule | PythonModule | TorchModule] = []
    if plans:
        plan = Plan.from_json(plans[0].read_text(encoding="utf-8"))
        planned = [*plan.modules, *plan.python_modules, *plan.torch_modules]
    # Names of declared modules without attention have no namespace.
    others = {module.name for module in chosen.manifest.modules} - {*ATTENTION, *TORCH_ATTENTION}
    assumed = {
        module.name: library_file(
            "" if module.name in others else chosen.manifest.namespace, module.name
        )
        for module in chosen.modules
    }
    assumed[TRITON] = triton_file(chosen.manifest.namespace)
    return {**assumed, **{module.name: module.library for module in planned}}


def _library_of(result: TargetResult) -> Path | None:
    """Return the library of a module's target, None if there is none."""
    made = [file for file in result.outputs.get(DEFAULT_OUTPUTS, ()) if file.suffix == ".so"]
    return made[0] if result.success and made else None


def _packs_of(result: TargetResult) -> list[Path]:
    """Return the kernel packs of a library."""
    return [file for file in result.outputs.get(DEFAULT_OUTPUTS, ()) if file.suffix == SUFFIX]


def _module_record(
    bundled: Mapping[str, Any], name: str, built: Built, library: Path | None, place: Path
) -> ModuleRecord:
    """Merge the bundle's and the build's data of a module; the build's take precedence."""
    result = built.results[name]
    own: dict[str, Any] = {
        "name": name,
        "md_name": place.stem,
        "success": library is not None,
        "error": "" if library else built.errors.get(name, "no library among the outputs"),
        "so_path": str(place) if library else None,
        "duration_s": round(result.seconds, 2),
        "size": library.stat().st_size if library else None,
        "failed": built.broken[name],
    }
    return cast(ModuleRecord, {**bundled, **own})
