"""A real HTTP server with files, and with the faults that servers have."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Request:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass
class Fault:
    """What goes wrong with a file, `times` times.

    Attributes:
        status: status instead of the file; 0: the file.
        headers: headers with that status.
        cut: bytes after which the connection ends; None: all of them arrive.
        silent: seconds without a byte of the body.
        pause: seconds between parts of the body.
        times: for how many requests.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    silent: float = 0.0
    pause: float = 0.0
    times: int = 1


@dataclass
class Files:
    """What a server serves, and what it was asked.

    Attributes:
        content: files by path, such as /a.tar.gz; PUT adds to them.
        etags: their ETags; a file without one has none.
        faults: what goes wrong, by path.
        requests: what it was asked, in order.
        port: where it listens, on 127.0.0.1.
    """

    content: dict[str, bytes] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    faults: dict[str, Fault] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        """The server's URL."""
        return f"http://127.0.0.1:{self.port}"

    def paths(self) -> list[str]:
        """Return the paths that were asked for."""
        return [request.path for request in self.requests]


@contextmanager
def serving(files: Files) -> Iterator[Files]:
    """Serve files until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            files.requests.append(Request("GET", self.path, dict(self.headers)))
            fault = self.fault()
            if fault.status:
                self.answer(fault.status, fault.headers, b"")
                return
            content = files.content.get(self.path)
            if content is None:
                self.answer(404, {}, b"not here")
                return
            etag = files.etags.get(self.path, "")
            headers = {"ETag": etag} if etag else {}
            begin = self.begin(etag, len(content))
            if begin:
                headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
            self.answer(206 if begin else 200, headers, content[begin:], fault)

        def do_CONNECT(self) -> None:
            files.requests.append(Request("CONNECT", self.path, dict(self.headers)))
            self.answer(403, {}, b"")

        def do_PUT(self) -> None:
            files.requests.append(Request("PUT", self.path, dict(self.headers)))
            data = self.rfile.read(int(self.headers["Content-Length"]))
            fault = self.fault()
            if not fault.status:
                files.content[self.path] = data
            self.answer(fault.status or 201, fault.headers, b"")

        def fault(self) -> Fault:
            fault = files.faults.get(self.path)
            if fault is None or fault.times == 0:
                return Fault()
            fault.times -= 1
            return fault

        def begin(self, etag: str, size: int) -> int:
            wanted = self.headers.get("Range", "")
            if not wanted or self.headers.get("If-Range") not in (None, etag):
                return 0
            first = int(wanted.removeprefix("bytes=").partition("-")[0])
            return first if first < size else 0

        def answer(
            self, status: int, headers: dict[str, str], body: bytes, fault: Fault | None = None
        ) -> None:
            fault = fault or Fault()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            time.sleep(fault.silent)
            for start in range(0, len(body), 1000):
                part = body[start : start + 1000]
                if fault.cut is not None and start + len(part) > fault.cut:
                    self.wfile.write(part[: fault.cut - start])
                    self.close_connection = True
                    return
                self.wfile.write(part)
                time.sleep(fault.pause)

    class Server(ThreadingHTTPServer):
        # One that waits while a test has long given up shall not keep it from ending.
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing: clients that hang up are part of the tests."""

    server = Server(("127.0.0.1", 0), Handler)
    files.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield files
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
