"""Lets a generator's process group end with qola."""

from __future__ import annotations

import fcntl
import os
import select
import stat


def end_with_parent() -> None:
    """Have this process group end where the parent ends before it, by SIGKILL too.

    For a program that `run_group` starts: the system signals the group once nobody can write to
    its standard input any more. It reads nothing there from now on.
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
