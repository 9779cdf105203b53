"""Builds a manifest's libraries with Bazel and installs them: `qola build`, from Python too."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

from qola import workspace
from qola.aiter_source import checkout
from qola.attention import ATTENTION
from qola.bazel_events import DEFAULT_OUTPUTS, EventReader, FailedAction, TargetResult
from qola.bazel_run import BuildOptions, build
from qola.build_setup import (
    BuildRequest,
    Forms,
    Progress,
    Setup,
    aiter_request,
    default_aiter_root,
    set_up,
    workspace_locked,
)
from qola.choices import DEFAULT_REMOTE, check_static, choose_lazy, choose_modules
from qola.diagnostics import first_errors
from qola.digest import write_if_changed
from qola.errors import (
    AiterError,
    CodegenError,
    Finding,
    ManifestError,
    PlanError,
    QolaError,
    ToolchainError,
)
from qola.install import (
    RECORD,
    BuildResult,
    ModuleRecord,
    install,
    not_made,
    outdated,
    summarize,
)
from qola.manifest import load
from qola.manifest_types import BuildMode
from qola.plan import from_json, library_file
from qola.prebuilt.fetch import first_prebuilt
from qola.prebuilt.options import PrebuiltOptions
from qola.resources import ruleset_root
from qola.schema import NATIVE

_SHOWN_FAILURES = 3
"""Different errors of a module that are shown; the targets of others are counted."""

PLAN = "plan"
"""Output group of a qola_library with plan.json."""

_NO_ROCM = "qola: ToolchainError: "

_CLASSES = {
    error.__name__: error
    for error in (AiterError, CodegenError, ManifestError, PlanError, ToolchainError)
}


def build_kernels(
    manifest_path: str | Path,
    *,
    output_dir: str | Path,
    aiter_root: str | Path | None = None,
    archs: Sequence[str] | None = None,
    verbose: bool = False,
    build_mode: BuildMode | None = None,
    aiter_commit: str | None = None,
    patches_dir: str | Path | None = None,
    skip_checkout: bool = False,
    groups: Sequence[str] | None = None,
    aiter_remote: str = DEFAULT_REMOTE,
    keep_going: bool = True,
    jobs: int | None = None,
    bazel_args: Sequence[str] = (),
    lazy: bool | None = None,
    static: bool = False,
    prebuilt: PrebuiltOptions | None = None,
    environ: Mapping[str, str] | None = None,
    progress: Progress = lambda _: None,
) -> BuildResult:
    """Build the modules of a manifest and install them.

    The arguments up to `groups` are ROCm/QoLA's, with their meaning there (docs/qola-build.md).

    Args:
        manifest_path: the manifest.
        output_dir: where to install: lib/, include/, configs/, licenses/, manifest.json and an
            SBOM: a bundle (docs/bundle.md) of the modules that could be built.
        aiter_root: directory of the AITER tree. By default Bazel fetches and keeps it.
        archs: archs instead of the manifest's; an item may be a list with ; between.
        verbose: show every command.
        build_mode: mode of modules that have none of their own.
        aiter_commit: commit, tag or branch instead of the manifest's [qola].aiter_commit.
        patches_dir: folder of patches instead of [qola].patches_dir; an empty one for none.
        skip_checkout: use aiter_root as it is; `aiter_commit` and `patches_dir` do not count.
        groups: build only modules of these groups.
        aiter_remote: what git fetches a commit from.
        keep_going: go on with other kernels and modules when one fails.
        jobs: actions at a time.
        bazel_args: further arguments of bazel build.
        lazy: whether the attention libraries are lazy ones (docs/lazy.md), with share/qola/ and
            bin/; by default NVTE_CK_JIT says it. Modules that Python imports never are.
        static: whether lib/ also has an archive of the attention modules (docs/static.md).
        prebuilt: where a prebuilt bundle is looked for first (docs/prebuilt.md); by default where
            manifest and environment say.
        environ: the environment: AITER_ARCHIVE_BATCH_SIZE, GPU_ARCHS, NVTE_CK_JIT, QOLA_BAZEL,
            XDG_CACHE_HOME, and those of docs/prebuilt.md; by default the process's.
        progress: called with a line when a long step begins.

    Returns:
        What manifest.json in `output_dir` holds; its `summary` counts the modules that failed, and
        its `bundle_error` says why there is no bundle of the others.

    Raises:
        QolaError: nothing could be built: the manifest, the AITER tree, the plan or this machine
            is at fault. `output_dir` is then as it was.
        OSError: `output_dir` cannot be written to.
    """
    environ = os.environ if environ is None else environ
    wants_lazy = choose_lazy(lazy, environ, progress)
    request = BuildRequest(
        manifest_path=manifest_path,
        aiter_root=aiter_root,
        archs=archs,
        build_mode=build_mode,
        aiter_commit=aiter_commit,
        patches_dir=patches_dir,
        skip_checkout=skip_checkout,
        groups=groups,
        aiter_remote=aiter_remote,
    )
    output = Path(output_dir).absolute()
    forms = Forms(wants_lazy, static)
    wanted = prebuilt or PrebuiltOptions()
    chosen, fetched = first_prebuilt(request, forms, bazel_args, wanted, environ, output, progress)
    if fetched:
        return fetched
    setup = set_up(request, environ, progress, chosen)
    check_static(static, wants_lazy, setup.modules, environ, progress)
    options = BuildOptions(
        keep_going=keep_going,
        jobs=jobs,
        subcommands=verbose,
        more=(f"--output_groups=+{PLAN}", *bazel_args),
    )
    with workspace_locked(setup.directory, progress):
        built = build_all(setup, forms, options, environ, progress)
        return _install(setup, wants_lazy, built, output)


def build_all(
    setup: Setup,
    forms: Forms,
    options: BuildOptions,
    environ: Mapping[str, str],
    progress: Progress,
) -> Built:
    """Build the modules, and a bundle of those that could be built.

    Args:
        setup: what to build; its workspace is locked by the caller until the results are read.
        forms: which kinds of libraries.
        options: how Bazel builds.
        environ: its environment.
        progress: called with a line when a long step begins.

    Raises:
        QolaError: nothing could be built.
    """
    manifest, directory = setup.manifest, setup.directory
    setup.write()
    names = [module.name for module in setup.modules]
    kind = "lazy libraries, " if forms.lazy else ""
    progress(f"{manifest.file}: {kind}{', '.join(names)}, AITER {setup.aiter.describe()}")
    labels = workspace.targets(names, forms.lazy)
    events = build(setup.bazel, directory, labels, options, environ, note=progress)
    results = results_of(events, dict(zip(names, labels, strict=True)))
    # Read before Bazel runs again: it then forgets what failing actions wrote.
    errors = {n: describe_failure(r, events) for n, r in results.items() if not r.success}
    good = [name for name in names if name in ATTENTION and results[name].success]
    bundle = _Bundle()
    if good:
        text = setup.made.bundle_file(good, forms.lazy, forms.static)
        write_if_changed(directory / workspace.BUNDLE_FILE, text)
        progress(f"{manifest.file}: bundle of {', '.join(good)}")
        found = build(setup.bazel, directory, [workspace.BUNDLE], options, environ)
        bundle = _bundle(found)
    else:
        # One of an earlier build names libraries that this one does not have.
        (directory / workspace.BUNDLE_FILE).unlink(missing_ok=True)
    return Built(events, results, errors, bundle)


def checkout_aiter(
    manifest_path: str | Path | None = None,
    aiter_root: str | Path | None = None,
    aiter_commit: str | None = None,
    patches_dir: str | Path | None = None,
    groups: Sequence[str] | None = None,
    *,
    aiter_remote: str = DEFAULT_REMOTE,
    environ: Mapping[str, str] | None = None,
    progress: Progress = lambda _: None,
) -> str:
    """Make a patched AITER tree without building: what `build_kernels` would build from.

    The arguments up to `groups` are ROCm/QoLA's. Of two commits or folders of patches, the
    argument wins over the manifest's; without either it is the wheel qola pins, without patches.

    Args:
        manifest_path: manifest whose [qola] aiter_commit and patches_dir apply.
        aiter_root: the directory: absent, empty, or made by this function before; by default one
            in the cache.
        aiter_commit: commit, tag, branch, or version of the pinned wheel.
        patches_dir: folder of patches.
        groups: refused unless the manifest has them; the tree is the same for all groups.
        aiter_remote: what git fetches from.
        environ: the environment, for the cache's place; by default the process's.
        progress: called with a line when a long step begins.

    Returns:
        Absolute path of the tree.

    Raises:
        ManifestError: the manifest is not valid, or has no such group.
        AiterError: the directory holds something else, or a patch does not fit; it is then as it
            was.
    """
    environ = os.environ if environ is None else environ
    root = Path(aiter_root).absolute() if aiter_root else default_aiter_root(environ)
    manifest, folder = None, Path.cwd()
    if manifest_path is not None:
        manifest = load(Path(manifest_path), display=Path(manifest_path).as_posix())
        folder = Path(manifest_path).absolute().parent
        choose_modules(manifest, groups or ())
    request = aiter_request(
        manifest, folder, ruleset_root(), root, aiter_commit, aiter_remote, patches_dir
    )
    return str(checkout(request, root, progress))


def results_of(events: EventReader, labels: Mapping[str, str]) -> dict[str, TargetResult]:
    """Return what became of targets.

    Args:
        events: what Bazel said.
        labels: the targets by name.

    Raises:
        QolaError: not one was tried: Bazel could not make the plan or load the targets, or
            there is no compiler.
    """
    results = {
        name: events.targets[label] for name, label in labels.items() if label in events.targets
    }
    tried = any(result.success or result.failures for result in results.values())
    if not tried and events.exit_code:
        raise _as_error(events.errors())
    if not any(result.success for result in results.values()):
        # What stands in for the compiler on a machine without ROCm fails every action alike.
        said = map(_said, events.failed.values())
        if missing_rocm := next((text for text in said if _NO_ROCM in text), ""):
            raise _as_error([missing_rocm])
    untried = TargetResult(False, 0.0, {}, (), "not tried, because another module failed")
    return {name: results.get(name, untried) for name in labels}


def _as_error(messages: Sequence[str]) -> QolaError:
    """Returns the error for what a repository rule or a BUILD file failed with.

    Both write `qola: <class>: `, which says whose fault it is; Bazel has shown the text itself.
    """
    text = "\n".join(messages).strip()
    kinds = [_CLASSES[name] for name in re.findall(r"qola: (\w+Error): ", text) if name in _CLASSES]
    kind = kinds[0] if kinds else QolaError
    return kind(
        # The text says itself what is expected, and what helps.
        Finding("bazel build", text or "an error that is told above", ""),
        "nothing could be built",
    )


@dataclass(frozen=True)
class _Bundle:
    """The bundle of the modules that were built.

    Attributes:
        directory: where it is, None for none.
        error: why it could not be made, "" where it was, or where nothing is in one.
    """

    directory: Path | None = None
    error: str = ""


@dataclass(frozen=True)
class Built:
    """What Bazel has built.

    Attributes:
        events: what it said.
        results: what became of each module.
        errors: of those that failed, why.
        bundle: the bundle of the others.
    """

    events: EventReader
    results: Mapping[str, TargetResult]
    errors: Mapping[str, str]
    bundle: _Bundle


def _bundle(events: EventReader) -> _Bundle:
    """Returns the bundle, or why there is none."""
    result = events.targets.get(workspace.BUNDLE)
    outputs = result.outputs.get(DEFAULT_OUTPUTS, ()) if result else ()
    # Bazel names a directory, or the files in it.
    found = [path if path.is_dir() else path.parent for path in outputs]
    holding = [path for path in found if (path / RECORD).is_file()]
    if holding:
        return _Bundle(min(holding, key=lambda path: len(path.parts)))
    # An action has said it on its own standard error, a rule or a BUILD file with fail.
    said = [_said(action).strip() for _, action in sorted(events.failed.items())]
    words = [text for text in (*said, *events.errors()) if text]
    reason = result.reason if result else ""
    return _Bundle(None, "\n".join(words) or reason or "Bazel's output above says why")


def _install(setup: Setup, lazy: bool, built: Built, output: Path) -> BuildResult:
    events, results, bundle = built.events, built.results, built.bundle
    files: dict[str, Path] = {}
    failed: list[str] = []
    records: list[ModuleRecord] = []
    bundled: dict[str, Any] = {"modules": []}
    if bundle.directory:
        paths = sorted(path for path in bundle.directory.rglob("*") if path.is_file())
        files = {path.relative_to(bundle.directory).as_posix(): path for path in paths}
        bundled = json.loads(files.pop(RECORD).read_text(encoding="utf-8"))
    names = [module.name for module in setup.modules]
    failed += not_made(setup.manifest.namespace, names, files)
    known = {module["name"]: module for module in bundled["modules"]}
    library_files = _library_files(setup, results)
    archs = bundled.get("archs") or setup.archs or setup.manifest.architectures
    for module in setup.modules:
        result = results[module.name]
        name = f"lib/{library_files[module.name]}"
        libraries = [f for f in result.outputs.get(DEFAULT_OUTPUTS, ()) if f.suffix == ".so"]
        success = result.success and bool(libraries)
        if success:
            name = f"lib/{libraries[0].name}"
            files.setdefault(name, libraries[0])
        else:
            failed.append(name)
        records.append(
            _module_record(
                known.get(module.name, {}),
                name=module.name,
                md_name=Path(name).stem,
                success=success,
                error=""
                if success
                else built.errors.get(module.name, "no library among the outputs"),
                so_path=str(output / name) if success else None,
                duration_s=round(result.seconds, 2),
                size=libraries[0].stat().st_size if success else None,
                failed=sorted(events.failed[f].name for f in result.failures if f in events.failed),
            )
        )
    record = BuildResult(
        generated_at=datetime.now(timezone.utc).isoformat(),
        aiter=setup.aiter.describe(),
        aiter_root=str(setup.aiter.root) if setup.aiter.root else None,
        manifest_src=str(setup.file),
        bundle_error=bundle.error,
        lazy=lazy and any(module.name in ATTENTION for module in setup.modules),
        gpu_archs=";".join(archs) or NATIVE,
        modules=records,
        summary=summarize(records),
    )
    whole = cast(BuildResult, {**bundled, **record})
    own: list[str] = []
    if not lazy or bundle.directory:
        good = [module["name"] for module in records if module["success"]]
        own = outdated(setup.manifest.namespace, good, lazy, output)
    install(output, files, failed, whole, own)
    return whole


def _library_files(setup: Setup, results: Mapping[str, TargetResult]) -> dict[str, str]:
    """Returns the file name of each module's library, whether it was built or not."""
    plans = [path for result in results.values() for path in result.outputs.get(PLAN, ())]
    planned: list[dict[str, Any]] = []
    if plans:
        plan = from_json(plans[0].read_text(encoding="utf-8"))
        planned = [*plan["modules"], *plan["python_modules"]]
    # Python finds a module by its own name, which has no namespace in front.
    assumed = {
        module.name: library_file(
            setup.manifest.namespace if module.name in ATTENTION else "", module.name
        )
        for module in setup.modules
    }
    return {**assumed, **{module["name"]: module["library"] for module in planned}}


