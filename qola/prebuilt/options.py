"""Sources of prebuilt bundles, from the command line, the manifest or the environment."""

from __future__ import annotations

import re
import shlex
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qola.manifest.types import Manifest
from qola.prebuilt.sources import DirectorySource, HttpSource, Source, Transport, proxies_of
from qola_base.errors import Finding, QolaError

URL_VARIABLE = "QOLA_PREBUILT_URL"
TE_VARIABLE = "NVTE_AITER_PREBUILT_BASE_URL"
TOKEN_VARIABLE = "QOLA_PREBUILT_TOKEN"
OPTION = "--prebuilt"

#: Sources that get the token. Manifests and build files are often written by others.
_TOKEN_PLACES = frozenset({OPTION, "--to", URL_VARIABLE})


@dataclass(frozen=True)
class PrebuiltOptions:
    """Options about prebuilt bundles.

    Attributes:
        urls: sources, instead of those of the manifest and the environment.
        public_key: a required signer: a key of minisign or a file with one; "" for the manifest's.
        directory: base of relative paths in command line and environment.
    """

    urls: tuple[str, ...] = ()
    enabled: bool = True
    offline: bool = False
    public_key: str = ""
    directory: Path = Path()


@dataclass(frozen=True)
class NamedSource:
    """A URL, or a directory relative to `folder`.

    Attributes:
        place: location of the text, for messages and for `_TOKEN_PLACES`.
        te_layout: TransformerEngine's own layout may be there, too.
    """

    text: str
    folder: Path
    place: str
    te_layout: bool = False


def choose_sources(
    options: PrebuiltOptions, manifest: Manifest, environ: Mapping[str, str], folder: Path
) -> tuple[NamedSource, ...]:
    """Return the sources of the first place that names any, in order.

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
    value = environ.get(URL_VARIABLE, "")
    try:
        named = shlex.split(value)
    except ValueError as error:
        raise QolaError(
            Finding(
                URL_VARIABLE,
                f"{value}: {error}",
                "URLs or directories with blanks between, quoted as in a shell",
                f"{URL_VARIABLE}={shlex.quote(shlex.quote(value))}, if that is one directory",
            )
        ) from None
    if named:
        return tuple(NamedSource(text, directory, URL_VARIABLE) for text in named)
    if base := environ.get(TE_VARIABLE, "").strip():
        return (NamedSource(base, directory, TE_VARIABLE, te_layout=True),)
    return ()


def parse_source(named: NamedSource, environ: Mapping[str, str]) -> Source:
    """Return a source; raise QolaError if its text is neither a supported URL nor a directory.

    `environ` has the token and the proxies of HTTP requests.
    """
    text, place = named.text, named.place
    try:
        if "://" not in text:
            return DirectorySource(named.folder / Path(text).expanduser())
        parts = urllib.parse.urlsplit(text)
        if parts.query or parts.fragment or "@" in parts.netloc:
            raise ValueError("it has more than a path")
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            return DirectorySource(Path(urllib.request.url2pathname(parts.path)))
        if parts.scheme in ("http", "https") and parts.hostname:
            why = f"only {OPTION}, --to and {URL_VARIABLE} name who gets {TOKEN_VARIABLE}"
            transport = Transport(environ.get(TOKEN_VARIABLE, ""), proxies_of(environ))
            return HttpSource(text, transport, "" if place in _TOKEN_PLACES else why)
        raise ValueError("it is of another kind")
    except (ValueError, RuntimeError) as error:
        # Without the password, which may have any character.
        shown = re.split("[?#]", re.sub("//.*@", "//", text, flags=re.DOTALL))[0]
        why = "it cannot be read" if "@" in text or text in str(error) else str(error)
        expected = "an http, https or file URL without user, query and fragment, or a directory"
        raise QolaError(Finding(place, f"{shown}: {why}", expected)) from None
