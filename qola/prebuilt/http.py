"""Files over HTTP: retried with back-off, resumed where they were cut off, redirected with care."""

from __future__ import annotations

import ipaddress
import re
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, TypeVar

import urllib3
from urllib3.exceptions import HTTPError, LocationParseError, MaxRetryError, ProtocolError
from urllib3.util import Url, parse_url

from qola.errors import Finding, PrebuiltError
from qola.version import __version__

_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers that another attempt may change."""

_NOT_THERE = frozenset({404, 410})
_MAX_REDIRECTS = 5
_CHUNK = 1 << 18

_AMBIGUOUS = re.compile(r"[\\\s\x00-\x20\x7f-\x9f]")
"""What a URL has none of, and what parsers make different hosts of."""

T = TypeVar("T")


class UnreachableError(Exception):
    """A source does not answer, or not with a file; its text says why."""


class _AnotherTryError(Exception):
    """An answer that another attempt may change."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        super().__init__(f"{response.status} {response.reason or ''}".strip())
        self.response = response


@dataclass(frozen=True)
class HttpSettings:
    """How files are fetched.

    Attributes:
        redirects: hosts that a redirect may lead to, besides the one that was asked; as
            ``http://HOST`` also from https to http.
        token: what is sent as a bearer token to the host that was asked, over https or within
            this machine; "" for nothing.
        proxies: URL of the proxy by scheme, and under `no` the hosts that are asked without one.
        retries: attempts after the first.
        backoff: half the seconds before the second retry; twice as long before each further one.
        longest_wait: most seconds before a retry, whatever the server's Retry-After says.
        connect_timeout, read_timeout: seconds until a connection, and without a byte of an answer.
        progress_interval: seconds between lines about one file.
        withheld: why no host is told the token, "" where one may be.
    """

    redirects: tuple[str, ...] = ()
    token: str = field(default="", repr=False)
    proxies: Mapping[str, str] = field(default_factory=dict)
    retries: int = 4
    backoff: float = 1.0
    longest_wait: int = 60
    connect_timeout: float = 10.0
    read_timeout: float = 60.0
    progress_interval: float = 5.0
    withheld: str = ""


def proxies_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the proxies that an environment names, as `HttpSettings` has them."""
    every = ("all_proxy", "ALL_PROXY")
    # HTTP_PROXY in capitals may be a header of a request to a CGI program: curl passes it by too.
    names = {"http": ("http_proxy", *every), "https": ("https_proxy", "HTTPS_PROXY", *every)}
    names["no"] = ("no_proxy", "NO_PROXY")
    found = {
        key: next((environ[n] for n in own if environ.get(n)), "") for key, own in names.items()
    }
    return {
        key: value if key == "no" or "://" in value else f"http://{value}"
        for key, value in found.items()
        if value
    }


def is_this_machine(host: str) -> bool:
    """Return whether a name or an address is this machine's own, which no network sees."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def is_direct(host: str, no_proxy: str) -> bool:
    """Return whether a host is asked without a proxy.

    Args:
        host: name or address.
        no_proxy: names of hosts and domains with commas between, or ``*``, as curl reads them.
    """
    if is_this_machine(host):
        return True
    names = [name.strip().lstrip(".").lower() for name in no_proxy.split(",") if name.strip()]
    names.append("localhost")
    return "*" in names or any(host == name or host.endswith(f".{name}") for name in names)


def redirect_target(asked: Url, place: Url, location: str, redirects: Iterable[str]) -> Url:
    """Return where a redirect leads to: what is checked here is what is connected to.

    Args:
        asked: what was asked for.
        place: what answers with the redirect.
        location: what it says.
        redirects: hosts that it may lead to, as `HttpSettings` has them.

    Raises:
        PrebuiltError: it leaves the host that was asked, or encryption, and may not.
    """
    target = _target(place, location)
    weaker = place.scheme == "https" and (target is None or target.scheme != "https")
    host = _host(target) if target else ""
    allowed = {name.lower().replace("[", "").replace("]", "") for name in redirects}
    names = {f"http://{host}"} if weaker else {host, f"http://{host}"}
    if target and (names & allowed or (host == _host(asked) and not weaker)):
        return target
    option = f"--allow-redirect {'http://' * weaker}{host}"
    raise PrebuiltError(
        Finding(
            asked.url,
            f"a redirect to {target or ascii(location)[1:-1]}",
            f"the file, or a redirect that stays on {_host(asked)}" + (" over https" * weaker),
            f"{option}, if that host is meant" if target else "",
        ),
        "the redirect is not followed",
    )


