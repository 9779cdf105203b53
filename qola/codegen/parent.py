"""Prepares the process of a generator: it ends with qola, and cannot fill memory or disk."""

from __future__ import annotations

import fcntl
import os
import resource
import select
import stat

#: Bytes of memory, and of a file; the generators of the 0.1.7 wheels take 0.7 GB and 60 MB.
_MEMORY, _FILE = 8 << 30, 1 << 30


def prepare_generator() -> None:
    """Bind this process group, which `run_group` has started, to the parent and to limits."""
    for kind, most in ((resource.RLIMIT_DATA, _MEMORY), (resource.RLIMIT_FSIZE, _FILE)):
        _, hard = resource.getrlimit(kind)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (bound, hard))
    _end_with_parent()


def _end_with_parent() -> None:
    """Have this process group end when the parent does, by SIGKILL too.

    The system signals the group once nobody can write to its standard input any more. Programs
    read nothing there from now on.
    """
    if not stat.S_ISFIFO(os.fstat(0).st_mode):
        return
    parent = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    fcntl.fcntl(parent, fcntl.F_SETOWN, -os.getpgrp())
    flags = fcntl.fcntl(parent, fcntl.F_GETFL)
    fcntl.fcntl(parent, fcntl.F_SETFL, flags | os.O_ASYNC)
    if select.select([parent], [], [], 0)[0]:  # it has ended already
        os._exit(1)
