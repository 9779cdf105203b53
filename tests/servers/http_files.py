"""An HTTP server for files, with configurable faults."""

from __future__ import annotations

import ipaddress
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Request:
    """A received request."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass
class Fault:
    """A fault of responses for a file.

    Attributes:
        status: HTTP status to send instead of the file; 0 sends the file.
        headers: additional response headers.
        cut: number of body bytes after which the connection closes; None sends all.
        silent: seconds before the first byte of the body.
        pause: seconds between parts of the body.
        times: number of requests that have this fault.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    silent: float = 0.0
    pause: float = 0.0
    times: int = 1


@dataclass
class Files:
    """The files of a server, and the received requests.

    Attributes:
        content: files by path, such as /a.tar.gz; PUT adds to them.
        faults: faults by path.
        requests: received requests, in order.
        port: port of the server on 127.0.0.1.
        scheme: http or https.
    """

    content: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, Fault] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    port: int = 0
    scheme: str = "http"

    @property
    def url(self) -> str:
        """The server's URL."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def paths(self) -> list[str]:
        """Return the paths of the received requests."""
        return [request.path for request in self.requests]


def certificate(file: Path) -> Path:
    """Write a key and its self-signed certificate for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    now = datetime.now(timezone.utc)
    signed_certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private_key = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private_key + signed_certificate.public_bytes(pem))
    return file


@contextmanager
def serving(files: Files, tls: Path | None = None) -> Iterator[Files]:
    """Serve files until the block ends; over https if `tls` is a key and certificate."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

        def do_GET(self) -> None:
            fault, content = self.take_fault(), files.content.get(unquote(self.path))
            if fault.status or content is None:
                self.respond(fault.status or 404, fault, b"")
            else:
                self.respond(200, fault, content)

        def do_CONNECT(self) -> None:
            self.respond(403, self.take_fault(), b"")

        def do_PUT(self) -> None:
            fault = self.take_fault()
            data = self.rfile.read(int(self.headers["Content-Length"]))
            if not fault.status:
                files.content[self.path] = data
            self.respond(fault.status or 201, fault, b"")

        def take_fault(self) -> Fault:
            files.requests.append(Request(self.command, self.path, dict(self.headers)))
            fault = files.faults.get(self.path)
            if fault is None or fault.times == 0:
                return Fault()
            fault.times -= 1
            return fault

        def respond(self, status: int, fault: Fault, body: bytes) -> None:
            self.send_response(status)
            for name, value in {**fault.headers, "Content-Length": str(len(body))}.items():
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
        # A handler that still waits must not block the end of a test.
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: object, client_address: object) -> None:
            """Log nothing: tests include clients that close the connection."""

    server = Server(("127.0.0.1", 0), Handler)
    files.port = server.server_address[1]
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        files.scheme = "https"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield files
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
