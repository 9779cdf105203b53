"""Finds the AITER tree that the command line works on."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

from qola.errors import AiterError, Finding

RUNFILE = "aiter/AITER.json"
"""The file that stands for the default tree among the runfiles of //:qola."""


def find_tree(explicit: Path | None, environ: Mapping[str, str]) -> Path:
    """Return the tree to use: the one that is named, else the one Bazel fetched for //:qola.

    Raises:
        AiterError: none is named and Bazel gave none.
    """
    if explicit is not None:
        return explicit
    default = runfile_tree(environ)
    if default is None:
        raise AiterError(
            Finding(
                "the command line",
                "no AITER source tree",
                "an AITER checkout with its submodules, or an unpacked amd-aiter wheel",
                "--aiter-root DIR names it; ./bazelw run //:qola -- ... has a default one",
            )
        )
    return default


def runfile_tree(environ: Mapping[str, str]) -> Path | None:
    """Return the tree among the runfiles, None for a Python that Bazel did not start."""
    try:
        # From @rules_python//python/runfiles; by name, since a plain checkout does not have it.
        library = importlib.import_module("python.runfiles.runfiles")
    except ImportError:
        return None
    runfiles = library.Create(dict(environ))
    location = runfiles.Rlocation(RUNFILE) if runfiles else None
    # The runfile is a link into the fetched repository; the tree is beside its target.
    return Path(location).resolve().parent if location and Path(location).is_file() else None
