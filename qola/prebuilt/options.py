"""Where prebuilt bundles are looked for: the command line, the manifest, the environment. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qola.errors import Finding, QolaError
from qola.manifest.types import Manifest

URL_VARIABLE = "QOLA_PREBUILT_URL"
TE_VARIABLE = "NVTE_AITER_PREBUILT_BASE_URL"
TOKEN_VARIABLE = "QOLA_PREBUILT_TOKEN"
OPTION = "--prebuilt"

TOKEN_PLACES = frozenset({OPTION, "--to", URL_VARIABLE})
"""Where whoever has the token names sources; manifests and build files are often others'."""


@dataclass(frozen=True)
class PrebuiltOptions:
    """What a user says about prebuilt bundles.

    Attributes:
        urls: sources, instead of those of the manifest and the environment.
        enabled: whether prebuilt bundles are looked for at all.
        offline: ask no server.
        public_key: who has to have signed them: a key of minisign or a file with one; "" for what
            the manifest says.
        redirects: hosts that redirects may lead to.
        directory: what directories and files of command line and environment are relative to.
    """

    urls: tuple[str, ...] = ()
    enabled: bool = True
    offline: bool = False
    public_key: str = ""
    redirects: tuple[str, ...] = ()
    directory: Path = Path()


@dataclass(frozen=True)
class NamedSource:
    """A source as somebody named it.

    Attributes:
        text: a URL or a directory.
        folder: what a directory is relative to.
        place: where the text stands, for messages; sources of `TOKEN_PLACES` get the token.
        te_layout: TransformerEngine's own layout may be there too.
    """

    text: str
    folder: Path
    place: str
    te_layout: bool = False


def choose_sources(
    options: PrebuiltOptions,
    manifest: Manifest,
    environ: Mapping[str, str],
    folder: Path,
) -> tuple[NamedSource, ...]:
    """Return the sources to ask, in order: those of the first that names any.

    Args:
        options: what the command line says.
        manifest: the manifest.
        environ: the environment: QOLA_PREBUILT_URL, NVTE_AITER_PREBUILT_BASE_URL.
        folder: what directories of the manifest are relative to.

    Raises:
        QolaError: QOLA_PREBUILT_URL has a quote without another.
    """
    if not options.enabled:
        return ()
    directory = options.directory
    if options.urls:
        return tuple(NamedSource(text, directory, OPTION) for text in options.urls)
    if manifest.prebuilt.urls:
        place = manifest.place("prebuilt", "urls")
        return tuple(NamedSource(text, folder, place) for text in manifest.prebuilt.urls)
    if named := _words(environ.get(URL_VARIABLE, "")):
        return tuple(NamedSource(text, directory, URL_VARIABLE) for text in named)
    if base := environ.get(TE_VARIABLE, "").strip():
        return (NamedSource(base, directory, TE_VARIABLE, te_layout=True),)
    return ()


def _words(value: str) -> list[str]:
    """Returns the sources that QOLA_PREBUILT_URL names."""
    try:
        return shlex.split(value)
    except ValueError as error:
        raise QolaError(
            Finding(
                URL_VARIABLE,
                f"{value}: {error}",
                "URLs or directories with blanks between, quoted as in a shell",
                f"{URL_VARIABLE}={shlex.quote(shlex.quote(value))}, if that is one directory",
            )
        ) from None
