"""The library paths that the built program prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys

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
