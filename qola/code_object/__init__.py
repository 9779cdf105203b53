"""Code objects: ELF files with GPU kernels, and the offload bundles in which libraries hold them.

in: bytes from libraries that others built; out: kernels with descriptors, arguments and resources.
"""

import sys
from importlib.util import find_spec

from qola.errors import Finding, QolaError

_PACKAGES = {"elftools": "pyelftools", "msgpack": "msgpack"}

if missing := [package for module, package in _PACKAGES.items() if find_spec(module) is None]:
    raise QolaError(
        Finding(
            sys.executable,
            f"no package {' and no package '.join(missing)}",
            "the Python packages that read code objects",
            f"{sys.executable} -m pip install {' '.join(missing)}",
        ),
        "Python packages are missing",
    )
