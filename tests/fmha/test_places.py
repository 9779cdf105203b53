"""Where the program of libraries says that they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys

#: What packages for another Python come to.
_WITHOUT = """\
import sys
for name in ("msgpack", "numpy", "tinygrad"):
    sys.modules[name] = None
from qola.fmha.__main__ import main
sys.exit(main())
"""


def test_any_python_tells_places() -> None:
    """Prevents: libraries that a user's Python cannot find, since Bazel's Python is another."""
    module = ("--module", "libmha_fwd", "/of/a.so", "/of/caller.so", "/repository/plan.json")
    command = [sys.executable, "-c", _WITHOUT, "--runtime", "/hip.so", *module, "--places"]
    environ = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    said = subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE).stdout
    assert json.loads(said) == {
        "libmha_fwd": {
            "repository": "/repository",
            "library": "/of/a.so",
            "caller": "/of/caller.so",
            "runtime": "/hip.so",
        }
    }
