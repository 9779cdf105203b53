"""Files over HTTP, from a real server that is slow, cuts off, fails, lies and redirects."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from urllib3.util import parse_url

from qola.errors import PrebuiltError
from qola.prebuilt.http import (
    HttpClient,
    HttpSettings,
    UnreachableError,
    is_direct,
    is_this_machine,
    proxies_of,
    redirect_target,
)
from tests.python.prebuilt.http_files import Fault, Files, serving

CONTENT = random.Random(7).randbytes(50_000)
LIMIT = 1_000_000


@dataclass
class Client:
    """A client that waits briefly, and the lines it said."""

    lines: list[str] = field(default_factory=list)

    def make(self, **settings: object) -> HttpClient:
        """A client with these settings."""
        quick = {"backoff": 0.01, "longest_wait": 1, "connect_timeout": 2.0, "read_timeout": 2.0}
        return HttpClient(HttpSettings(**{**quick, **settings}), self.lines.append)  # type: ignore[arg-type]


@pytest.fixture
def server() -> Iterator[Files]:
    """A server with one file."""
    with serving(Files({"/file": CONTENT}, {"/file": '"one"'})) as files:
        yield files


def test_a_file(server: Files, tmp_path: Path) -> None:
    """Prevents: a download that is not the file, or leaves its parts behind."""
    assert Client().make().download(f"{server.url}/file", tmp_path / "x", LIMIT)
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert Client().make().read(f"{server.url}/file", LIMIT) == CONTENT


def test_what_is_not_there(server: Files, tmp_path: Path) -> None:
    """Prevents: a miss taken for a fault, or asked for again and again."""
    assert not Client().make().download(f"{server.url}/none", tmp_path / "x", LIMIT)
    assert Client().make().read(f"{server.url}/none", LIMIT) is None
    assert server.paths() == ["/none", "/none"]
    assert not list(tmp_path.iterdir())


def test_cut_off_and_gone_on_with(server: Files, tmp_path: Path) -> None:
    """Prevents: a long download that begins anew, or is wrong, after a connection was lost."""
    server.faults["/file"] = Fault(cut=20_000, times=2)
    client = Client()
    assert client.make().download(f"{server.url}/file", tmp_path / "x", LIMIT)
    assert (tmp_path / "x").read_bytes() == CONTENT
    ranges = [request.headers.get("Range") for request in server.requests]
    assert ranges == [None, "bytes=20000-", "bytes=40000-"]
    assert [request.headers.get("If-Range") for request in server.requests] == [
        None,
        '"one"',
        '"one"',
    ]
    assert any("goes on at 20000 bytes" in line for line in client.lines)


def test_gone_on_with_by_another_process(server: Files, tmp_path: Path) -> None:
    """Prevents: a download lost with the process that began it."""
    server.faults["/file"] = Fault(cut=30_000, times=1)
    with pytest.raises(UnreachableError):
        Client().make(retries=0).download(f"{server.url}/file", tmp_path / "x", LIMIT)
    assert not (tmp_path / "x").exists()
    assert Client().make().download(f"{server.url}/file", tmp_path / "x", LIMIT)
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert server.requests[-1].headers["Range"] == "bytes=30000-"


def test_another_file_in_between(server: Files, tmp_path: Path) -> None:
    """Prevents: the beginning of one file and the end of another in one."""
    server.faults["/file"] = Fault(cut=30_000, times=1)
    with pytest.raises(UnreachableError):
        Client().make(retries=0).download(f"{server.url}/file", tmp_path / "x", LIMIT)
    server.content["/file"], server.etags["/file"] = CONTENT[::-1], '"two"'
    assert Client().make().download(f"{server.url}/file", tmp_path / "x", LIMIT)
    assert (tmp_path / "x").read_bytes() == CONTENT[::-1]


def test_without_a_validator_it_begins_anew(server: Files, tmp_path: Path) -> None:
    """Prevents: a file gone on with of which nobody knows whether it is still the same."""
    del server.etags["/file"]
    server.faults["/file"] = Fault(cut=30_000, times=1)
    assert Client().make().download(f"{server.url}/file", tmp_path / "x", LIMIT)
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert [request.headers.get("Range") for request in server.requests] == [None, None]


def test_small_files_that_are_cut_off(server: Files) -> None:
    """Prevents: half a record read as a whole one."""
    server.faults["/file"] = Fault(cut=1500, times=1)
    assert Client().make().read(f"{server.url}/file", LIMIT) == CONTENT
    assert len(server.requests) == 2


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_passing_fault(server: Files, tmp_path: Path, status: int) -> None:
    """Prevents: a build of hours because a server had a bad second."""
    server.faults["/file"] = Fault(status=status, times=2)
    client = Client()
    assert client.make().download(f"{server.url}/file", tmp_path / "x", LIMIT)
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert sum(str(status) in line for line in client.lines) == 2


def test_back_off(server: Files) -> None:
    """Prevents: a busy server asked again at once, as often as it fails."""
    server.faults["/file"] = Fault(status=503, times=3)
    started = time.monotonic()
    assert Client().make(backoff=0.1).read(f"{server.url}/file", LIMIT) == CONTENT
    # 0, then 0.2, then 0.4.
    assert time.monotonic() - started >= 0.6


def test_retry_after_is_respected_and_bounded(server: Files) -> None:
    """Prevents: a server that asks for patience and gets none, or for a day and gets it."""
    server.faults["/file"] = Fault(status=503, headers={"Retry-After": "86400"}, times=1)
    started = time.monotonic()
    assert Client().make(longest_wait=1).read(f"{server.url}/file", LIMIT) == CONTENT
    assert 1 <= time.monotonic() - started < 10


def test_a_lasting_fault(server: Files) -> None:
    """Prevents: attempts without end; a source that fails without saying how."""
    server.faults["/file"] = Fault(status=500, times=99)
    with pytest.raises(UnreachableError, match=r"500 .*\(3 attempts\)"):
        Client().make(retries=2).read(f"{server.url}/file", LIMIT)
    assert len(server.requests) == 3


def test_forbidden_is_not_tried_again(server: Files) -> None:
    """Prevents: accounts locked by attempts that cannot succeed."""
    server.faults["/file"] = Fault(status=403, times=99)
    with pytest.raises(UnreachableError, match="403"):
        Client().make().read(f"{server.url}/file", LIMIT)
    assert len(server.requests) == 1


def test_nobody_listens(server: Files) -> None:
    """Prevents: an unreachable mirror that stops everything with a traceback."""
    url = "http://127.0.0.1:9/file"
    with pytest.raises(UnreachableError, match="refused"):
        Client().make(retries=1).read(url, LIMIT)


def test_a_silent_server(server: Files) -> None:
    """Prevents: a fetch that waits for ever for a server that says nothing."""
    server.faults["/file"] = Fault(silent=1.0, times=1)
    client = Client()
    assert client.make(read_timeout=0.3).read(f"{server.url}/file", LIMIT) == CONTENT
    assert any("timed out" in line for line in client.lines)


def test_a_slow_server(server: Files, tmp_path: Path) -> None:
    """Prevents: a slow download that is given up, or of which nobody hears for minutes."""
    # Longer than the timeout as a whole, and far from it between two bytes.
    server.faults["/file"] = Fault(pause=0.04, times=1)
    client = Client()
    slow = client.make(read_timeout=1.5, progress_interval=0.2)
    assert slow.download(f"{server.url}/file", tmp_path / "x", LIMIT)
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert len(server.requests) == 1
    assert any("of 0.1 MB" in line for line in client.lines), client.lines


def test_more_than_was_promised(server: Files, tmp_path: Path) -> None:
    """Prevents: a disk filled by a server that sends without end."""
    url, client = f"{server.url}/file", Client().make()
    with pytest.raises(PrebuiltError, match="at most 1000 bytes"):
        client.download(url, tmp_path / "x", 1000)
    with pytest.raises(PrebuiltError, match="at most 1000 bytes"):
        client.read(url, 1000)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_to_other_hosts(server: Files, status: int) -> None:
    """Prevents: a bundle from a host that nobody chose; one that was chosen refused."""
    with serving(Files({"/else": b"elsewhere"})) as other:
        place = f"http://localhost:{other.port}/else"
        server.faults["/file"] = Fault(status=status, headers={"Location": place}, times=2)
        with pytest.raises(PrebuiltError, match=f"redirect to {place}") as caught:
            Client().make().read(f"{server.url}/file", LIMIT)
        assert caught.value.findings[0].fix.startswith("--allow-redirect localhost")
        assert not other.requests
        allowed = Client().make(redirects=("localhost",), token="secret")
        assert allowed.read(f"{server.url}/file", LIMIT) == b"elsewhere"
        assert server.requests[-1].headers["Authorization"] == "Bearer secret"
        assert "Authorization" not in other.requests[0].headers, "a token told to somebody else"


def test_a_token_over_plain_http(server: Files) -> None:
    """Prevents: a token that everybody on the way can read; one that is missed in silence."""
    server.content["http://somewhere.invalid/x"] = b"by proxy"
    client = Client()
    proxied = client.make(proxies={"http": server.url}, token="secret")
    for _ in range(2):
        assert proxied.read("http://somewhere.invalid/x", LIMIT) == b"by proxy"
    assert all("Authorization" not in request.headers for request in server.requests)
    words = "the token is not sent there: http is not encrypted"
    assert client.lines == [f"http://somewhere.invalid: {words}"]
    assert proxied.read(f"http://localhost:{server.port}/file", LIMIT) == CONTENT
    assert server.requests[-1].headers["Authorization"] == "Bearer secret"


def test_this_machine() -> None:
    """Prevents: a token told to a host that is only called like this machine."""
    assert all(is_this_machine(host) for host in ("localhost", "127.0.0.1", "127.8.0.1", "::1"))
    others = ("127.0.0.1.org", "localhost.org", "10.0.0.1", "a.localhost", "0.0.0.0")
    assert not any(is_this_machine(host) for host in others)


def test_redirects_on_the_same_host(server: Files) -> None:
    """Prevents: servers that move files about refused; a circle followed for ever."""
    server.faults["/old"] = Fault(status=302, headers={"Location": "/file"}, times=1)
    assert Client().make().read(f"{server.url}/old", LIMIT) == CONTENT
    server.faults["/old"] = Fault(status=302, headers={"Location": "/old"}, times=99)
    with pytest.raises(UnreachableError, match="redirects"):
        Client().make().read(f"{server.url}/old", LIMIT)


@pytest.mark.parametrize(
    "place",
    [
        "http://localhost@127.0.0.1:{port}/else",
        "http://127.0.0.1:{port}/el\tse",
        "http://127.0.0.1:{port}/else else",
        "http://[127.0.0.1:{port}/else",
    ],
)
def test_redirects_that_parsers_read_differently(server: Files, place: str) -> None:
    """Prevents: one host checked, and another one connected to."""
    with serving(Files({"/else": b"elsewhere", "/@127.0.0.1/else": b"elsewhere"})) as other:
        location = place.format(port=other.port)
        server.faults["/file"] = Fault(status=302, headers={"Location": location}, times=1)
        with pytest.raises(PrebuiltError, match="is not followed"):
            Client().make().read(f"{server.url}/file", LIMIT)
        assert not other.requests


@pytest.mark.parametrize("place", ["file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_redirects_to_other_schemes(server: Files, place: str) -> None:
    """Prevents: a server that has this machine's own files read."""
    server.faults["/file"] = Fault(status=302, headers={"Location": place}, times=1)
    with pytest.raises(PrebuiltError, match="is not followed"):
        Client().make(redirects=("127.0.0.1",)).read(f"{server.url}/file", LIMIT)


