"""Fetches the prebuilt bundle of a request: its key, the sources to ask, and the installation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from qola.aiter.attention import ATTENTION
from qola.build.bazel import ask, no_build, own_settings_alone
from qola.build.forms import without_form
from qola.build.install import BuildResult
from qola.build.setup import ResolvedBuild
from qola.build.workspace import ROCM, set_up
from qola.common.ruleset import ruleset_root
from qola.manifest.constants import AITER
from qola.plan.spec import Forms
from qola.prebuilt import identity, signature, store, te_layout
from qola.prebuilt.http import Transport, proxies_of
from qola.prebuilt.install import install_found
from qola.prebuilt.key import Key, joined
from qola.prebuilt.options import (
    TOKEN_VARIABLE,
    NamedSource,
    PrebuiltOptions,
    choose_sources,
    parse_source,
)
from qola.prebuilt.store import Found, Outcome
from qola_base.cache import cache_directory, locked
from qola_base.errors import Finding, NoPrebuiltError, ToolchainError
from qola_base.progress import log


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
    rocm = identity.rocm_identity(
        ruleset_root(), environ, args, lambda: _ask_bazel(chosen, args, environ)
    )
    return identity.key_of(chosen, rocm, args)


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
                f"{identity.ROCM_VARIABLE}, of which Bazel is asked",
                no_build(bazel, run.returncode, run.stderr or run.stdout).found,
                "a ROCm whose versions are known: they are part of a prebuilt bundle's key",
                f"{identity.ROCM_VARIABLE}=pinned takes the ROCm that qola pins; qola build "
                "--no-prebuilt asks for none",
            )
        )
    return file


def transport_of(environ: Mapping[str, str]) -> Transport:
    """Return the HTTP settings of an environment."""
    return Transport(environ.get(TOKEN_VARIABLE, ""), proxies_of(environ))


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
    transport = transport_of(environ)
    sources = [parse_source(source, transport) for source in named]
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
        result = install_found(found, chosen, wanted, bool(kind.lazy), output)
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
