"""Builds a manifest's libraries with Bazel and installs them, for `qola build` and Python."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from qola.aiter.attention import ATTENTION, TORCH_ATTENTION
from qola.build.bazel import BuildOptions, build
from qola.build.events import DEFAULT_OUTPUTS, EventReader, TargetResult
from qola.build.forms import without_form
from qola.build.install import (
    BuildResult,
    ModuleRecord,
    install,
    module_record,
    not_made,
    outdated,
    run_record,
)
from qola.build.pack import SUFFIX
from qola.build.results import broken_below, describe_failure, messages_of, results_of
from qola.build.setup import ResolvedBuild
from qola.build.workspace import BUNDLE, BUNDLE_FILE, WHEEL, Workspace, targets
from qola.common.layout import (
    AITER_JIT,
    FUNCTIONS,
    RECORD,
    TRITON,
    WHEELS,
    function_file,
    library_file,
    triton_file,
)
from qola.plan.model import Plan, PlannedModule, PythonModule, TorchModule
from qola_base.errors import Finding
from qola_base.files import write_if_changed
from qola_base.progress import log

_PLAN = "plan"
"""Output group of a qola_library with plan.json."""

_LOG = "--execution_log_"


def build_all(workspace: Workspace, options: BuildOptions, environ: Mapping[str, str]) -> Built:
    """Build the modules, and a bundle of the successful ones.

    The caller holds the workspace until it has read the results. If a module of the bundle's wheel
    fails, no wheel is made: nothing in it would say that it is incomplete.

    Raises:
        QolaError: nothing could be built.
    """
    chosen, directory = workspace.chosen, workspace.directory
    file, names, forms = chosen.manifest.file, chosen.names, chosen.forms
    kind = "lazy libraries, " if forms.lazy else "split by arch, " if forms.split else ""
    log.info(f"{file}: {kind}{', '.join(names)}, AITER {chosen.aiter.describe()}")
    labels = targets(names, forms.lazy)
    # A lazy build compiles no kernels.
    counted = {} if forms.lazy else {workspace.name: names}
    planned = replace(options, more=(f"--output_groups=+{_PLAN}", *options.more))
    events = build(workspace.bazel, directory, labels, planned, environ, counted)
    results = results_of(events, dict(zip(names, labels, strict=True)))
    # Read now: the next run of Bazel removes the output of failed actions.
    errors = {n: describe_failure(r, events) for n, r in results.items() if not r.success}
    broken = {n: broken_below(r, events) for n, r in results.items()}
    bundled = names if chosen.manifest.for_aiter else (*ATTENTION, TRITON)
    good = [name for name in names if name in bundled and results[name].success]
    bad = [name for name in names if name in bundled and not results[name].success]
    patterns = workspace.wheel_patterns(forms) if forms.wheel else ()
    no_wheel = _incomplete_wheel(file, forms.wheel, bad) if forms.wheel and bad else ""
    if not good:
        # The file of an earlier build names other libraries.
        (directory / BUNDLE_FILE).unlink(missing_ok=True)
        return Built(results, errors, broken, bundle_error=no_wheel, unmade_wheels=patterns)
    if no_wheel:
        forms = replace(forms, wheel="", jax=False)
    write_if_changed(directory / BUNDLE_FILE, workspace.bundle_file(good, forms))
    packages = f"bundle and wheel {forms.wheel}" if forms.wheel else "bundle"
    log.info(f"{file}: {packages} of {', '.join(good)}")
    # This build would overwrite the execution log of the libraries.
    unlogged = replace(options, more=tuple(w for w in options.more if not w.startswith(_LOG)))
    packaging = [BUNDLE, *([WHEEL] if forms.wheel else [])]
    events = build(workspace.bazel, directory, packaging, unlogged, environ)
    bundle, wheels, error = _bundle(events, packaging)
    reasons = "\n".join(text for text in (error, no_wheel) if text)
    return Built(results, errors, broken, bundle, wheels, reasons, () if wheels else patterns)


def _incomplete_wheel(file: str, version: str, failed: Sequence[str]) -> str:
    """Return the error of a wheel that would lack modules."""
    return Finding(
        f"{file}: wheel {version}",
        f"failed: {', '.join(failed)}",
        "a wheel with all of its modules",
        "correct the errors of these modules, then, with the same options, "
        f"qola build {file} --wheel {version}",
    ).render()


@dataclass(frozen=True)
class Built:
    """The results of a build.

    Attributes:
        broken: kernel instances and other targets that did not build, by module.
        bundle: directory of the bundle of the successful modules, None if there is none.
        wheels: its Python wheel, or those of its parts, the host's first; none if there is none.
        bundle_error: why the bundle or the wheel could not be made, "" if they were or need not be.
        unmade_wheels: patterns of the names of requested wheels that were not made.
    """

    results: Mapping[str, TargetResult]
    errors: Mapping[str, str]
    broken: Mapping[str, list[str]]
    bundle: Path | None = None
    wheels: tuple[Path, ...] = ()
    bundle_error: str = ""
    unmade_wheels: tuple[str, ...] = ()


def _bundle(
    events: EventReader, labels: Sequence[str]
) -> tuple[Path | None, tuple[Path, ...], str]:
    """Return the bundle and its wheels, and the error of a missing one."""
    results = {label: events.targets.get(label) for label in labels}
    outputs = {
        label: result.outputs.get(DEFAULT_OUTPUTS, ()) if result else ()
        for label, result in results.items()
    }
    # Bazel reports a directory, or the files in it.
    found = [path if path.is_dir() else path.parent for path in outputs[BUNDLE]]
    holding = [path for path in found if (path / RECORD).is_file()]
    directory = min(holding, key=lambda path: len(path.parts)) if holding else None
    # The names of the others begin with the host's package.
    wheels = tuple(sorted(outputs.get(WHEEL, ()), key=lambda path: len(path.name)))
    if directory and (wheels or WHEEL not in labels):
        return directory, wheels, ""
    # Actions write errors to standard error; rules and BUILD files call fail.
    messages = [messages_of(action).strip() for _, action in sorted(events.failed.items())]
    texts = [text for text in (*messages, *events.errors()) if text]
    reasons = [result.reason for result in results.values() if result and result.reason]
    return directory, (), "\n".join(texts or reasons) or f"{events.output} says why"


def install_build(chosen: ResolvedBuild, built: Built, output: Path) -> BuildResult:
    """Install the results of a build; return the content of manifest.json."""
    results, namespace, names = built.results, chosen.manifest.namespace, chosen.names
    lazy = bool(chosen.forms.lazy)
    files: dict[str, Path] = {}
    bundled: dict[str, Any] = {"modules": []}
    if built.bundle:
        paths = sorted(path for path in built.bundle.rglob("*") if path.is_file())
        files = {path.relative_to(built.bundle).as_posix(): path for path in paths}
        bundled = json.loads(files.pop(RECORD).read_text(encoding="utf-8"))
    files |= {f"{WHEELS}/{wheel.name}": wheel for wheel in built.wheels}
    failed = not_made(namespace, names, files)
    for pattern in built.unmade_wheels:
        failed += [f"{WHEELS}/{wheel.name}" for wheel in (output / WHEELS).glob(pattern)]
    directory = AITER_JIT if chosen.manifest.for_aiter else "lib"
    known = {module["name"]: module for module in bundled["modules"]}
    library_files = _library_files(chosen, results)
    archs = bundled.get("archs") or chosen.spec.archs or chosen.manifest.archs
    records: list[ModuleRecord] = []
    for name in names:
        result, error = results[name], built.errors.get(name, "")
        outputs = result.outputs.get(DEFAULT_OUTPUTS, ()) if result.success else ()
        if name == FUNCTIONS and result.success:
            records += _function_records(outputs, files, known, output)
            continue
        library = next((file for file in outputs if file.suffix == ".so"), None)
        place = f"{directory}/{library.name if library else library_files[name]}"
        if library:
            # The bundle has the host part of a split library.
            library = files.setdefault(place, library)
            packs = [file for file in outputs if file.suffix == SUFFIX]
            files |= {f"lib/{pack.name}": pack for pack in packs if f"lib/{pack.name}" not in files}
        else:
            failed.append(place)
            error = error or "no library among the outputs"
        about = (result.seconds, built.broken[name], known.get(name))
        records.append(module_record(name, output / place, library, error, *about))
    are_lazy = lazy and len(without_form("lazy", names)) < len(names)
    run = run_record(chosen, records, archs, lazy=are_lazy, bundle_error=built.bundle_error)
    whole = cast(BuildResult, {**bundled, **run})
    if built.wheels:
        host, *others = (str(output / WHEELS / wheel.name) for wheel in built.wheels)
        whole["wheel"] = host
        if others:
            whole["arch_wheels"] = others
    own: list[str] = []
    if not lazy or built.bundle:
        good = [module["name"] for module in records if module["success"]]
        own = outdated(namespace, good, output)
        if chosen.manifest.for_aiter and len(good) == len(records) and chosen.is_whole:
            own.append(AITER_JIT)
    install(output, files, failed, whole, own)
    return whole


def _function_records(
    outputs: Iterable[Path], files: dict[str, Path], known: Mapping[str, Any], output: Path
) -> Iterator[ModuleRecord]:
    """Yield the records of the functions of AITER's second JIT; add their libraries to `files`."""
    for library in sorted(path for path in outputs if path.suffix == ".so"):
        name, place = library.stem, f"{AITER_JIT}/{function_file(library.name)}"
        file = files.setdefault(place, library)
        record = module_record(name, output / place, file, bundled=known.get(name))
        yield cast(ModuleRecord, {**record, "md_name": name})


def _library_files(chosen: ResolvedBuild, results: Mapping[str, TargetResult]) -> dict[str, str]:
    """Return the file name of each module's library, also of failed ones."""
    plans = [path for result in results.values() for path in result.outputs.get(_PLAN, ())]
    planned: list[PlannedModule | PythonModule | TorchModule] = []
    if plans:
        plan = Plan.from_json(plans[0].read_text(encoding="utf-8"))
        planned = [*plan.modules, *plan.python_modules, *plan.torch_modules]
    namespace = chosen.manifest.namespace
    # Names of declared modules without attention have no namespace.
    others = {module.name for module in chosen.manifest.modules} - {*ATTENTION, *TORCH_ATTENTION}
    names = [module.name for module in chosen.modules]
    assumed = {name: library_file("" if name in others else namespace, name) for name in names}
    assumed |= {TRITON: triton_file(namespace), FUNCTIONS: FUNCTIONS}
    return {**assumed, **{module.name: module.library for module in planned}}
