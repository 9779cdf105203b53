"""Sources of prebuilt bundles that answer what no server, record or archive should have in it."""

from __future__ import annotations

import json
import os
import shutil
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from qola.prebuilt.archive import pack_bundle
from qola.prebuilt.publish import publish
from qola.prebuilt.sources import DirectorySource
from tests.prebuilt.users import LIBRARY, LIBRARY_FILE, SIGNED, User
from tests.support.folders import read, write

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
MOVED = b"HTTP/1.1 302 Found\r\n"
ANSWERS = {
    "nothing": b"",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a status that is none": b"HTTP/1.1 two-hundred OK\r\n\r\n",
    "a status of nobody's": b"HTTP/1.1 299 OK\r\nContent-Length: 0\r\n\r\n",
    "a long line": b"HTTP/1.1 200 " + b"x" * 70_000 + b"\r\n\r\n",
    "headers without end": OK + b"a: b\r\n" * 200 + b"\r\n",
    "a wait in words": b"HTTP/1.1 503 No\r\nRetry-After: soon\r\nContent-Length: 0\r\n\r\n",
    "a wait for ever": b"HTTP/1.1 503 No\r\nRetry-After: Mon, 1 Jan 99999999 00:00:00 GMT\r\n\r\n",
    "a wait of digits": b"HTTP/1.1 503 No\r\nRetry-After: " + b"9" * 5000 + b"\r\n\r\n",
    "a length in words": OK + b"Content-Length: many\r\n\r\n{}",
    "a negative length": OK + b"Content-Length: -2\r\n\r\n{}",
    "two lengths": OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a length of digits": OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n{}",
    "a length that is not kept": OK + b"Content-Length: 20\r\n\r\n{}",
    "a negative chunk": CHUNKED + b"-5\r\n{}\r\n0\r\n\r\n",
    "a chunk in words": CHUNKED + b"two\r\n{}\r\n0\r\n\r\n",
    "a chunk that is not kept": CHUNKED + b"ffffffffff\r\n{}",
    "no last chunk": CHUNKED + b"2\r\n{}\r\n",
    "a redirect to nowhere": MOVED + b"Location: http://[\r\n\r\n",
    "a redirect to a port of nobody's": MOVED + b"Location: http://127.0.0.1:99999/\r\n\r\n",
    "a redirect to a file": MOVED + b"Location: file:///etc/passwd\r\n\r\n",
    "a redirect in a circle": MOVED + b"Location: /again\r\nContent-Length: 0\r\n\r\n",
    "a redirect and more than enough": MOVED + b"Location: //[\r\n\r\n" + bytes(50_000_000),
    "colours": b"HTTP/1.1 403 \x1b[31m\x9b\x07red\r\nContent-Length: 0\r\n\r\n",
}


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Answer each request with some bytes, and hang up; yields the URL."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.recv(1 << 16)
                self.request.sendall(answer)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("what", ANSWERS)
def test_an_answer_that_is_none(user: User, what: str) -> None:
    """Prevents: a traceback, an end of the build, or the next source unasked, for a bad server."""
    with answering(ANSWERS[what]) as url:
        said = user.build(url, code=5)
        assert "no prebuilt" in said
        assert f"{url}: " in said
        assert not set(said) & {"\x1b", "\x9b", "\x07"}
        user.fetch(url, code=12)
        assert f"from {user.published}" in user.fetch(url, "published")


@pytest.mark.parametrize(
    "source", ["http://[x/", "http://x:99999/", "ftp://x/", "~nobody-at-all/x"]
)
def test_an_invalid_source(user: User, source: str) -> None:
    """Prevents: a traceback for a misspelt source, or a build instead of an error."""
    for command in (user.build, user.fetch):
        assert "an http, https or file URL" in command(source, "published", code=1)
    # Before anything is built.
    assert "error: --to" in user.run("publish", f"--to={source}", code=1)[1]


@pytest.mark.parametrize("source", ["x" * 5000, "http://a..b/"])
def test_a_source_that_is_nowhere(user: User, source: str) -> None:
    """Prevents: a build that ends because one of several sources does not exist."""
    assert "no prebuilt" in user.build(source, code=5)
    user.fetch(source, code=12)
    user.fetch(source, "published")
    assert "is not published" in user.run("publish", f"--to={source}", code=12)[1]