def _module_record(bundled: Mapping[str, Any], **own: Any) -> ModuleRecord:
    """Returns what the bundle and the build know of a module; of both, the build knows better."""
    return cast(ModuleRecord, {**bundled, **own})


def describe_failure(result: TargetResult, events: EventReader) -> str:
    """Return what failed of a module: targets by name, each with its tool's first errors.

    Of targets that failed with the same words, the first is named and the others are counted.
    """
    by_words: dict[tuple[str, ...], list[FailedAction]] = {}
    for label in sorted({f for f in result.failures if f in events.failed}):
        action = events.failed[label]
        by_words.setdefault(first_errors(_said(action)), []).append(action)
    lines = []
    for words, (first, *same) in list(by_words.items())[:_SHOWN_FAILURES]:
        lines.append(f"{first.name}: {first.mnemonic} failed with exit code {first.exit_code}")
        lines += [f"  {line}" for line in words]
        lines += [f"  {len(same)} more targets failed with the same words"] if same else []
    hidden = sum(len(actions) for actions in list(by_words.values())[_SHOWN_FAILURES:])
    lines += [f"... and {hidden} more targets failed"] if hidden else []
    return "\n".join(lines) or result.reason or "failed; Bazel's output above says why"


def _said(action: FailedAction) -> str:
    if action.stderr is None or not action.stderr.is_file():
        return ""
    return action.stderr.read_text(encoding="utf-8", errors="replace")