@pytest.mark.parametrize("host", ["a.org", "b.org"])
def test_redirects_to_plain_http(host: str) -> None:
    """Prevents: a host that may be redirected to taken for leave to give up encryption."""
    asked = parse_url("https://a.org/x")

    def target(location: str, *redirects: str) -> str:
        return redirect_target(asked, asked, location, redirects).url

    with pytest.raises(PrebuiltError, match="is not followed") as caught:
        target(f"http://{host}/y", host)
    assert caught.value.findings[0].fix.startswith(f"--allow-redirect http://{host},")
    assert target(f"http://{host}/y", f"http://{host}") == f"http://{host}/y"
    assert target(f"https://{host}/y", host) == f"https://{host}/y"
    assert target(f"https://{host}/y", f"http://{host}") == f"https://{host}/y"


def test_put(server: Files, tmp_path: Path) -> None:
    """Prevents: uploads that lose bytes, that end at the first fault, or fail in silence."""
    (tmp_path / "x").write_bytes(CONTENT)
    server.faults["/new"] = Fault(status=503, times=1)
    Client().make(token="secret").put(f"{server.url}/new", tmp_path / "x")
    assert server.content["/new"] == CONTENT
    assert server.requests[-1].headers["Authorization"] == "Bearer secret"
    Client().make().put(f"{server.url}/small", b"abc")
    assert server.content["/small"] == b"abc"
    server.faults["/new"] = Fault(status=405, times=1)
    with pytest.raises(UnreachableError, match="405"):
        Client().make().put(f"{server.url}/new", b"abc")


