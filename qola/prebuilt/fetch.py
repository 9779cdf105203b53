"""Fetches the prebuilt bundle of a request: its key, the sources to ask, and the installation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from qola.aiter.attention import ATTENTION
from qola.build.bazel import ask, no_build, own_settings_alone
from qola.build.forms import without_form
from qola.build.install import BuildResult, install, module_record, not_made, outdated, run_record
from qola.build.setup import ResolvedBuild
from qola.build.workspace import ROCM, set_up
from qola.common.layout import RECORD, TRITON, library_file, triton_file
from qola.common.ruleset import ruleset_root
from qola.common.version import docs_url
from qola.manifest.constants import AITER
from qola.plan.spec import Forms
from qola.prebuilt import signature, store, te_layout
from qola.prebuilt.archive import unpack
from qola.prebuilt.key import ROCM_VARIABLE, Key, joined, make_key, rocm_identity
from qola.prebuilt.options import NamedSource, PrebuiltOptions, choose_sources, parse_source
from qola.prebuilt.record import MAX_SIZE
from qola.prebuilt.store import Found, Outcome
from qola_base.cache import cache_directory, locked
from qola_base.errors import Finding, NoPrebuiltError, PrebuiltError, ToolchainError
from qola_base.files import scratch
from qola_base.progress import log

ForeignRecord = Mapping[str, Any]
"""manifest.json of a fetched bundle, of which only the names of modules are checked."""


def first_prebuilt(
    chosen: ResolvedBuild,
    bazel_args: Sequence[str],
    options: PrebuiltOptions,
    environ: Mapping[str, str],
    output: Path,
) -> BuildResult | None:
    """Install the prebuilt bundle of a build; return None if it must be built.

    Raises:
        PrebuiltError: a source has a bundle with a wrong digest or signature.
        QolaError: a source is invalid, or Bazel does not find the ROCm.
    """
    if not choose_sources(options, chosen.manifest, environ, chosen.file.parent):
        return None
    if lacking := _lacking(chosen):
        log.info(f"no prebuilt bundle has {lacking}: building")
        return None
    try:
        key = key_of(chosen, bazel_args, environ)
    except NoPrebuiltError as error:
        log.info(f"no prebuilt bundle is looked for: {error.findings[0].found}")
        return None
    try:
        return fetch(chosen, key, options, environ, output)
    except NoPrebuiltError as error:
        log.info(f"no prebuilt {key.text}, building\n{error.findings[0].found}")
        return None


def _lacking(chosen: ResolvedBuild) -> str:
    """Return the parts of a build that prebuilt bundles never contain."""
    python = without_form("prebuilt", chosen.names)
    return f"{', '.join(python)}, which Python imports" if python else ""


def refuse_what_is_lacking(chosen: ResolvedBuild) -> None:
    """Raise NoPrebuiltError if a build has parts that prebuilt bundles never contain."""
    manifest = chosen.manifest
    if manifest.for_aiter:
        expected = f"a manifest of {' or '.join(ATTENTION)}; no bundle has modules of mode {AITER}"
        fix = f"qola build {manifest.file} --wheel 1.0 makes a wheel, which pip fetches"
        found = f'"{manifest.mode}"'
        raise NoPrebuiltError(Finding(manifest.place("build", "mode"), found, expected, fix))
    if lacking := _lacking(chosen):
        expected = f"{' or '.join(ATTENTION)} alone"
        fix = "--group GROUP chooses modules"
        raise NoPrebuiltError(Finding(manifest.file, lacking, expected, fix))


def key_of(chosen: ResolvedBuild, bazel_args: Sequence[str], environ: Mapping[str, str]) -> Key:
    """Return the key of a build; asks Bazel for the versions of a ROCm that is not pinned."""
    args = joined(bazel_args)
    rocm = rocm_identity(ruleset_root(), environ, args, lambda: _ask_bazel(chosen, args, environ))
    return make_key(chosen, rocm, args)


def _ask_bazel(
    chosen: ResolvedBuild, bazel_args: Sequence[str], environ: Mapping[str, str]
) -> Path:
    """Return rocm.json, which Bazel writes when it detects this machine's ROCm."""
    workspace = set_up(chosen, environ)
    bazel, label = workspace.bazel, f"@{ROCM}//:rocm.json"
    variables = [arg for arg in bazel_args if arg.startswith("--repo_env=")]
    command = [*bazel, *own_settings_alone(), "query", "--output=location", *variables, label]
    with workspace.opened():
        log.info("looking for the ROCm of this machine")
        run = ask(command, environ, workspace.directory)
    file = Path(run.stdout.partition(":")[0])
    if run.returncode or not file.is_file():
        raise ToolchainError(
            Finding(
                f"{ROCM_VARIABLE}, of which Bazel is asked",
                no_build(bazel, run.returncode, run.stderr or run.stdout).found,
                "a ROCm whose versions are known: they are part of a prebuilt bundle's key",
                f"{ROCM_VARIABLE}=pinned takes the ROCm that qola pins; qola build "
                "--no-prebuilt asks for none",
            )
        )
    return file


