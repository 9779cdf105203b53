"""Keeps Python's byte code out of what generators do."""

from __future__ import annotations

import os
import sys


def ignore_bytecode() -> None:
    """Have this process, and those that it starts, compile what they import from now on.

    What `__pycache__` of an AITER tree has need not be made of the sources beside it, and is in no
    digest of the tree.
    """
    # Below what is no directory there is nothing to read or write.
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = os.devnull
