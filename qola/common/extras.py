"""The Python packages of each extra of qola, and the error if one of them is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec

from qola_base.errors import Finding, QolaError

_REPORT = {"elftools": "pyelftools", "msgpack": "msgpack", "zstandard": "zstandard"}
_TINYGRAD = {"tinygrad": "tinygrad"} if sys.version_info >= (3, 11) else {}

EXTRAS: Mapping[str, Mapping[str, str]] = {
    "report": _REPORT,
    "generators": {"jinja2": "jinja2", "packaging": "packaging", "pandas": "pandas"},
    "verify": {**_REPORT, "numpy": "numpy", **_TINYGRAD},
}
"""By extra of pyproject.toml: its packages by the names of their modules."""


class MissingPackagesError(QolaError, title="Python packages are missing"):
    """A command needs the packages of an extra, and not all are installed."""


@contextmanager
def needs(extra: str, command: str) -> Iterator[None]:
    """Turn a failed import of one of an extra's packages into an error that names all missing ones.

    Args:
        command: the command that needs the extra.

    Raises:
        MissingPackagesError: an import failed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in EXTRAS[extra]:
            raise
        raise missing_packages(extra, command) from None


def missing_packages(extra: str, place: str) -> MissingPackagesError:
    """Return the error of a place that needs an extra whose packages are not all installed."""
    packages = EXTRAS[extra]
    missing = [name for module, name in packages.items() if find_spec(module) is None]
    # Otherwise a package that one of them requires is missing.
    missing = missing or [*packages.values()]
    fix = f"{sys.executable} -m pip install {' '.join(missing)}"
    return MissingPackagesError(
        Finding(
            place,
            f"no package {' and no package '.join(missing)}",
            f"the Python packages of the extra {extra}, qola[{extra}]",
            fix,
        )
    )