def find(
    chosen: ResolvedBuild,
    key: Key,
    named: Sequence[NamedSource],
    options: PrebuiltOptions,
    environ: Mapping[str, str],
) -> Found | list[Outcome]:
    """Return a verified bundle in the download cache, or the reason of each source without it.

    Raises:
        PrebuiltError: a source has a bundle that must not be used.
        QolaError: a source or the public key is invalid.
    """
    # Users may delete the first directory, but should keep the second.
    cache = cache_directory(environ) / "prebuilt" / key.digest
    newest = cache_directory(environ) / "prebuilt-newest" / key.digest
    sources = [parse_source(source, environ) for source in named]
    text = options.public_key or chosen.manifest.prebuilt.public_key
    public_key = signature.read_public_key(text, options.directory) if text else None
    offline = options.offline
    with locked(cache, "fetch of this bundle"):
        found = store.find(key, sources, cache, newest, public_key, offline=offline)
        if isinstance(found, Found) or not any(name.te_layout for name in named):
            return found
        (source,) = sources
        head = te_layout.commit_of(chosen.aiter)
        reason = head.problem
        if public_key or chosen.forms != Forms():
            reason = "it is not signed" if text else "it has full libraries, and nothing else"
        if reason:
            words = f"TransformerEngine's layout is not asked for: {reason}"
            return [*found, Outcome(str(source), words)]
        rocm = key.rocm["rocm_version"]
        more = te_layout.find(source, rocm, head.commit, cache, offline=offline)
        return more if isinstance(more, Found) else [*found, *more]


def fetch(
    chosen: ResolvedBuild,
    key: Key,
    options: PrebuiltOptions,
    environ: Mapping[str, str],
    output: Path,
) -> BuildResult:
    """Fetch and install a bundle; return the content of manifest.json in `output`.

    If lazy libraries are requested and no source has them, the bundle of full libraries serves: it
    contains the kernels that they would compile.

    Raises:
        NoPrebuiltError: no source has the bundle.
        PrebuiltError: a source has a bundle that must not be used.
    """
    named = choose_sources(options, chosen.manifest, environ, chosen.file.parent)
    outcomes: list[Outcome] = []
    forms = chosen.forms
    for kind in [forms, Forms()] if forms.lazy else [forms]:
        wanted = replace(key, forms=kind.to_json())
        found = find(replace(chosen, forms=kind), wanted, named, options, environ)
        if not isinstance(found, Found):
            more = "" if kind == forms else f"full libraries, {wanted.text}: "
            outcomes += [replace(one, words=f"{more}{one.words}") for one in found]
            continue
        result = _install_found(found, chosen, wanted, bool(kind.lazy), output)
        if result is None:
            libraries = " and ".join(chosen.names)
            words = f"passed over: it does not have {libraries} of the namespace"
            outcomes.append(Outcome(found.source, f"{words} {chosen.manifest.namespace!r}"))
            continue
        signed = options.public_key or chosen.manifest.prebuilt.public_key
        words = "" if signed else "; only its digest was checked: no public key is configured"
        if kind != forms:
            words += "; no source has lazy libraries, these have their kernels inside"
        log.info(f"prebuilt {wanted.text} from {found.source}{words}")
        return result
    raise store.no_such(key.text, outcomes)


