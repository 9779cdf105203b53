"""One deadline for a whole HTTP request, which a server cannot extend by sending single bytes.

A socket's timeout restarts with each byte. http.client reads status lines, headers, "100
Continue", chunk sizes and trailers through one file object, so each read of that file gets the
remaining time as its timeout.
"""

from __future__ import annotations

import io
import socket
import time
from contextvars import ContextVar
from http.client import HTTPResponse
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

SLOWEST = 1000
"""Bytes of content per second that extend a deadline; slower transfers are aborted."""


class Deadline:
    """The time at which a request is aborted; received content extends it."""

    def __init__(self, patience: float) -> None:
        """Start a request with `patience` seconds in addition to the time for its content."""
        self._started = time.monotonic()
        self._patience = patience
        self._moved = 0

    def move(self, count: int) -> None:
        """Extend the deadline for `count` transferred bytes of content."""
        self._moved += count

    @property
    def left(self) -> float:
        """Remaining seconds; 0 or less after the deadline."""
        return self._started + self._patience + self._moved / SLOWEST - time.monotonic()

    def __str__(self) -> str:
        return f"{self._moved} bytes in {time.monotonic() - self._started:.0f} s"


#: The deadline of the current request. urllib3 creates connections and passes them no arguments.
current: ContextVar[Deadline] = ContextVar("current")


class _Reader(io.RawIOBase):
    """Reads a socket until the deadline."""

    def __init__(self, sock: socket.socket, file: io.RawIOBase) -> None:
        self._sock, self._file, self._timeout = sock, file, sock.gettimeout()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = current.get().left
        if left <= 0:
            raise TimeoutError("the request takes too long")
        self._sock.settimeout(left if self._timeout is None else min(self._timeout, left))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Response(HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_Reader(sock, self.fp.detach()))


class _Timed(HTTPConnection):
    response_class = _Response

    def send(self, data: Any) -> None:
        # Python limits the total time of each of these calls.
        super().send(data)
        current.get().move(len(data))


class _TimedTls(_Timed, HTTPSConnection):
    pass


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Timed


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TimedTls


POOLS = {"http": _Pool, "https": _SecurePool}
"""Connection pools by scheme whose connections obey the current deadline."""