def test_proxies() -> None:
    """Prevents: a proxy asked for this machine's own servers, or for hosts that are exempt."""
    found = proxies_of({"https_proxy": "http://p:1", "HTTP_PROXY": "http://q:2", "no_proxy": ".in"})
    # Capitals may be a header of somebody's request, as curl's manual explains.
    assert found == {"https": "http://p:1", "no": ".in"}
    found = proxies_of({"HTTPS_PROXY": "p:3128", "ALL_PROXY": "a:1", "no_proxy": "b.org"})
    assert found == {"https": "http://p:3128", "http": "http://a:1", "no": "b.org"}
    assert proxies_of({"all_proxy": "https://a"}) == dict.fromkeys(("http", "https"), "https://a")
    assert is_direct("a.in", ".in, b.org")
    assert is_direct("b.org", ".in, b.org")
    assert is_direct("localhost", "")
    assert is_direct("127.0.0.1", "")
    assert is_direct("x.com", "*")
    assert not is_direct("ab.org", ".in, b.org")
    assert not is_direct("127.org", "")


def test_a_proxy_is_used(server: Files) -> None:
    """Prevents: a machine behind a proxy that cannot fetch."""
    server.content["http://somewhere.invalid/x"] = b"by proxy"
    client = Client().make(proxies={"http": server.url})
    assert client.read("http://somewhere.invalid/x", LIMIT) == b"by proxy"