def _install_found(
    found: Found, chosen: ResolvedBuild, key: Key, lazy: bool, output: Path
) -> BuildResult | None:
    """Unpack a verified archive and install it; return the content of manifest.json.

    Returns None if an archive of TransformerEngine lacks a library.

    Raises:
        PrebuiltError: the archive has forbidden members, or lacks required ones.
    """
    namespace, modules = chosen.manifest.namespace, chosen.names
    with scratch(found.archive.parent) as directory:
        files = unpack(found.archive, directory, found.unpacked_size, found.source)
        bundled: ForeignRecord = {"modules": []}
        if found.layout == te_layout.LAYOUT:
            targets = te_layout.without_top(list(files))
            files = {targets[name]: path for name, path in files.items()}
            named = {name: library_file(namespace, name) for name in modules}
            if TRITON in named:
                named[TRITON] = triton_file(namespace)
            libraries = {name: f"lib/{file}" for name, file in named.items()}
            if not files.keys() >= set(libraries.values()):
                return None
        else:
            bundled = bundle_record(files, found.source)
            libraries = libraries_of(bundled, modules, files, found.source)
        files.pop(RECORD, None)
        records = {module["name"]: module for module in bundled["modules"]}
        built = [
            module_record(name, output / path, files[path], bundled=records.get(name, {}))
            for name, path in libraries.items()
        ]
        run = run_record(chosen, built, key.archs, lazy=lazy)
        prebuilt = {"key": key.text, "source": found.source, "layout": found.layout}
        result = cast(BuildResult, {**bundled, **run, "prebuilt": prebuilt})
        own = outdated(namespace, modules, output)
        install(output, files, not_made(namespace, modules, files), result, own)
        return result


def bundle_record(files: Mapping[str, Path], place: str) -> ForeignRecord:
    """Return a bundle's manifest.json; raise PrebuiltError if it is missing."""
    try:
        if files[RECORD].stat().st_size > MAX_SIZE:
            raise ValueError(f"more than {MAX_SIZE} bytes")
        record = json.loads(files[RECORD].read_text(encoding="utf-8"))
        record["modules"] = [
            {**module, "name": str(module["name"])} for module in record["modules"]
        ]
        # It must be possible to write it again; some readable JSON is not.
        json.dumps(record)
    except (LookupError, ValueError, TypeError, RecursionError) as error:
        words = repr(f"{type(error).__name__} {error}")[1:-1][:200]
        raise PrebuiltError(
            Finding(
                place,
                f"no {RECORD} of a bundle in it: {words}",
                f"a bundle ({docs_url('guide/bundle.md')})",
            )
        ) from None
    return cast(ForeignRecord, record)


def libraries_of(
    bundled: ForeignRecord, modules: Sequence[str], files: Mapping[str, Path], place: str
) -> dict[str, str]:
    """Return the path of each module's library; raise PrebuiltError if one is missing."""
    known = {module["name"]: str(module.get("library", "")) for module in bundled["modules"]}
    libraries = {name: known.get(name, "") for name in modules}
    good = {name for name in files if name.endswith(".so")}
    if missing := [module for module, name in libraries.items() if name not in good]:
        lacking = f"no library of {', '.join(missing)}"
        raise PrebuiltError(Finding(place, lacking, "the modules of the manifest"))
    return libraries
