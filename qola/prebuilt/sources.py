"""Sources of prebuilt bundles: local directories, and HTTP servers by urllib3.

urllib3 has timeouts for silence, which restart with each byte, so a server could extend a request
without end. So a thread makes the request, and whoever waits for it gives up at the deadline.
"""

from __future__ import annotations

import io
import ipaddress
import os
import re
import shutil
import stat
import threading
import time
import urllib.parse
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import urllib3
from urllib3.exceptions import HTTPError, MaxRetryError
from urllib3.util import parse_url

from qola.common.version import __version__
from qola_base.errors import Finding, PrebuiltError
from qola_base.files import whole, writing
from qola_base.progress import Pace, log

_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which a request is repeated."""

_RETRY = urllib3.Retry(4, backoff_factor=1, backoff_max=60, retry_after_max=60)
_TIMEOUT = urllib3.Timeout(connect=10, read=60)
_PART = 1 << 18
_PATIENCE = 90.0
"""Seconds for a request without its content; more than the timeout of a silent server."""

_INTERVAL = 5.0
"""Seconds between two progress reports about a file."""

_REDIRECTS = 5

SLOWEST = 1000
"""Bytes of content per second that extend a deadline; slower transfers are aborted."""

_TOKEN_HINT = {
    True: "QOLA_PREBUILT_TOKEN=<a valid token, with the right to read, or to publish>",
    False: "QOLA_PREBUILT_TOKEN=<token> is sent as a bearer token",
}
_WITHHELD_HINT = (
    "QOLA_PREBUILT_TOKEN is only sent over https, to sources of --prebuilt, QOLA_PREBUILT_URL and "
    "--to: name this source there"
)
_LIST_HINT = (
    "S3 answers 403 for a missing file, too, unless the reader has s3:ListBucket of the bucket: "
    "grant it"
)
_PROXY_HINT = "https_proxy=http://USER:PASSWORD@HOST:PORT"
"""Corrections for answers of missing rights."""


class UnreachableError(Exception):
    """A source does not answer with a file; the text has the reason, `hint` a correction or ""."""

    def __init__(self, text: str, hint: str = "") -> None:
        self.hint = hint
        super().__init__(text)


class NoDirectoryError(UnreachableError):
    """A directory does not exist (yet)."""


class Source(ABC):
    """A place with files of prebuilt bundles.

    Every function raises UnreachableError if the source does not answer, and PrebuiltError if the
    answer must not be used.
    """

    is_local = True

    @abstractmethod
    def place(self, name: str) -> str:
        """Return the name of a file for messages."""

    @abstractmethod
    def copy(self, name: str, file: BinaryIO, limit: int) -> bool:
        """Write at most `limit` bytes of a file to an empty one; return whether it exists."""

    @abstractmethod
    def write(self, name: str, source: Path | bytes) -> None:
        """Write a file atomically."""

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a small file, None if it is missing."""
        file = io.BytesIO()
        return file.getvalue() if self.copy(name, file, limit) else None

    def download(self, name: str, path: Path, limit: int) -> bool:
        """Download a file to a path; return whether it exists."""
        with writing(path), path.open("wb") as file:
            return self.copy(name, file, limit)


def opened(source: Path | bytes) -> BinaryIO:
    """Open a file or its bytes for reading."""
    return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def too_large(place: str, limit: int) -> PrebuiltError:
    """Return the error for a file that exceeds its size limit."""
    fix = "do not use it: it is not the file that its record describes"
    return PrebuiltError(Finding(place, f"more than {limit} bytes", f"at most {limit} bytes", fix))


@contextmanager
def _asking(name: str) -> Iterator[None]:
    """Convert an OSError about a source's file to UnreachableError."""
    try:
        yield
    except FileNotFoundError:
        raise NoDirectoryError("no such directory") from None
    except OSError as error:
        raise UnreachableError(f"{name}: {error.strerror}") from None
    except ValueError as error:
        raise UnreachableError(f"{name}: {error}") from None


class DirectorySource(Source):
    """A directory on this machine, in which other users may write."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __str__(self) -> str:
        return str(self._directory)

    def place(self, name: str) -> str:
        """Return the file's path."""
        return str(self._directory / name)

    def copy(self, name: str, file: BinaryIO, limit: int) -> bool:
        """Copy a regular file."""
        path = self._directory / name
        with _asking(name):
            if not stat.S_ISDIR(self._directory.stat().st_mode):
                raise UnreachableError("no directory")
            try:
                # A FIFO or a device would not end, or act.
                if not stat.S_ISREG(path.stat().st_mode):
                    return False
            except FileNotFoundError:
                return False
            content = path.open("rb")
        left = limit
        with content:
            while True:
                with _asking(name):
                    part = content.read(1 << 20)
                if not part:
                    return True
                left -= len(part)
                if left < 0:
                    raise too_large(str(path), limit)
                file.write(part)

    def write(self, name: str, source: Path | bytes) -> None:
        """Write a file that all users can read."""
        with whole(self._directory / name) as file, opened(source) as content:
            shutil.copyfileobj(content, file, 1 << 20)
            os.fchmod(file.fileno(), 0o644)