def test_a_source_that_would_not_end(user: User, tmp_path: Any) -> None:
    """Prevents: a fetch that reads another user's device or FIFO for ever."""
    (tmp_path / "fifo").mkdir()
    os.mkfifo(tmp_path / "fifo" / user.record)
    user.fetch("fifo", code=9)


def test_a_record_that_leads_to_itself(user: User, tmp_path: Any) -> None:
    """Prevents: a source counted as without the bundle that nobody can ask."""
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / user.record).symlink_to(user.record)
    user.fetch("loop", code=12)


def changed(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    """Change what a record says."""

    def edit(data: bytes) -> bytes:
        content = json.loads(data)
        result = change(content)
        return json.dumps(content if result is None else result).encode()

    return edit


def in_archive(name: str, value: object) -> Callable[[bytes], bytes]:
    """Change what a record says of its archive."""
    return changed(lambda content: content["archive"].update({name: value}))


def nested(depth: int) -> Callable[[bytes], bytes]:
    """Put an object in an object in an object into a record's inputs."""
    text = b'"inputs": {"x":' + b'{"a":' * depth + b"1" + b"}" * depth + b","
    return lambda data: data.replace(b'"inputs": {', text)


RECORDS: dict[str, Callable[[bytes], bytes]] = {
    "a list": changed(lambda content: [content]),
    "no inputs": changed(lambda content: content.update(inputs=None)),
    "inputs of pairs": changed(lambda c: c.update(inputs=[[1, 2], ["a", 3]], digest="x")),
    "half a character": changed(lambda content: content["inputs"].update(x="\ud800")),
    "half a character in a name": changed(lambda content: content["inputs"].update({"\udfff": 1})),
    "escapes": changed(
        lambda c: c.update(inputs={"\x1b]0;x\x07": 1}, key="\x1b[2J", digest="\x9b")
    ),
    "many inputs": changed(
        lambda c: c.update(inputs=dict.fromkeys(map(str, range(90_000))), key="")
    ),
    "names that are none": changed(lambda content: content.update(key=["a"], digest={"b": 1})),
    "a negative size": in_archive("size", -1),
    "a size that is true": in_archive("size", True),
    "a size in words": in_archive("size", "12"),
    "a size without end": in_archive("size", float("inf")),
    "a size that is none": in_archive("unpacked_size", float("nan")),
    "a size of digits": lambda data: data.replace(b'"size": ', b'"size": ' + b"9" * 4400),
    "a size beyond all disks": in_archive("unpacked_size", 10**30),
    "a digest that is none": in_archive("sha256", "\x1b[2J" * 16),
    "a digest in a list": in_archive("tar_sha256", ["a" * 64]),
    "a serial that is none": changed(lambda content: content.update(serial="9")),
    "a negative serial": changed(lambda content: content.update(serial=-1)),
    "another encoding": lambda data: data.decode().encode("utf-16"),
    **{f"a depth of {depth}": nested(depth) for depth in (300, 600, 800, 900, 950, 980, 100_000)},
}


@pytest.mark.parametrize("what", RECORDS)
def test_a_record_that_is_none(user: User, what: str) -> None:
    """Prevents: a traceback, or words that a terminal obeys, from a server's record."""
    path = user.published / user.record
    before = path.read_bytes()
    path.write_bytes(RECORDS[what](before))
    assert path.read_bytes() != before
    said = user.fetch("published", code=10)
    assert user.record in said
    assert not set(said) & {"\x1b", "\x9b", "\x07"}
    assert len(said) < 5000
    user.build("published", code=10)
    assert not user.output.exists()


def deep(depth: int) -> str:
    return "[" * depth + "]" * depth


CONTENTS: dict[str, str | bytes] = {
    "none": "",
    "no text": b"\xff",
    "a list": "[]",
    "no modules": "{}",
    "modules that are none": '{"modules": [1]}',
    "itself as a library": '{"modules": [{"name": "libmha_fwd", "library": "manifest.json"}]}',
    "a library that is none": '{"modules": [{"name": "libmha_fwd", "library": ["x"]}]}',
    "a library elsewhere": '{"modules": [{"name": "libmha_fwd", "library": "/etc/passwd"}]}',
    "too much": '{"modules": [], "x": "' + "x" * (5 << 20) + '"}',
    "escapes": '{"modules": [{"\x1b[2J": 1}]}',
    **{f"a depth of {n}": '{"modules": [], "x": ' + deep(n) + "}" for n in (900, 980, 100_000)},
}


@pytest.mark.parametrize("what", CONTENTS)
def test_an_archive_of_no_bundle(user: User, what: str) -> None:
    """Prevents: a traceback for a manifest.json that nobody looked at before it was packed."""
    write(user.directory / "other", {"manifest.json": CONTENTS[what]})
    user.put("other", overwrite=True)
    said = user.fetch("published", code=10)
    assert "\x1b" not in said
    assert not user.output.exists()


def test_a_file_in_the_place_of_a_directory(user: User) -> None:
    """Prevents: an output directory half of one bundle and half of another."""
    user.fetch("published")
    write(user.output, {"licenses/own.txt": "mine"})
    before = read(user.output)
    write(user.directory / "other", {"licenses": "a file", "a": "first of all"})
    user.put("other", overwrite=True)
    shutil.rmtree(user.directory / "cache")
    said = user.fetch("published", code=1)
    assert str(user.output / "licenses") in said
    assert "Traceback" not in said
    assert read(user.output) == before


def test_an_old_record_put_back(user: User) -> None:
    """Prevents: a bundle that was replaced for a reason, served again in place of the right one."""
    old = shutil.copytree(user.published, user.directory / "old")
    user.put("other", overwrite=True)
    user.fetch("published", SIGNED)
    assert (user.output / LIBRARY_FILE).read_bytes() == b"other"
    # What may be deleted at any time.
    shutil.rmtree(user.directory / "cache/qola/prebuilt")
    for run in (user.fetch, user.build):
        said = run("old", SIGNED, code=10)
        assert "older than the one before" in said
        assert "serial 0" in said
        assert str(old) in said
    assert (user.output / LIBRARY_FILE).read_bytes() == b"other"
    # As is whoever publishes it anew; and of what is not signed nobody knows who made it.
    user.fetch("published", SIGNED)
    shutil.rmtree(user.directory / "cache/qola/prebuilt")
    user.fetch("old")
    assert (user.output / LIBRARY_FILE).read_bytes() == LIBRARY


def test_an_old_copy_in_the_cache(user: User) -> None:
    """Prevents: an old bundle that comes back with a restored cache."""
    user.fetch("published", SIGNED)
    cache = user.directory / "cache/qola/prebuilt"
    cache.rename(user.directory / "restored")
    user.put("other", overwrite=True)
    user.fetch("published", SIGNED)
    shutil.rmtree(cache)
    (user.directory / "restored").rename(cache)
    assert "the copy in the cache is not used" in user.fetch("published", SIGNED)
    assert (user.output / LIBRARY_FILE).read_bytes() == b"other"


def test_serials(user: User) -> None:
    """Prevents: a bundle that takes another's place and does not look newer."""

    def serial(bundle: str, overwrite: bool = False) -> int:
        archive = user.directory / "archive.tar.gz"
        packed = pack_bundle(user.directory / bundle, archive)
        to = DirectorySource(user.published)
        return publish(user.key, archive, packed, to, None, overwrite=overwrite).record.serial

    assert serial("bundle") == 0
    first = serial("other", overwrite=True)
    assert first > 1_700_000_000
    assert serial("other") == first
    # A broken one, healed with the same bytes, is as new as it was.
    (user.published / user.archive).unlink()
    assert serial("other") == first


def test_another_key_s_serial(user: User) -> None:
    """Prevents: an overwritten bundle that makes those of other inputs look old."""
    user.put("other", overwrite=True)
    user.fetch("published", SIGNED)
    user.put("bundle", key=replace(user.key, archs=("gfx942",)))
    user.fetch("published", SIGNED, "--arch=gfx942")