@pytest.mark.parametrize("name", ["http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("scheme", ["", "http://"])
def test_a_proxy_that_asks_who_one_is(server: Files, name: str, scheme: str) -> None:
    """Prevents: a proxy's password not sent to it, or sent on to the server as one's own."""
    server.content["http://somewhere.invalid/x"] = b"by proxy"
    proxy = f"{scheme}us%65r:p%40%C3%A4:w@127.0.0.1:{server.port}"
    client = Client().make(proxies=proxies_of({name: proxy}))
    assert client.read("http://somewhere.invalid/x", LIMIT) == b"by proxy"
    sent = server.requests[0].headers["proxy-authorization"]
    assert base64.b64decode(sent.removeprefix("Basic ")).decode() == "user:p@ä:w"
    assert client.read(f"{server.url}/file", LIMIT) == CONTENT
    assert "proxy-authorization" not in {name.lower() for name in server.requests[1].headers}


def test_a_proxy_for_https(server: Files) -> None:
    """Prevents: a proxy without a scheme, or with a password, of no use for https."""
    proxies = proxies_of({"https_proxy": f"user:pw@127.0.0.1:{server.port}"})
    client = Client().make(proxies=proxies, retries=0)
    with pytest.raises(UnreachableError, match="proxy"):
        client.read("https://somewhere.invalid/x", LIMIT)
    (asked,) = server.requests
    assert (asked.method, asked.path) == ("CONNECT", "somewhere.invalid:443")
    assert asked.headers["proxy-authorization"] == "Basic dXNlcjpwdw=="


@pytest.mark.parametrize("proxy", ["socks5://u:secret@127.0.0.1:1", "http://u:secret@[x:1"])
def test_no_proxy_that_can_be_used(proxy: str) -> None:
    """Prevents: a traceback or a password in messages for a proxy that qola does not know."""
    client = Client()
    made = client.make(proxies=proxies_of({"all_proxy": proxy}))
    with pytest.raises(UnreachableError, match="the proxy of the environment") as caught:
        made.read("http://somewhere.invalid/x", LIMIT)
    assert "secret" not in str(caught.value)
    assert not client.lines, "tried again, which changes nothing"