class HttpClient:
    """Fetches and puts files.

    Args:
        settings: how.
        note: called with a line about what takes long or is tried again.
    """

    def __init__(self, settings: HttpSettings, note: Callable[[str], None]) -> None:
        self._settings = settings
        self._note = note
        self._pools: dict[str, urllib3.PoolManager] = {}
        self._untold: set[str] = set()

    def without_token(self, why: str) -> HttpClient:
        """Return a client that tells no host the token, and says once why."""
        return HttpClient(replace(self._settings, withheld=why), self._note)

    def read(self, url: str, limit: int) -> bytes | None:
        """Return a small file, None where there is none.

        Raises:
            UnreachableError: the server does not answer.
            PrebuiltError: the file has more than `limit` bytes, or is on another host.
        """

        def once() -> bytes | None:
            with self._get(url, {}) as response:
                if response is None:
                    return None
                data = response.read(limit + 1, decode_content=False)
                # Reads what is left of a whole file, and finds out whether it is one.
                while len(data) <= limit and (more := response.read(limit, decode_content=False)):
                    data += more
                if len(data) > limit:
                    raise _too_large(url, limit)
                return data

        return self._attempts(url, once)

    def download(self, url: str, path: Path, limit: int) -> bool:
        """Fetch a file; what an earlier call left of it in PATH.part is gone on with.

        Args:
            url: the file.
            path: where to put it, once it is whole.
            limit: most bytes that it may have.

        Returns:
            Whether there is such a file.

        Raises:
            UnreachableError: the server does not answer, or cuts the file off again and again.
            PrebuiltError: the file has more than `limit` bytes, or is on another host.
        """
        part = _Part(path)
        if not self._attempts(url, lambda: self._continue(url, part, limit)):
            return False
        part.finish()
        return True

    def put(self, url: str, source: Path | bytes) -> None:
        """Upload a file.

        Raises:
            UnreachableError: the server does not take it.
        """

        def once() -> None:
            with (
                _body(source) as (body, size),
                self._opened("PUT", url, {"Content-Length": str(size)}, body) as response,
            ):
                if response.status in _AGAIN:
                    raise _AnotherTryError(response)
                if response.status >= 300:
                    words = f"PUT answers {response.status} {response.reason or ''}"
                    raise UnreachableError(words.strip())

        self._attempts(url, once)

    def _continue(self, url: str, part: _Part, limit: int) -> bool:
        """Fetches the rest of a file; returns whether it is there."""
        offset, headers = part.offset, part.headers()
        with self._get(url, headers) as response:
            if response is None:
                return False
            if response.status == 416:
                part.discard()
                raise ProtocolError("the server does not have the rest of the file")
            resumed = response.status == 206
            if resumed and not response.headers.get("Content-Range", "").startswith(
                f"bytes {offset}-"
            ):
                part.discard()
                raise ProtocolError("the server sent another part of the file")
            if not resumed:
                offset = 0
            rest = response.headers.get("Content-Length", "")
            total = offset + int(rest) if rest.isdigit() else None
            if total is not None and total > limit:
                raise _too_large(url, limit, total)
            if resumed:
                self._note(f"{url}: goes on at {offset} bytes")
            part.describe(response.headers)
            try:
                with part.open(append=resumed) as file:
                    self._copy(url, response, file, offset, total, limit)
            except PrebuiltError:
                # Nothing to go on from.
                part.discard()
                raise
        return True

    def _copy(
        self,
        url: str,
        response: urllib3.BaseHTTPResponse,
        file: BinaryIO,
        done: int,
        total: int | None,
        limit: int,
    ) -> None:
        told = time.monotonic()
        for chunk in response.stream(_CHUNK, decode_content=False):
            file.write(chunk)
            done += len(chunk)
            if done > limit:
                raise _too_large(url, limit)
            if time.monotonic() - told >= self._settings.progress_interval:
                told = time.monotonic()
                of = f" of {total / 1e6:.1f}" if total else ""
                self._note(f"{url}: {done / 1e6:.1f}{of} MB")

    def _attempts(self, url: str, once: Callable[[], T]) -> T:
        """Does something until it succeeds, or as often as the settings say."""
        settings = self._settings
        retry = urllib3.Retry(
            total=settings.retries,
            backoff_factor=settings.backoff,
            backoff_max=settings.longest_wait,
            retry_after_max=settings.longest_wait,
        )
        while True:
            response: urllib3.BaseHTTPResponse | None = None
            try:
                return once()
            except _AnotherTryError as again:
                reason, response = str(again), again.response
            except HTTPError as error:
                # Of a broken connection, the rest repeats it as Python writes it.
                reason = str(error.args[0] if error.args else error)
            try:
                # Told no error: it would sort out those it takes for the caller's own.
                retry = retry.increment("GET", url, response=response)
            except MaxRetryError:
                raise UnreachableError(f"{reason} ({settings.retries + 1} attempts)") from None
            self._note(f"{url}: {reason}; trying again")
            retry.sleep(response)

    @contextmanager
    def _get(
        self, url: str, headers: Mapping[str, str]
    ) -> Iterator[urllib3.BaseHTTPResponse | None]:
        with self._opened("GET", url, headers) as response:
            if response.status in _NOT_THERE:
                yield None
                return
            if response.status in _AGAIN:
                raise _AnotherTryError(response)
            if response.status not in (200, 206, 416):
                raise UnreachableError(f"{response.status} {response.reason or ''}".strip())
            yield response

    @contextmanager
    def _opened(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: BinaryIO | bytes | None = None,
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        settings = self._settings
        timeout = urllib3.Timeout(connect=settings.connect_timeout, read=settings.read_timeout)
        asked = place = parse_url(url)
        for _ in range(_MAX_REDIRECTS + 1):
            response = self._pool(place).request(
                method,
                place.url,
                body=body,
                headers={**self._headers(asked, place), **headers},
                timeout=timeout,
                preload_content=False,
                redirect=False,
                retries=False,
            )
            try:
                location = response.get_redirect_location()
                if not location:
                    yield response
                    return
            finally:
                # A connection with half an answer in it is of no further use.
                response.close()
            if method != "GET":
                raise UnreachableError(f"{method} answers {response.status}, to {location}")
            place = redirect_target(asked, place, location, settings.redirects)
        raise UnreachableError(f"more than {_MAX_REDIRECTS} redirects")

    def _headers(self, asked: Url, place: Url) -> dict[str, str]:
        # Compressed on the way, lengths and ranges would be those of something else.
        found = {"Accept-Encoding": "identity", "User-Agent": f"qola/{__version__}"}
        if self._settings.token and _origin(place) == _origin(asked) and self._may_know(place):
            found["Authorization"] = f"Bearer {self._settings.token}"
        return found

    def _may_know(self, place: Url) -> bool:
        """Returns whether a host may be told the token; says so once where it may not."""
        why = self._settings.withheld
        if not why and place.scheme != "https" and not is_this_machine(_host(place)):
            why = "http is not encrypted"
        origin = f"{place.scheme}://{place.netloc}"
        if why and origin not in self._untold:
            self._untold.add(origin)
            self._note(f"{origin}: the token is not sent there: {why}")
        return not why

    def _pool(self, url: Url) -> urllib3.PoolManager:
        """Returns what connects to a host: directly, or by way of a proxy."""
        proxies = dict(self._settings.proxies)
        proxy = proxies.get(url.scheme or "", "")
        if is_direct(_host(url), proxies.get("no", "")):
            proxy = ""
        if proxy not in self._pools:
            self._pools[proxy] = _by_proxy(proxy) if proxy else urllib3.PoolManager()
        return self._pools[proxy]


class _Part:
    """A file that is not whole yet, and what tells whether the server still has the same one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f"{path.name}.part")
        self._validator = path.with_name(f"{path.name}.part.validator")

    @property
    def offset(self) -> int:
        """How many bytes of it can be gone on from."""
        if not self._part.is_file() or not self._validator.is_file():
            return 0
        return self._part.stat().st_size

    def headers(self) -> dict[str, str]:
        """Return the headers that ask for the rest, if the file is still the same."""
        if not self.offset:
            return {}
        validator = self._validator.read_text(encoding="latin-1")
        return {"Range": f"bytes={self.offset}-", "If-Range": validator}

    def describe(self, headers: Mapping[str, str]) -> None:
        """Keep what an answer says the file is to be known by."""
        tag = headers.get("ETag", "")
        strong = tag if tag.startswith('"') else ""
        if validator := strong or headers.get("Last-Modified", ""):
            self._validator.write_text(validator, encoding="latin-1")
        else:
            # It might be continued with another file's bytes.
            self._validator.unlink(missing_ok=True)

    @contextmanager
    def open(self, *, append: bool) -> Iterator[BinaryIO]:
        """Yield the file to write to."""
        with self._part.open("ab" if append else "wb") as file:
            yield file

    def discard(self) -> None:
        """Forget what is there."""
        self._part.unlink(missing_ok=True)
        self._validator.unlink(missing_ok=True)

    def finish(self) -> None:
        """Put the whole file into its place."""
        self._part.replace(self._path)
        self._validator.unlink(missing_ok=True)


@contextmanager
def _body(source: Path | bytes) -> Iterator[tuple[BinaryIO | bytes, int]]:
    if isinstance(source, bytes):
        yield source, len(source)
        return
    with source.open("rb") as file:
        yield file, source.stat().st_size


def _by_proxy(proxy: str) -> urllib3.ProxyManager:
    """Returns what connects by way of a proxy, as the user and password in its URL.

    Raises:
        UnreachableError: it is no URL of such a proxy.
    """
    try:
        url = parse_url(proxy)
    except LocationParseError:
        url = Url()
    if url.scheme not in ("http", "https") or not url.host:
        # Not the URL itself, which may have a password.
        scheme = proxy.partition("://")[0]
        found = f"the proxy of the environment is a {scheme} URL that is of no use"
        raise UnreachableError(f"{found}; expected [http://][USER:PASSWORD@]HOST[:PORT]")
    headers = {}
    if url.auth:
        # Each byte as it is, whatever the encoding: make_headers writes latin-1.
        auth = urllib.parse.unquote(url.auth, encoding="latin-1")
        headers = urllib3.make_headers(proxy_basic_auth=auth)
    return urllib3.ProxyManager(url._replace(auth=None).url, proxy_headers=headers)


def _origin(url: Url) -> tuple[str | None, str, int | None]:
    return url.scheme, _host(url), url.port or {"http": 80, "https": 443}.get(url.scheme or "")


def _host(url: Url) -> str:
    """Returns the host that urllib3 connects to, an address of IPv6 without brackets."""
    return (url.host or "").strip("[]")


def _target(place: Url, location: str) -> Url | None:
    """Returns where a redirect leads to; None where parsers might not agree on that."""
    if _AMBIGUOUS.search(location):
        return None
    try:
        target = parse_url(urllib.parse.urljoin(place.url, location))
    except (ValueError, LocationParseError):
        return None
    known = target.scheme in ("http", "https") and target.host and target.auth is None
    return target if known else None


def _too_large(url: str, limit: int, size: int | None = None) -> PrebuiltError:
    return PrebuiltError(
        Finding(
            url,
            f"{size} bytes" if size else f"more than {limit} bytes",
            f"at most {limit} bytes",
            "do not use it: it is not the file that its record describes",
        )
    )
