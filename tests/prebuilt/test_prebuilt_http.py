"""Files over HTTP, from a server that is slow, interrupts, fails, sends wrong data or redirects."""

from __future__ import annotations

import base64
import itertools
import random
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import urllib3

from qola.prebuilt import sources
from qola.prebuilt.sources import (
    HttpSource,
    Transport,
    UnreachableError,
    is_this_machine,
    proxies_of,
)
from qola_base.errors import PrebuiltError
from qola_base.progress import log
from tests.servers.http_files import Fault, Files, certificate, serving

CONTENT = random.Random(7).randbytes(50_000)
LIMIT = 1_000_000
ELSEWHERE = "http://somewhere.invalid"


def source(base: str, **options: Any) -> HttpSource:
    """Return a source with short timeouts."""
    defaults = {
        "retry": urllib3.Retry(4, backoff_factor=0.01, retry_after_max=1),
        "timeout": urllib3.Timeout(connect=2, read=2),
    }
    return HttpSource(base, Transport(**{**defaults, **options}))


@pytest.fixture
def server() -> Iterator[Files]:
    """Serve one file."""
    with serving(Files({"/file": CONTENT, f"{ELSEWHERE}/file": b"by proxy"})) as files:
        yield files


@pytest.mark.parametrize("status", [0, 404, 410])
def test_file_and_missing_file(server: Files, tmp_path: Path, status: int) -> None:
    """Prevents: a download differs from the file, or qola retries a missing file."""
    server.faults["/file"] = Fault(status=status, times=2)
    found = source(server.url)
    assert found.download("file", tmp_path / "x", LIMIT) == (status == 0)
    assert found.read("file", LIMIT) == (None if status else CONTENT)
    assert server.paths() == ["/file", "/file"]
    assert (tmp_path / "x").read_bytes() == (b"" if status else CONTENT)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        *[(Fault(status=status, times=2), str(status)) for status in (429, 500, 502, 503, 504)],
        (Fault(cut=20_000, times=2), "Connection broken"),
        (Fault(silent=1.0, times=1), "timed out"),
    ],
    ids=str,
)
def test_temporary_fault(
    server: Files, tmp_path: Path, fault: Fault, expected: str, logged: list[str]
) -> None:
    """Prevents: a temporary fault causes hours of building, or an incomplete file."""
    server.faults["/file"] = fault
    times = fault.times
    retrying = source(server.url, timeout=urllib3.Timeout(connect=2, read=0.4))
    assert retrying.download("file", tmp_path / "x", LIMIT)
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert len(logged) == times
    assert all(expected in line for line in logged), logged


