"""Sources of prebuilt bundles with invalid responses, records and archives."""

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
RESPONSES = {
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
    "a negative chunk": CHUNKED + b"-5\r\n{}\r\n0\r\n\r\n",
    "a chunk in words": CHUNKED + b"two\r\n{}\r\n0\r\n\r\n",
    "a chunk that is not kept": CHUNKED + b"ffffffffff\r\n{}",
    "no last chunk": CHUNKED + b"2\r\n{}\r\n",
    "a redirect to nowhere": MOVED + b"Location: http://[\r\n\r\n",
    "a redirect to a port of nobody's": MOVED + b"Location: http://127.0.0.1:99999/\r\n\r\n",
    "a redirect and more than enough": MOVED + b"Location: //[\r\n\r\n" + bytes(50_000_000),
    "colours": b"HTTP/1.1 403 \x1b[31m\x9b\x07red\r\nContent-Length: 0\r\n\r\n",
}


@contextmanager
def serve_response(response: bytes) -> Iterator[str]:
    """Send the same bytes in response to each request and close the connection; yield the URL."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.recv(1 << 16)
                self.request.sendall(response)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("case", RESPONSES)
def test_invalid_response(user: User, case: str) -> None:
    """Prevents: a bad server causes a traceback, ends the build or hides the next source."""
    with serve_response(RESPONSES[case]) as url:
        error_text = user.fetch(url, "published")
    assert f"{url}: " in error_text
    assert f"from {user.published}" in error_text
    assert not set(error_text) & {"\x1b", "\x9b", "\x07"}


def test_invalid_source(user: User) -> None:
    """Prevents: a misspelt source causes a build instead of an error."""
    for command in (user.build, user.fetch):
        assert "an http, https or file URL" in command("ftp://x/", "published", code=1)
    # The error precedes the build.
    assert "error: --to" in user.run("publish", "--to=ftp://x/", code=1)[1]


@pytest.mark.parametrize("source", ["x" * 5000, "http://a..b/"])
def test_missing_source(user: User, source: str) -> None:
    """Prevents: a build fails because one of several sources does not exist."""
    assert "no prebuilt" in user.build(source, code=5)
    user.fetch(source, code=12)
    user.fetch(source, "published")
    assert "is not published" in user.run("publish", f"--to={source}", code=12)[1]


def test_record_that_is_a_fifo(user: User, tmp_path: Any) -> None:
    """Prevents: a fetch blocks forever on a device or FIFO of another user."""
    (tmp_path / "fifo").mkdir()
    os.mkfifo(tmp_path / "fifo" / user.record)
    user.fetch("fifo", code=9)


def test_record_that_is_a_symlink_loop(user: User, tmp_path: Any) -> None:
    """Prevents: an unreadable source counts as a source without the bundle."""
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / user.record).symlink_to(user.record)
    user.fetch("loop", code=12)


def change_record(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    """Return an edit of a record."""

    def edit(data: bytes) -> bytes:
        content = json.loads(data)
        result = change(content)
        return json.dumps(content if result is None else result).encode()

    return edit


def change_archive_field(name: str, value: object) -> Callable[[bytes], bytes]:
    """Return an edit of a field of a record's `archive`."""
    return change_record(lambda content: content["archive"].update({name: value}))


def nest_inputs(depth: int) -> Callable[[bytes], bytes]:
    """Return an edit that nests objects in a record's inputs."""
    text = b'"inputs": {"x":' + b'{"a":' * depth + b"1" + b"}" * depth + b","
    return lambda data: data.replace(b'"inputs": {', text)


RECORDS: dict[str, Callable[[bytes], bytes]] = {
    "an error page": lambda _: b"<html>",
    "nothing in it": lambda _: b"{}",
    "no text": lambda _: b"\xff",
    "lists in lists": lambda _: b"[" * 100_000,
    "a list": change_record(lambda content: [content]),
    "inputs of pairs": change_record(lambda c: c.update(inputs=[[1, 2], ["a", 3]], digest="x")),
    "half a character in a name": change_record(
        lambda content: content["inputs"].update({"\udfff": 1})
    ),
    "escapes": change_record(
        lambda c: c.update(inputs={"\x1b]0;x\x07": 1}, key="\x1b[2J", digest="\x9b")
    ),
    "many inputs": change_record(
        lambda c: c.update(inputs=dict.fromkeys(map(str, range(90_000))), key="")
    ),
    "names that are none": change_record(
        lambda content: content.update(key=["a"], digest={"b": 1})
    ),
    "a negative size": change_archive_field("size", -1),
    "a size that is true": change_archive_field("size", True),
    "a size that is none": change_archive_field("unpacked_size", float("nan")),
    "a size of digits": lambda data: data.replace(b'"size": ', b'"size": ' + b"9" * 4400),
    "a size beyond all disks": change_archive_field("unpacked_size", 10**30),
    "a digest that is none": change_archive_field("sha256", "\x1b[2J" * 16),
    "a digest in a list": change_archive_field("tar_sha256", ["a" * 64]),
    "a serial that is none": change_record(lambda content: content.update(serial="9")),
    **{f"a depth of {depth}": nest_inputs(depth) for depth in (300, 980, 100_000)},
}


