"""Packs torch modules as a Python wheel for one version of PyTorch and of Python."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from qola.bundle import licenses
from qola.bundle.python_wheel import pack_wheel, parse_wheel_name
from qola_base.errors import BundleError, Finding

_INIT = '''\
"""Modules of AITER for PyTorch {torch}, built by qola."""

# Modules are linked with its libraries, which it loads.
import torch  # noqa: F401

__version__ = {version!r}
'''


@dataclass(frozen=True)
class TorchWheel:
    """All inputs of a wheel of torch modules.

    Attributes:
        modules, stubs: paths of the libraries and of their type stubs.
        torch, python: required versions.
        license_files: license texts of the AITER tree.
        external_libraries: see `qola.bundle.platform_policy.check_platform`.
    """

    modules: tuple[str, ...]
    stubs: tuple[str, ...]
    torch: str
    python: str
    license_files: tuple[str, ...]
    qola_license: str
    external_libraries: tuple[str, ...]


def write_torch_wheel(inputs: TorchWheel, output: Path) -> None:
    """Write torch modules, and the type stubs of each, as a package of a wheel.

    Raises:
        BundleError: a license is missing, two modules have the same name, or as `pack_wheel`.
    """
    _, version, _ = parse_wheel_name(output.name)
    texts = {"__init__.py": _INIT.format(torch=inputs.torch, version=version), "py.typed": ""}
    found = licenses.collect(inputs.license_files, inputs.qola_license, place=output.name)
    texts |= {license.path: license.text for license in found.values()}
    metadata = (
        f"Summary: Modules of AITER for PyTorch {inputs.torch}, built by qola",
        f"Requires-Python: =={inputs.python}.*",
        f"Requires-Dist: torch=={inputs.torch}",
    )
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for file in (*inputs.modules, *inputs.stubs):
            place = directory / Path(file).name
            if place.is_symlink():
                same = f"{place.readlink()} and {file}"
                raise BundleError(Finding(place.name, same, "modules with different names"))
            place.symlink_to(Path(file).absolute())
        modules = "".join(f"- {Path(file).name}\n" for file in inputs.modules)
        description = f"Modules that Python imports, for PyTorch {inputs.torch}:\n\n{modules}"
        pack_wheel(directory, output, texts, metadata, inputs.external_libraries, description)