def test_file_changes_between_attempts(server: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a retry appends the end of the previous file to a shorter file."""
    server.faults["/file"] = Fault(cut=20_000)
    change = lambda _: server.content.update({"/file": b"short"})  # noqa: E731
    monkeypatch.setattr(log, "info", change)
    assert source(server.url).read("file", LIMIT) == b"short"


@pytest.mark.parametrize(
    ("status", "expected", "requests"),
    [(500, r"500 .*\(3 attempts\)", 3), (403, "403", 1), (401, "401", 1)],
)
def test_permanent_fault(server: Files, status: int, expected: str, requests: int) -> None:
    """Prevents: endless attempts, or attempts with a rejected password that lock an account."""
    server.faults["/file"] = Fault(status=status, times=99)
    with pytest.raises(UnreachableError, match=expected):
        source(server.url, retry=urllib3.Retry(2)).read("file", LIMIT)
    assert len(server.requests) == requests


@pytest.mark.parametrize(
    ("status", "token", "words", "hint"),
    [
        (401, "", "wants a token, and none was sent", "^QOLA_PREBUILT_TOKEN=<token> is sent"),
        (401, "old", "does not accept the token", "^QOLA_PREBUILT_TOKEN=<a valid token"),
        (403, "", "refuses access without a token", r"^QOLA_PREBUILT_TOKEN=.*s3:ListBucket"),
        (403, "old", "refuses access with this token", r"^QOLA_PREBUILT_TOKEN=.*s3:ListBucket"),
        (407, "", "the proxy wants a password", "^https_proxy=http://USER:PASSWORD@"),
        (418, "", "^418 ", "^$"),
    ],
)
def test_missing_rights(server: Files, status: int, token: str, words: str, hint: str) -> None:
    """Prevents: "403 Forbidden" without the token or the right that is missing."""
    server.faults["/file"] = Fault(status=status, times=2)
    with pytest.raises(UnreachableError, match=words) as caught:
        source(server.url, token=token).read("file", LIMIT)
    assert re.search(hint, caught.value.hint)
    with pytest.raises(UnreachableError, match="PUT answers") as caught:
        source(server.url, token=token).write("file", b"")
    assert "ListBucket" not in caught.value.hint
    if token:
        server.faults["/file"] = Fault(status=status, times=1)
        with pytest.raises(UnreachableError, match=str(status)) as caught:
            HttpSource(server.url, Transport(token), "a manifest names it").read("file", LIMIT)
        assert "is only sent over https, to sources of --prebuilt" in caught.value.hint


def test_pauses_between_attempts(server: Files) -> None:
    """Prevents: qola retries a busy server without a pause, or waits a day for Retry-After."""
    server.faults["/file"] = Fault(status=503, times=3)
    started = time.monotonic()
    assert source(server.url, retry=urllib3.Retry(4, backoff_factor=0.1)).read("file", LIMIT)
    # 0, then 0.2, then 0.4.
    assert time.monotonic() - started >= 0.6
    server.faults["/file"] = Fault(status=503, headers={"Retry-After": "86400"}, times=1)
    started = time.monotonic()
    assert source(server.url).read("file", LIMIT) == CONTENT
    assert 1 <= time.monotonic() - started < 10


def test_slow_server(server: Files, monkeypatch: pytest.MonkeyPatch, logged: list[str]) -> None:
    """Prevents: qola aborts a slow download, or shows no progress for minutes."""
    # The download exceeds the timeout; the pause between two bytes does not.
    server.faults["/file"] = Fault(pause=0.04, times=1)
    monkeypatch.setattr(sources, "_INTERVAL", 0.2)
    slow = source(server.url, timeout=urllib3.Timeout(connect=2, read=1.5))
    assert slow.read("file", LIMIT) == CONTENT
    assert len(server.requests) == 1
    assert any(" MB" in line for line in logged), logged


def test_download_below_the_minimum_rate(server: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a build waits for days for a server that sends slowly."""
    server.faults["/file"] = Fault(pause=0.3, times=9)
    monkeypatch.setattr(sources, "SLOWEST", 10_000)
    with pytest.raises(UnreachableError, match=r"^\d+ bytes in \d s"):
        source(server.url, patience=0.5).read("file", LIMIT)
    assert len(server.requests) == 1


# One thread makes the whole request, whatever the connection and the part of the response are.
SLOW_RESPONSES = {
    "a status line": (b"HTTP/1.1 200 ", b"O"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: x\r\n"),
    "trailers": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: x\r\n"),
    "a body": (b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n", b"x"),
    "redirects": (b"HTTP/1.1 302 Found\r\nLocation: /file\r\nX: ", b"x"),
}


@contextmanager
def serve_slowly(start: bytes, then: bytes) -> Iterator[str]:
    """Send `start`, and then repeat `then`, a byte every 20 ms; yield a URL."""

    def respond(client: socket.socket) -> None:
        with suppress(OSError), client:
            client.recv(65536)
            client.sendall(start)
            for byte in itertools.cycle(then):
                client.sendall(bytes([byte]))
                time.sleep(0.02)

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=respond, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("case", SLOW_RESPONSES)
def test_endless_slow_response(case: str) -> None:
    """Prevents: a request never ends because the server sends single bytes."""
    with serve_slowly(*SLOW_RESPONSES[case]) as base:
        started = time.monotonic()
        with pytest.raises(UnreachableError, match=r"^\d+ bytes in \d s: it is too slow$"):
            source(base, patience=0.6).read("file", LIMIT)
        assert time.monotonic() - started < 5


def test_endless_slow_proxy() -> None:
    """Prevents: a request waits forever for a proxy's response to CONNECT."""
    with (
        serve_slowly(*SLOW_RESPONSES["a status line"]) as proxy,
        pytest.raises(UnreachableError, match="too slow"),
    ):
        source("https://a.invalid", proxies={"https": proxy}, patience=0.6).read("x", LIMIT)


def test_response_larger_than_the_limit(server: Files, tmp_path: Path) -> None:
    """Prevents: a server that sends without end fills the disk."""
    with pytest.raises(PrebuiltError, match="at most 1000 bytes"):
        source(server.url).download("file", tmp_path / "x", 1000)
    assert (tmp_path / "x").stat().st_size <= 1000
    with pytest.raises(PrebuiltError, match="at most 1000 bytes"):
        source(server.url).read("file", 1000)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects(server: Files, status: int) -> None:
    """Prevents: qola sends a token to another host or port after a redirect."""
    with serving(Files({"/else": b"elsewhere"})) as other:
        places = {"/a": "/file", "/b": f"{other.url}/else", "/c": f"//localhost:{other.port}/else"}
        for name, location in places.items():
            server.faults[name] = Fault(status=status, headers={"Location": location}, times=1)
        with_token = source(server.url, token="secret")
        assert [with_token.read(name, LIMIT) for name in "abc"] == [
            CONTENT,
            b"elsewhere",
            b"elsewhere",
        ]
        assert {r.headers.get("Authorization") for r in server.requests} == {"Bearer secret"}
        assert [r.path for r in other.requests] == ["/else", "/else"]
        assert not [r for r in other.requests if "Authorization" in r.headers]


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/old", "302"),
        ("file:///etc/passwd", "to an invalid URL"),
        ("ftp://127.0.0.1/x", "to an invalid URL"),
        ("http://[127.0.0.1/x", "to an invalid URL"),
    ],
)
def test_invalid_redirects(server: Files, location: str, expected: str) -> None:
    """Prevents: qola follows a redirect loop forever, or reads local files after a redirect."""
    server.faults["/old"] = Fault(status=302, headers={"Location": location}, times=99)
    with pytest.raises(UnreachableError, match=expected):
        source(server.url).read("old", LIMIT)


def test_redirects_to_plain_http(
    server: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a redirect from https to http permits changes of the data on the way."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate(tmp_path / "tls.pem")))
    with serving(Files({"/file": CONTENT}), tmp_path / "tls.pem") as encrypted:
        with_token = source(encrypted.url, token="secret")
        server.faults["/back"] = Fault(302, {"Location": f"{encrypted.url}/file"})
        for location in (f"{server.url}/file", f"{server.url}/back", f"{server.url}/gone"):
            encrypted.faults["/old"] = Fault(302, {"Location": location})
            with pytest.raises(PrebuiltError, match=f"a redirect to {location}"):
                with_token.read("old", LIMIT)
        assert not server.requests, "asked in plain http"
        encrypted.faults["/old"] = Fault(302, {"Location": "/file"})
        assert with_token.read("old", LIMIT) == CONTENT
        assert encrypted.requests[-1].headers["Authorization"] == "Bearer secret"


def test_token_over_plain_http(server: Files, logged: list[str]) -> None:
    """Prevents: qola sends a token unencrypted, or omits the token without a message."""
    proxied = source(ELSEWHERE, proxies={"http": server.url}, token="secret")
    for _ in range(2):
        assert proxied.read("file", LIMIT) == b"by proxy"
    assert all("Authorization" not in request.headers for request in server.requests)
    assert logged == [f"{ELSEWHERE}: the token is not sent there: http is not encrypted"]
    # Requests to this machine do not use the proxy.
    local = source(f"http://localhost:{server.port}", proxies={"http": ELSEWHERE}, token="secret")
    assert local.read("file", LIMIT) == CONTENT
    assert server.requests[-1].headers["Authorization"] == "Bearer secret"


def test_this_machine() -> None:
    """Prevents: qola sends a token to a host whose name resembles this machine's."""
    assert all(is_this_machine(host) for host in ("localhost", "127.0.0.1", "127.8.0.1", "[::1]"))
    others = ("127.0.0.1.org", "localhost.org", "10.0.0.1", "a.localhost", "0.0.0.0")
    assert not any(is_this_machine(host) for host in others)


def test_write(server: Files, tmp_path: Path) -> None:
    """Prevents: an upload loses bytes, ends at the first fault, or follows a redirect."""
    (tmp_path / "x").write_bytes(CONTENT)
    server.faults["/new"] = Fault(status=503, times=1)
    source(server.url, token="secret").write("new", tmp_path / "x")
    source(server.url).write("small", b"abc")
    assert (server.content["/new"], server.content["/small"]) == (CONTENT, b"abc")
    assert server.requests[1].headers["Authorization"] == "Bearer secret"
    for status, headers in ((405, {}), (303, {"Location": "/file"}), (307, {"Location": "/b"})):
        server.faults["/new"] = Fault(status=status, headers=headers, times=1)
        with pytest.raises(UnreachableError, match=f"PUT answers {status}"):
            source(server.url).write("new", b"abc")
    assert server.content["/new"] == CONTENT
    assert "/b" not in server.content


def test_proxies_of() -> None:
    """Prevents: qola reads proxy variables differently than curl."""
    # HTTP_PROXY may be a header of a CGI request, as curl's manual explains.
    environ = {
        "https_proxy": "http://p:1",
        "HTTPS_PROXY": "x",
        "HTTP_PROXY": "q",
        "no_proxy": ".in",
    }
    assert proxies_of(environ) == {"http": "", "https": "http://p:1", "no": ".in"}
    environ = {"HTTPS_PROXY": "p:3128", "ALL_PROXY": "a:1", "all_proxy": "", "NO_PROXY": "b.org"}
    assert proxies_of(environ) == {"http": "a:1", "https": "p:3128", "no": "b.org"}


@pytest.mark.parametrize("name", ["http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("scheme", ["", "http://"])
def test_proxy(server: Files, name: str, scheme: str) -> None:
    """Prevents: qola bypasses a proxy, omits its password, or sends this password to a server."""
    proxies = proxies_of({name: f"{scheme}us%65r:p%40%C3%A4:w@127.0.0.1:{server.port}"})
    assert source(ELSEWHERE, proxies=proxies).read("file", LIMIT) == b"by proxy"
    sent_headers = {key.lower(): value for key, value in server.requests[0].headers.items()}
    credentials = base64.b64decode(
        sent_headers["proxy-authorization"].removeprefix("Basic ")
    ).decode()
    assert credentials == "user:p@ä:w"
    assert source(server.url, proxies=proxies).read("file", LIMIT) == CONTENT
    assert "proxy-authorization" not in {name.lower() for name in server.requests[1].headers}


@pytest.mark.parametrize("exempt", ["somewhere.invalid", ".invalid", "a.org, invalid", "*"])
def test_hosts_that_need_no_proxy(server: Files, exempt: str) -> None:
    """Prevents: qola uses a proxy for hosts that are exempt from it."""
    proxies = {"http": server.url, "no": exempt}
    with pytest.raises(UnreachableError, match="resolve"):
        source(ELSEWHERE, proxies=proxies, retry=urllib3.Retry(0)).read("file", LIMIT)
    assert not server.requests
    proxies["no"] = "where.invalid, .org"
    assert source(ELSEWHERE, proxies=proxies).read("file", LIMIT) == b"by proxy"


def test_proxy_for_https(server: Files) -> None:
    """Prevents: https requests fail with a proxy without a scheme or with a password."""
    proxies = proxies_of({"https_proxy": f"user:pw@127.0.0.1:{server.port}"})
    with pytest.raises(UnreachableError, match="proxy"):
        source("https://a.invalid", proxies=proxies, retry=urllib3.Retry(0)).read("x", LIMIT)
    (request,) = server.requests
    assert (request.method, request.path) == ("CONNECT", "a.invalid:443")
    assert request.headers["proxy-authorization"] == "Basic dXNlcjpwdw=="


@pytest.mark.parametrize("proxy", ["socks5://u:secret@127.0.0.1:1", "http://u:secret@[x:1"])
def test_unsupported_proxies(proxy: str, logged: list[str]) -> None:
    """Prevents: an unsupported proxy causes a traceback, or an error contains its password."""
    with pytest.raises(UnreachableError, match="the proxy of the environment") as caught:
        source(ELSEWHERE, proxies=proxies_of({"all_proxy": proxy})).read("x", LIMIT)
    assert "secret" not in str(caught.value)
    assert not logged, "tried again, which changes nothing"