@pytest.mark.parametrize("case", RECORDS)
def test_invalid_record(user: User, case: str) -> None:
    """Prevents: a server's record causes a traceback or sends escape codes to the terminal."""
    path = user.published / user.record
    before = path.read_bytes()
    path.write_bytes(RECORDS[case](before))
    assert path.read_bytes() != before
    error_text = user.fetch("published", code=10)
    assert user.record in error_text
    assert not set(error_text) & {"\x1b", "\x9b", "\x07"}
    assert len(error_text) < 5000
    assert not user.output.exists()


def nested_lists(depth: int) -> str:
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
    **{f"a depth of {n}": '{"modules": [], "x": ' + nested_lists(n) + "}" for n in (980, 100_000)},
}


@pytest.mark.parametrize("case", CONTENTS)
def test_archive_without_a_bundle(user: User, case: str) -> None:
    """Prevents: an invalid manifest.json in a published archive causes a traceback."""
    write(user.directory / "other", {"manifest.json": CONTENTS[case]})
    user.put("other", overwrite=True)
    error_text = user.fetch("published", code=10)
    assert "\x1b" not in error_text
    assert not user.output.exists()


def test_file_in_place_of_a_directory(user: User) -> None:
    """Prevents: a failed fetch leaves files of two bundles in the output directory."""
    user.fetch("published")
    write(user.output, {"licenses/own.txt": "mine"})
    before = read(user.output)
    write(user.directory / "other", {"licenses": "a file", "a": "first of all"})
    user.put("other", overwrite=True)
    shutil.rmtree(user.directory / "cache")
    error_text = user.fetch("published", code=1)
    assert str(user.output / "licenses") in error_text
    assert "Traceback" not in error_text
    assert read(user.output) == before


def test_old_record_is_rejected(user: User) -> None:
    """Prevents: a server serves a replaced bundle again, and qola installs it."""
    old = shutil.copytree(user.published, user.directory / "old")
    user.put("other", overwrite=True)
    user.fetch("published", SIGNED)
    assert (user.output / LIBRARY_FILE).read_bytes() == b"other"
    # Users may delete these files at any time.
    shutil.rmtree(user.directory / "cache/qola/prebuilt")
    for run in (user.fetch, user.build):
        error_text = run("old", SIGNED, code=10)
        assert "older than the one before" in error_text
        assert "serial 0" in error_text
        assert str(old) in error_text
    assert (user.output / LIBRARY_FILE).read_bytes() == b"other"
    # The newer record is valid, and without a key qola does not compare serials.
    user.fetch("published", SIGNED)
    shutil.rmtree(user.directory / "cache/qola/prebuilt")
    user.fetch("old")
    assert (user.output / LIBRARY_FILE).read_bytes() == LIBRARY


def test_old_copy_in_the_cache(user: User) -> None:
    """Prevents: a restored cache brings back a replaced bundle."""
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
    """Prevents: a bundle that replaces another has no newer serial."""

    def serial(bundle: str, overwrite: bool = False) -> int:
        archive = user.directory / "archive.tar.gz"
        packed_archive = pack_bundle(user.directory / bundle, archive)
        destination = DirectorySource(user.published)
        return publish(
            user.key, archive, packed_archive, destination, None, overwrite=overwrite
        ).record.serial

    assert serial("bundle") == 0
    first = serial("other", overwrite=True)
    assert first > 1_700_000_000
    assert serial("other") == first
    # Repairing a broken publication with the same bytes does not change its serial.
    (user.published / user.archive).unlink()
    assert serial("other") == first


def test_serials_are_per_key(user: User) -> None:
    """Prevents: an overwritten bundle makes bundles of other keys look outdated."""
    user.put("other", overwrite=True)
    user.fetch("published", SIGNED)
    user.put("bundle", key=replace(user.key, archs=("gfx942",)))
    user.fetch("published", SIGNED, "--arch=gfx942")
