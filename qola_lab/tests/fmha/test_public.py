"""The public names of qola.fmha, and the library paths that a built program prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from qola_lab import fmha


@pytest.mark.parametrize("name", fmha.__all__)
def test_every_public_name_exists(name: str) -> None:
    """Prevents: a documented name that cannot be imported."""
    assert getattr(fmha, name) is not None


def test_other_names_are_refused() -> None:
    """Prevents: a misspelt name that is imported as a module."""
    with pytest.raises(AttributeError, match="nothing"):
        fmha.nothing  # noqa: B018


#: Blocks packages that were installed for another Python.
_WITHOUT = """\
import sys
for name in ("msgpack", "numpy", "tinygrad"):
    sys.modules[name] = None
from qola_lab.fmha.__main__ import main
sys.exit(main())
"""


def test_any_python_can_print_the_paths() -> None:
    """Prevents: libraries that a user's Python cannot find, because Bazel uses another Python."""
    module = ("--module", "libmha_fwd", "/of/a.so", "/of/caller.so", "/repository/plan.json")
    command = [sys.executable, "-c", _WITHOUT, "--runtime", "/hip.so", *module, "--places"]
    environ = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    output = subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE).stdout
    assert json.loads(output) == {
        "libmha_fwd": {
            "repository": "/repository",
            "library": "/of/a.so",
            "caller": "/of/caller.so",
            "runtime": "/hip.so",
        }
    }
