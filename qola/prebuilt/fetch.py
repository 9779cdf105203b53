"""Fetches the prebuilt bundle of a request: its key, the sources to ask, and the installation."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import minisign

from qola import cache as locking
from qola.aiter.attention import ATTENTION
from qola.build import workspace
from qola.build.bazel import child_environment
from qola.build.forms import Forms
from qola.build.install import BuildResult
from qola.build.setup import BuildRequest, Chosen, Progress, choose_all, set_up, workspace_locked
from qola.cache import cache_directory
from qola.errors import Finding, NoPrebuiltError, ToolchainError
from qola.manifest.load import load
from qola.prebuilt import identity, signature, store, te_layout
from qola.prebuilt.http import HttpClient, HttpSettings, proxies_of
from qola.prebuilt.install import Wanted, install_found
from qola.prebuilt.key import Key, joined, make_key
from qola.prebuilt.options import (
    TOKEN_VARIABLE,
    NamedSource,
    PrebuiltOptions,
    choose_sources,
)
from qola.prebuilt.sources import Source, parse_source
from qola.prebuilt.store import Found, Outcome
from qola.ruleset import ruleset_root
from qola.version import __version__

_REPO_ENV = "--repo_env="


def first_prebuilt(
    request: BuildRequest,
    forms: Forms,
    bazel_args: Sequence[str],
    options: PrebuiltOptions,
    environ: Mapping[str, str],
    output: Path,
    progress: Progress,
) -> tuple[Chosen | None, BuildResult | None]:
    """Install the prebuilt bundle of a build, where there is one.

    Args:
        request: what is to be built.
        forms: which kinds of libraries.
        bazel_args: arguments of Bazel.
        options: where to look.
        environ: the environment.
        output: the output directory.
        progress: called with a line when a long step begins.

    Returns:
        What the request means, None where nobody names a source; and what manifest.json holds,
        None where the bundle has to be built.

    Raises:
        PrebuiltError: there is one, whose digest or signature is wrong.
        QolaError: the manifest, the AITER tree or this machine is at fault.
    """
    file = Path(request.manifest_path)
    manifest = load(file, display=file.as_posix())
    if not choose_sources(options, manifest, environ, file.absolute().parent):
        return None, None
    chosen = choose_all(request, environ, progress)
    if python := python_modules(chosen):
        progress(f"no prebuilt bundle has {', '.join(python)}, which Python imports: building")
        return chosen, None
    try:
        key = key_of(chosen, request, forms, bazel_args, environ, progress)
    except NoPrebuiltError as error:
        progress(f"no prebuilt bundle is looked for: {error.findings[0].found}")
        return chosen, None
    try:
        return chosen, fetch(chosen, key, forms, options, environ, output, progress)
    except NoPrebuiltError as error:
        progress(f"no prebuilt {key.text}, building\n{error.findings[0].found}")
        return chosen, None


def python_modules(chosen: Chosen) -> list[str]:
    """Return the modules that no bundle can have."""
    return [module.name for module in chosen.modules if module.name not in ATTENTION]


def refuse_python_modules(chosen: Chosen) -> None:
    """Refuse modules that no bundle can have.

    Raises:
        NoPrebuiltError: there are some.
    """
    if python := python_modules(chosen):
        raise NoPrebuiltError(
            Finding(
                chosen.manifest.file,
                f"{', '.join(python)}, which Python imports",
                f"{' or '.join(ATTENTION)} alone: a bundle has no modules of Python's",
                "--group GROUP chooses modules",
            )
        )


def key_of(
    chosen: Chosen,
    request: BuildRequest,
    forms: Forms,
    bazel_args: Sequence[str],
    environ: Mapping[str, str],
    progress: Progress,
) -> Key:
    """Return the key of what a request means.

    Bazel is asked only where another ROCm than the pinned one is meant.

    Raises:
        QolaError: a file that decides it cannot be read, or Bazel does not know the ROCm.
    """
    root = ruleset_root()
    bazel_args = joined(bazel_args)
    return make_key(
        name=workspace.repository_name(chosen.file),
        version=__version__,
        ruleset=identity.ruleset_digest(root),
        manifest=chosen.manifest,
        modules=chosen.modules,
        archs=chosen.archs or chosen.manifest.architectures,
        mode=request.build_mode,
        aiter=identity.source_identity(chosen.aiter.source),
        patches=identity.patches_of(chosen.aiter),
        rocm=identity.rocm_identity(
            root,
            environ,
            bazel_args,
            lambda: _ask_bazel(chosen, request, bazel_args, environ, progress),
        ),
        forms=vars(forms),
        settings=bazel_args,
    )


def _ask_bazel(
    chosen: Chosen,
    request: BuildRequest,
    bazel_args: Sequence[str],
    environ: Mapping[str, str],
    progress: Progress,
) -> Path:
    """Returns rocm.json, which Bazel writes where it looks for the ROCm of this machine."""
    setup = set_up(request, environ, progress, chosen)
    label = f"@{workspace.ROCM}//:rocm.json"
    variables = [arg for arg in bazel_args if arg.startswith(_REPO_ENV)]
    command = [*setup.bazel, "query", "--output=location", *variables, label]
    with workspace_locked(setup.directory, progress):
        setup.write()
        progress("looking for the ROCm of this machine")
        run = subprocess.run(
            command,
            cwd=setup.directory,
            env=child_environment(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    file = Path(run.stdout.partition(":")[0])
    if run.returncode or not file.is_file():
        raise ToolchainError(
            Finding(
                identity.ROCM_VARIABLE,
                run.stderr.strip() or run.stdout.strip(),
                "a ROCm whose versions are known",
                f"--no-prebuilt builds without asking; {identity.ROCM_VARIABLE}=pinned takes the "
                "ROCm that qola pins",
            )
        )
    return file


def client_of(
    options: PrebuiltOptions, environ: Mapping[str, str], progress: Progress
) -> HttpClient:
    """Return what fetches over HTTP."""
    token = environ.get(TOKEN_VARIABLE, "")
    settings = HttpSettings(options.redirects, token, proxies_of(environ))
    return HttpClient(settings, progress)


def fetch(
    chosen: Chosen,
    key: Key,
    forms: Forms,
    options: PrebuiltOptions,
    environ: Mapping[str, str],
    output: Path,
    progress: Progress,
) -> BuildResult:
    """Fetch a bundle and install it.

    Args:
        chosen: what it is a bundle of.
        key: its key.
        forms: which kinds of libraries.
        options: where to look.
        environ: the environment.
        output: the output directory.
        progress: called with a line when a long step begins.

    Returns:
        What manifest.json in `output` holds.

    Raises:
        NoPrebuiltError: no source has it.
        PrebuiltError: a source has one that must not be used.
    """
    cache = cache_directory(environ) / "prebuilt" / key.digest
    named = choose_sources(options, chosen.manifest, environ, chosen.file.parent)
    client = client_of(options, environ, progress)
    sources = [parse_source(s.text, s.folder, client, s.place) for s in named]
    text = options.public_key or chosen.manifest.prebuilt.public_key
    public_key = signature.read_public_key(text, options.directory) if text else None
    wanted = _wanted(chosen, key, forms)
    with locking.locked(cache, "fetch of this bundle", progress):
        found = store.find(key, sources, cache, public_key, offline=options.offline, note=progress)
        outcomes: list[Outcome] = []
        if isinstance(found, Found):
            result = install_found(found, wanted, output)
            assert result is not None, "only an archive of TransformerEngine's is passed over"
            checked = (
                "" if public_key else "; only its digest was checked: no public key is configured"
            )
            progress(f"prebuilt {key.text} from {found.source}{checked}")
            return result
        outcomes += found
        for source in _te_sources(named, sources):
            more = _te(chosen, key, source, cache, public_key, forms, options, progress)
            if isinstance(more, Found):
                if result := install_found(more, wanted, output):
                    progress(f"prebuilt from {more.source}")
                    return result
                libraries = " and ".join(wanted.modules)
                more = [Outcome(more.source, f"passed over: it does not have {libraries} of "
                                             f"the namespace {wanted.namespace!r}")]  # fmt: skip
            outcomes += more
    raise store.no_such(key.text, outcomes)


def _wanted(chosen: Chosen, key: Key, forms: Forms) -> Wanted:
    root = chosen.aiter.root
    return Wanted(
        key=key.text,
        namespace=chosen.manifest.namespace,
        modules=tuple(module.name for module in chosen.modules),
        archs=key.archs,
        lazy=forms.lazy,
        manifest_src=str(chosen.file),
        aiter=chosen.aiter.describe(),
        aiter_root=str(root) if root else None,
    )


def _te_sources(named: Sequence[NamedSource], sources: Sequence[Source]) -> list[Source]:
    return [s for name, s in zip(named, sources, strict=True) if name.te_layout]


def _te(
    chosen: Chosen,
    key: Key,
    source: Source,
    cache: Path,
    public_key: minisign.PublicKey | None,
    forms: Forms,
    options: PrebuiltOptions,
    progress: Progress,
) -> Found | list[Outcome]:
    """Asks for TransformerEngine's own prebuilt, unless it cannot be what is wanted."""
    if public_key is not None or forms != Forms():
        reason = "it is not signed" if public_key else "it has no lazy libraries and no archives"
        words = f"TransformerEngine's layout is not asked for: {reason}"
        return [Outcome(str(source), words)]
    commit = te_layout.commit_of(chosen.aiter)
    return te_layout.find(source, key.rocm, commit, cache, offline=options.offline, note=progress)
