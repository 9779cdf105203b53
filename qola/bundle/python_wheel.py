"""Packs a bundle as a Python wheel, so that pip installs the libraries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from zipfile import ZIP_STORED, ZipInfo

from packaging.utils import canonicalize_name, parse_wheel_filename
from wheel.wheelfile import WheelFile

from qola.bundle.archive import is_executable
from qola.bundle.elf_versions import read_needs, system_floor
from qola.bundle.platform_policy import check_platform
from qola.errors import BundleError, Finding
from qola.files import writing
from qola.layout import CONFIGS, RECORD
from qola.version import __version__

_INIT = '''\
"""Libraries of AMD GPU attention kernels, a bundle of qola: see manifest.json beside this file."""

from pathlib import Path

__version__ = {version!r}


def path() -> Path:
    """Return the bundle's directory, which has lib/, include/ and manifest.json."""
    return Path(__file__).resolve().parent
'''
_MAIN = '''\
"""python -m {package} --path: prints the bundle's directory, for builds that link its libraries."""

import argparse

from {package} import __version__, path

parser = argparse.ArgumentParser(prog="python -m {package}", description=__doc__)
places = parser.add_mutually_exclusive_group()
for name, where in (("path", "the directory (default)"), ("lib", "lib"), ("include", "include")):
    places.add_argument(
        f"--{{name}}", action="store_const", const=name, dest="place", help=f"print {{where}}"
    )
parser.add_argument("--version", action="version", version=__version__)
place = parser.parse_args().place
print(path() / place if place in ("lib", "include") else path())
'''
_METADATA = """\
Metadata-Version: 2.1
Name: {name}
Version: {version}
License: MIT
{more}Description-Content-Type: text/plain

{description}"""
_PYTHON = "Requires-Python: >=3.8"
_WHEEL = """\
Wheel-Version: 1.0
Generator: qola {qola}
Root-Is-Purelib: false
Tag: {tag}
"""
_SUMMARY = "AMD GPU attention kernels as libraries, built by qola"
_DESCRIPTION = """\
Libraries of AMD GPU kernels, built by qola from AITER {aiter}:

{libraries}
`python -m {package} --path` prints their directory, which also has headers, CMake and pkg-config
files, licenses and an SBOM. manifest.json there says what each library was made of.
"""
#: Python modules of in_wheel/ in the package, verbatim.
_MODULES = ("_c.py", "_operators.py", "torch.py")
EPOCH = 315532800
"""A zip file's earliest time, 1980-01-01, in Unix seconds. All files of a wheel have it, so that
its bytes depend only on contents: callers of `write_wheel` set SOURCE_DATE_EPOCH to it."""

_TIME = (1980, 1, 1, 0, 0, 0)


def write_wheel(directory: Path, output: Path, external_libraries: Iterable[str] = ()) -> None:
    """Write a bundle's directory as a wheel, qola_te-1.2.3-py3-none-linux_x86_64.whl.

    Files are stored uncompressed, because deflate's bytes depend on the version of zlib. The system
    requirements of the files are checked against the platform, and recorded as Requires-External in
    METADATA, which pip ignores. Symlinks are followed. AITER's tuning tables are omitted: only
    AITER's Python reads them, for GEMMs and MoE.

    Raises:
        BundleError: the name is not a wheel's name, or as check_platform.
    """
    package, version, _ = parse_wheel_name(output.name)
    texts = {
        "__init__.py": _INIT.format(version=version),
        "__main__.py": _MAIN.format(package=package),
    }
    modules = Path(__file__).with_name("in_wheel")
    for name in _MODULES:
        texts[name] = (modules / name).read_text(encoding="utf-8")
    description = _describe(directory / RECORD, package)
    metadata = (f"Summary: {_SUMMARY}", _PYTHON)
    pack_wheel(directory, output, texts, metadata, external_libraries, description, (CONFIGS,))


def _describe(record: Path, package: str) -> str:
    """Return the description of a wheel: its libraries and their location."""
    bundle = json.loads(record.read_text(encoding="utf-8"))
    libraries = [
        f"- {module['library']} ({module['name']}), for {', '.join(bundle['archs'])}\n"
        for module in bundle["modules"]
    ]
    return _DESCRIPTION.format(
        aiter=bundle["inputs"]["aiter"]["id"], libraries="".join(libraries), package=package
    )


def pack_wheel(
    directory: Path,
    output: Path,
    texts: Mapping[str, str],
    metadata: Iterable[str],
    external_libraries: Iterable[str],
    description: str,
    omitted: tuple[str, ...] = (),
) -> None:
    """Write a package of files and texts as a wheel.

    Args:
        texts: further files of the package, in addition to those of `directory`.
        metadata: lines of METADATA that differ between wheels.
        omitted: directories of `directory` that the package omits.

    Raises:
        BundleError: as `write_wheel`.
    """
    package, version, tag = parse_wheel_name(output.name)
    needs = read_needs(directory)
    check_platform(needs, tag.rsplit("-", 1)[-1], external_libraries)
    external = (f"Requires-External: {line}" for line in system_floor(needs))
    info = f"{package}-{version}.dist-info"
    texts = {f"{package}/{name}": text for name, text in texts.items()}
    texts[f"{info}/METADATA"] = _METADATA.format(
        name=canonicalize_name(package),
        version=version,
        more="".join(f"{line}\n" for line in (*metadata, *external)),
        description=description,
    )
    texts[f"{info}/WHEEL"] = _WHEEL.format(qola=__version__, tag=tag)
    with writing(output), WheelFile(str(output), "w", ZIP_STORED) as wheel:
        for name, path in _files(directory):
            if not name.startswith(tuple(f"{folder}/" for folder in omitted)):
                wheel.writestr(_entry(f"{package}/{name}"), path.read_bytes())
        for name, text in texts.items():
            wheel.writestr(_entry(name), text)


def parse_wheel_name(name: str) -> tuple[str, str, str]:
    """Parse a wheel's name into package, version and tag; raise BundleError if it is invalid."""
    try:
        parse_wheel_filename(name)
        package, version, tag = name.removesuffix(".whl").split("-", 2)
    except ValueError as error:
        raise BundleError(
            Finding(
                name,
                str(error),
                "a wheel's name, such as qola_te-1.2.3-py3-none-linux_x86_64.whl: a package with "
                "small letters, digits and _, and a version in Python's form",
                "set package and version of the qola_wheel",
            )
        ) from None
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", package):
        raise BundleError(
            Finding(name, f'the package "{package}"', "small letters, digits and _: qola_te")
        )
    return package, version, tag


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            yield path.relative_to(directory).as_posix(), path


def _entry(name: str) -> ZipInfo:
    entry = ZipInfo(name, date_time=_TIME)
    entry.external_attr = (0o100755 if is_executable(name) else 0o100644) << 16
    entry.compress_type = ZIP_STORED
    return entry
