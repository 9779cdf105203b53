"""One deadline for a whole HTTP request, which a server cannot move by sending a byte now and then.

A socket's timeout counts from its last byte. http.client reads status lines, headers, "100
Continue", chunk sizes and trailers through one file object, so each read of that file gets what is
left of the deadline as its timeout.
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
"""Bytes of content a second that move a deadline on: slower servers are given up."""


class Deadline:
    """The time by which a request must have ended; its content moves it on."""

    def __init__(self, patience: float) -> None:
        """Start a request that may take `patience` seconds, and longer for each byte of content."""
        self._started = time.monotonic()
        self._patience = patience
        self._moved = 0

    def move(self, count: int) -> None:
        """Note that `count` bytes of content were sent or received."""
        self._moved += count

    @property
    def left(self) -> float:
        """Seconds until the request must have ended, 0 or less if it should have."""
        return self._started + self._patience + self._moved / SLOWEST - time.monotonic()

    def __str__(self) -> str:
        return f"{self._moved} bytes in {time.monotonic() - self._started:.0f} s"


#: urllib3 makes connections by itself, and passes nothing on to them.
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
        # Python itself limits the time of each call as a whole: no reader can draw it out.
        super().send(data)
        current.get().move(len(data))


class _TimedTls(_Timed, HTTPSConnection):
    pass


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Timed


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TimedTls


POOLS = {"http": _Pool, "https": _SecurePool}
"""Pools by scheme whose connections end with the current deadline."""
