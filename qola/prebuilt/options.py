"""Where prebuilt bundles are looked for: the command line, the manifest, the environment."""

from __future__ import annotations

import re
import shlex
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qola.errors import Finding, QolaError
from qola.manifest.types import Manifest
from qola.prebuilt.http import HttpSource, Transport
from qola.prebuilt.sources import DirectorySource, NoSource, Source

URL_VARIABLE = "QOLA_PREBUILT_URL"
TE_VARIABLE = "NVTE_AITER_PREBUILT_BASE_URL"
TOKEN_VARIABLE = "QOLA_PREBUILT_TOKEN"
OPTION = "--prebuilt"

TOKEN_PLACES = frozenset({OPTION, "--to", URL_VARIABLE})
"""Where whoever has the token names sources; manifests and build files are often others'."""


@dataclass(frozen=True)
class PrebuiltOptions:
    """A user's wishes about prebuilt bundles.

    Attributes:
        urls: sources, instead of those of the manifest and the environment.
        public_key: who has to have signed them: a key of minisign or a file with one; "" for what
            the manifest says.
        directory: what directories and files of command line and environment are relative to.
    """

    urls: tuple[str, ...] = ()
    enabled: bool = True
    offline: bool = False
    public_key: str = ""
    directory: Path = Path()


@dataclass(frozen=True)
class NamedSource:
    """A source as somebody named it: a URL, or a directory, which is relative to `folder`.

    Attributes:
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

    Directories of the manifest are relative to `folder`.
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
    """Return the sources that QOLA_PREBUILT_URL names."""
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


def parse_source(text: str, folder: Path, transport: Transport, place: str) -> Source:
    """Return the source that a text means; outside of `TOKEN_PLACES` the token is not sent.

    Where it means none, asking it says why: other sources may have what is looked for.
    """
    try:
        if "://" not in text:
            return DirectorySource(folder / Path(text).expanduser())
        parts = urllib.parse.urlsplit(text)
        if parts.query or parts.fragment or "@" in parts.netloc:
            raise ValueError("it has more than a path")
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            return DirectorySource(Path(urllib.request.url2pathname(parts.path)))
        if parts.scheme in ("http", "https") and parts.hostname:
            why = f"only {OPTION}, --to and {URL_VARIABLE} name who gets {TOKEN_VARIABLE}"
            return HttpSource(text, transport, "" if place in TOKEN_PLACES else why)
        raise ValueError("it is of another kind")
    except (ValueError, RuntimeError) as error:
        # A password would show in messages: it may have any character.
        shown = re.split("[?#]", re.sub("//.*@", "//", text, flags=re.DOTALL))[0]
        expected = "an http, https or file URL without user, query and fragment, or a directory"
        words = "it cannot be read" if "@" in text or text in str(error) else str(error)
        return NoSource(shown, f"{place} has to name {expected}; {words}")