def proxies_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the proxy of each scheme, and under `no` the hosts that need none."""
    # Lower case wins. HTTP_PROXY may be a header of a request to a CGI program, so curl ignores it.
    found = {k.lower(): environ[k] for k in sorted(environ) if environ[k] and k != "HTTP_PROXY"}
    every = found.get("all_proxy", "")
    proxies = {scheme: found.get(f"{scheme}_proxy", every) for scheme in ("http", "https")}
    return {**proxies, "no": found.get("no_proxy", "")}


def is_this_machine(host: str) -> bool:
    """Return whether a name or an address is a loopback one."""
    with suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return host == "localhost"


@dataclass(frozen=True)
class Transport:
    """The settings of HTTP requests.

    Attributes:
        token: bearer token, only sent over https or to this machine; "" for none.
        timeout: seconds without a byte after which the request is repeated.
        patience: seconds for a request with its redirects, in addition to the time of its content.
    """

    token: str = field(default="", repr=False)
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)
    retry: urllib3.Retry = _RETRY
    timeout: urllib3.Timeout = _TIMEOUT
    patience: float = _PATIENCE


class HttpSource(Source):
    """A directory of an HTTP server; `withheld` is the reason not to send it the token."""

    is_local = False

    def __init__(self, base: str, transport: Transport, withheld: str = "") -> None:
        self._base, self._transport, self._withheld = base.rstrip("/"), transport, withheld
        self._url = parse_url(base)

    def __str__(self) -> str:
        return self._base

    def place(self, name: str) -> str:
        """Return the file's URL."""
        return f"{self._base}/{urllib.parse.quote(name)}"

    def copy(self, name: str, file: BinaryIO, limit: int) -> bool:
        """Fetch a file."""
        response = self._ask("GET", name, file, limit)
        if response.status not in (200, 404, 410):
            raise self._refused(response, "")
        return response.status == 200

    def write(self, name: str, source: Path | bytes) -> None:
        """Upload a file."""
        with opened(source) as file:
            response = self._ask("PUT", name, file)
        if response.status >= 300:
            raise self._refused(response, "PUT answers ")

    def _refused(self, response: urllib3.BaseHTTPResponse, prefix: str) -> UnreachableError:
        """Return the error for a status; for missing rights with the token's part in it."""
        words = f"{prefix}{_words(response)}"
        if response.status == 407:
            return UnreachableError(f"{words}: the proxy wants a password", _PROXY_HINT)
        if response.status not in (401, 403):
            return UnreachableError(words)
        sent = "Authorization" in self._headers
        hint = _TOKEN_HINT[sent] if not self._transport.token or sent else _WITHHELD_HINT
        if response.status == 403 and not prefix:
            hint += f"; {_LIST_HINT}"
        token = "does not accept the token" if sent else "wants a token, and none was sent"
        if response.status == 403:
            token = "refuses access with this token" if sent else "refuses access without a token"
        return UnreachableError(f"{words}: the server {token}", hint)

    def _ask(
        self, method: str, name: str, file: BinaryIO, limit: int = 0
    ) -> urllib3.BaseHTTPResponse:
        url, retry = self.place(name), self._transport.retry
        while True:
            response = None
            try:
                response = self._attempt(method, url, file, limit)
                if response.status not in _AGAIN:
                    return response
                reason = _words(response)
            except _BadAnswerError as error:
                reason = str(error)
            try:
                # Without the error: Retry would raise errors that it attributes to the caller.
                retry = retry.increment(method, url, response=response)
            except MaxRetryError:
                raise UnreachableError(f"{reason} ({len(retry.history) + 1} attempts)") from None
            log.info(f"{url}: {reason}; trying again")
            try:
                retry.sleep(response)
            except (HTTPError, ValueError, ArithmeticError):
                # Ignore an invalid Retry-After.
                retry.sleep()

    def _attempt(
        self, method: str, url: str, file: BinaryIO, limit: int
    ) -> urllib3.BaseHTTPResponse:
        """Make a request in a thread; give up at the deadline, which content extends."""
        size = file.seek(0, io.SEEK_END) if method == "PUT" else 0
        file.seek(0)
        if method == "GET":
            file.truncate()
        answer: Future[urllib3.BaseHTTPResponse] = Future()

        def run() -> None:
            try:
                with self._request(method, url, file, size) as response:
                    if method == "GET":
                        self._receive(response, url, file, limit)
                answer.set_result(response)
            except BaseException as error:
                answer.set_exception(error)

        left = patience = self._transport.patience
        started, pace = time.monotonic(), Pace()
        threading.Thread(target=run, daemon=True).start()
        while not wait([answer], min(left, _INTERVAL)).done:
            passed, moved = time.monotonic() - started, file.tell()
            left = patience + (size or moved) / SLOWEST - passed
            if left < 0:
                raise UnreachableError(f"{moved} bytes in {passed:.0f} s: it is too slow")
            pace.report(f"{url}: {moved / 1e6:.1f} MB")
        return answer.result()

    def _request(
        self, method: str, url: str, file: BinaryIO, size: int
    ) -> urllib3.BaseHTTPResponse:
        body: dict[str, Any] = {"headers": self._headers}
        if method == "PUT":
            # An upload only goes to the named host.
            body = {"body": file, "headers": {**self._headers, "Content-Length": str(size)}}
        place = url
        for _ in range(_REDIRECTS + 1):
            # One request per hop, because urllib3 would read a redirect's unbounded body.
            with _answer():
                response = self._pool.request(
                    method, place, redirect=False, retries=False, preload_content=False, **body
                )
            location = response.get_redirect_location() if method == "GET" else None
            if not location:
                return response
            response.close()
            place, before = self._redirected(url, place, location), place
            if _origin(place) != _origin(before):
                body = {"headers": {k: v for k, v in self._headers.items() if k != "Authorization"}}
        raise UnreachableError(f"{_words(response)}: more than {_REDIRECTS} redirects")

    def _redirected(self, url: str, place: str, location: str) -> str:
        try:
            target = urllib.parse.urljoin(place, location)
            scheme = parse_url(target).scheme
            known = scheme in ("http", "https") and parse_url(target).host
        except ValueError:
            known = None
        if not known:
            raise UnreachableError(f"a redirect to an invalid URL: {_shown(location)}")
        if self._url.scheme == "https" and scheme != "https":
            raise PrebuiltError(Finding(url, f"a redirect to {target}", "one to https, or none"))
        return target

    def _receive(
        self, response: urllib3.BaseHTTPResponse, url: str, file: BinaryIO, limit: int
    ) -> None:
        """Write the content of a file; nothing for another status."""
        length = response.headers.get("Content-Length", "0")
        if not re.fullmatch("[0-9]{1,18}", length):
            raise _BadAnswerError(f"Content-Length {_shown(length)}")
        while response.status == 200:
            with _answer():
                # read() would read without end at a chunk of negative size.
                chunk = response.read1(_PART, decode_content=False)
            if not chunk:
                return
            if file.tell() + len(chunk) > limit:
                raise too_large(url, limit)
            file.write(chunk)

    @cached_property
    def _pool(self) -> urllib3.PoolManager:
        host, proxies = self._url.host or "", self._transport.proxies
        proxy = proxies.get(self._url.scheme or "")
        how: dict[str, Any] = {"timeout": self._transport.timeout}
        if not proxy or is_this_machine(host) or urllib.request.proxy_bypass(host, proxies):
            return urllib3.PoolManager(**how)
        try:
            url = parse_url(proxy if "://" in proxy else f"http://{proxy}")
            # make_headers encodes latin-1, which keeps each byte.
            auth = urllib.parse.unquote(url.auth or "", encoding="latin-1")
            how["proxy_headers"] = urllib3.make_headers(proxy_basic_auth=auth or None)
            place = url._replace(auth=None).url
            return urllib3.ProxyManager(place, **how)
        except ValueError:
            # Without the URL, which may contain a password.
            words = "the proxy of the environment is invalid; expected"
            raise UnreachableError(f"{words} [http://][USER:PASSWORD@]HOST[:PORT]") from None

    @cached_property
    def _headers(self) -> dict[str, str]:
        # Without compression, so that lengths are those of the file.
        headers = {"Accept-Encoding": "identity", "User-Agent": f"qola/{__version__}"}
        token, why = self._transport.token, self._withheld
        if self._url.scheme != "https" and not is_this_machine(self._url.host or ""):
            why = why or "http is not encrypted"
        if token and why:
            log.warning(f"{self}: the token is not sent there: {why}")
        elif token:
            headers["Authorization"] = f"Bearer {token}"
        return headers


class _BadAnswerError(Exception):
    """A server's response is invalid or incomplete; the request is repeated."""


@contextmanager
def _answer() -> Iterator[None]:
    """Convert every exception that urllib3 and Python raise for an invalid response."""
    try:
        yield
    except (UnreachableError, MemoryError):
        raise
    except Exception as error:
        cause = error.reason if isinstance(error, MaxRetryError) else error
        # Further arguments of a broken connection repeat the first in Python's notation.
        text = str(cause.args[0] if cause and cause.args else cause)
        text = text if isinstance(error, HTTPError) else repr(error)
        raise _BadAnswerError(_shown(text)) from None


def _origin(url: str) -> tuple[str | None, str | None, int | None]:
    """Return scheme, host and port of a URL, the scope of a token."""
    parts = parse_url(url)
    ports = {"http": 80, "https": 443}
    return parts.scheme, parts.host, parts.port or ports.get(parts.scheme or "")


def _words(response: urllib3.BaseHTTPResponse) -> str:
    return _shown(f"{response.status} {response.reason}")


def _shown(text: str) -> str:
    """Shorten a server's text and escape control characters."""
    return repr(text)[1:-1][:200]
