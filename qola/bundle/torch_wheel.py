"""Packs torch modules as a Python wheel, for the PyTorch and the Python they were built for."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from qola.bundle import licenses
from qola.bundle.python_wheel import pack_wheel, parts_of
from qola.errors import BundleError, Finding

_INIT = '''\
"""Modules of AITER for PyTorch {torch}, built by qola."""

# Modules are linked with its libraries, which it loads.
import torch  # noqa: F401

__version__ = {version!r}
'''


@dataclass(frozen=True)
class TorchWheel:
    """What a wheel of torch modules is made of.

    Attributes:
        modules: the libraries.
        stubs: their type stubs.
        torch: version of the PyTorch that they are for.
        python: version of the Python that they are for, 3.11.
        license_files: license texts of the AITER tree.
        external_libraries: as of `qola.bundle.platform_policy.check_platform`.
    """

    modules: tuple[str, ...]
    stubs: tuple[str, ...]
    torch: str
    python: str
    license_files: tuple[str, ...]
    qola_license: str
    external_libraries: tuple[str, ...]

    @staticmethod
    def from_json(text: str) -> TorchWheel:
        """Read what a rule writes."""
        data = json.loads(text)
        lists = ("modules", "stubs", "license_files", "external_libraries")
        return TorchWheel(**{**data, **{key: tuple(data[key]) for key in lists}})


def write_torch_wheel(inputs: TorchWheel, output: Path) -> None:
    """Write torch modules, and the type stubs of each, as a package of a wheel.

    Args:
        output: the file to write: qola_te_torch-1.2.3-cp311-cp311-linux_x86_64.whl.

    Raises:
        BundleError: a license is missing, two modules have one name, or as
            `qola.bundle.python_wheel.write_wheel`.
    """
    _, version, _ = parts_of(output.name)
    texts = {"__init__.py": _INIT.format(torch=inputs.torch, version=version), "py.typed": ""}
    found = licenses.collect(
        [
            *((licenses.component_of(file), _text(file)) for file in inputs.license_files),
            ("qola", _text(inputs.qola_license)),
        ],
        place=output.name,
    )
    texts |= {license.path: license.text for license in found.values()}
    metadata = (
        f"Summary: Modules of AITER for PyTorch {inputs.torch}, built by qola",
        f"Requires-Python: =={inputs.python}.*",
        f"Requires-Dist: torch=={inputs.torch}",
    )
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for file in (*inputs.modules, *inputs.stubs):
            _link(directory / Path(file).name, file)
        modules = "".join(f"- {Path(file).name}\n" for file in inputs.modules)
        description = f"Modules that Python imports, for PyTorch {inputs.torch}:\n\n{modules}"
        pack_wheel(directory, output, texts, metadata, inputs.external_libraries, description)


def _link(place: Path, file: str) -> None:
    if place.is_symlink():
        raise BundleError(
            Finding(place.name, f"{place.readlink()} and {file}", "modules of different names")
        )
    place.symlink_to(Path(file).absolute())


def _text(file: str) -> str:
    return Path(file).read_text(encoding="utf-8")
