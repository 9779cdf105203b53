"""Packs a bundle, or torch modules, as a Python wheel, so that pip installs the libraries."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipInfo

from packaging.utils import canonicalize_name, parse_wheel_filename
from wheel.wheelfile import WheelFile

from qola.bundle import licenses
from qola.bundle.archive import HOST, has_file, is_executable, part_of
from qola.bundle.elf_versions import read_needs, system_floor
from qola.bundle.platform_policy import check_platform
from qola.common.layout import CONFIGS, RECORD, SBOM
from qola.common.packages import ROOT
from qola.common.version import __version__
from qola_base.errors import BundleError, Finding
from qola_base.files import writing
from qola_base.runpath import show_runpath

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
_AITER_INIT = '''\
"""Modules that AITER's own Python imports, a bundle of qola: see manifest.json beside this file.

Python runs {package}.pth when it starts: `import aiter` then finds the modules.
"""

__version__ = {version!r}
'''
_AITER_MAIN = '''\
"""python -m {package}: lists and checks the modules."""

import sys

from {package}.aiter_modules import main

sys.exit(main())
'''
#: Python executes the lines of .pth files that begin with import.
_PTH = "import sys; from {package}.aiter_modules import Hook; sys.meta_path.insert(0, Hook())\n"
_AITER_SUMMARY = "Modules of AITER, built by qola: AITER's Python imports them and compiles none"
_AITER_DESCRIPTION = """\
Modules of AITER {aiter} for PyTorch {torch}, built by qola:

{libraries}
`import aiter` finds them. `python -m {package}` lists them, `python -m {package} check` compares
PyTorch, AITER and the GPUs with those that they are for.
"""
_TORCH_INIT = '''\
"""Modules of AITER for PyTorch {torch}, built by qola."""

# Modules are linked with its libraries, which it loads.
import torch  # noqa: F401

__version__ = {version!r}
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
_PARTS = """
The libraries have no device code inside: install the wheel of the GPU's arch, too. Wheels:
{names}. `pip install {example}` installs both.
"""
_ARCH_DESCRIPTION = """\
Device code for {arch} of the libraries in {host}, which this wheel installs next to them.
"""
#: Python modules of runtime/wheel/ in the package, verbatim.
_MODULES = ("_c.py", "_hip.py", "_operators.py", "torch.py")
_JAX_MODULE = "jax.py"
#: Its handlers of XLA's FFI.
_JAX_LIBRARY = "qola_jax.so"
EPOCH = 315532800
"""A zip file's earliest time, 1980-01-01, in Unix seconds. All files of a wheel have it, so that
its bytes depend only on contents: callers of `write_wheel` set SOURCE_DATE_EPOCH to it."""

_TIME = (1980, 1, 1, 0, 0, 0)


def write_wheel(
    directory: Path,
    output: Path,
    external_libraries: Iterable[str] = (),
    part: str = "",
    jax: Path | None = None,
) -> None:
    """Write a bundle's directory as a wheel, qola_te-1.2.3-py3-none-linux_x86_64.whl.

    `part` selects a part of a split bundle: HOST, or an arch, whose wheel is named
    qola_te_gfx950-... and adds its packs to the package of the host part.

    `jax` is the library of runtime/jax, with which the package has a module jax.

    Files are stored uncompressed, because deflate's bytes depend on the version of zlib. The system
    requirements of the files are checked against the platform, and recorded as Requires-External in
    METADATA, which pip ignores. Symlinks are followed. AITER's tuning tables are omitted: only
    AITER's Python reads them, for GEMMs and MoE.

    Raises:
        BundleError: the name is not a wheel's name, or as check_platform.
    """
    package, version, _ = parse_wheel_name(output.name)
    bundle = json.loads((directory / RECORD).read_text(encoding="utf-8"))
    if "aiter_jit" in bundle and jax:
        expected = "a bundle of attention libraries with C functions"
        raise BundleError(
            Finding(output.name, "jax with modules of AITER's own Python", expected, "remove jax")
        )
    if "aiter_jit" in bundle:
        _write_aiter_wheel(directory, output, bundle, external_libraries)
        return
    if part not in ("", HOST):
        _write_arch_wheel(directory, output, part)
        return
    texts = {
        "__init__.py": _INIT.format(version=version),
        "__main__.py": _MAIN.format(package=package),
    }
    modules = ROOT / "runtime/wheel"
    for name in (*_MODULES, _JAX_MODULE) if jax else _MODULES:
        texts[name] = (modules / name).read_text(encoding="utf-8")
    description = _describe(bundle, package)
    metadata = [f"Summary: {_SUMMARY}", _PYTHON]
    if part:
        archs = sorted({part_of(name) for name, _ in _files(directory)} - {HOST})
        for arch in archs:
            name = canonicalize_name(f"{package}-{arch}")
            metadata.append(f"Provides-Extra: {arch}")
            metadata.append(f"Requires-Dist: {name}=={version}; extra == '{arch}'")
        description += _PARTS.format(
            names=", ".join(canonicalize_name(f"{package}-{arch}") for arch in archs),
            example=f"{canonicalize_name(package)}[{archs[0]}]=={version}",
        )

    def keep(name: str) -> bool:
        return not name.startswith(f"{CONFIGS}/") and has_file(part, name)

    more = {_JAX_LIBRARY: jax} if jax else {}
    _pack_wheel(
        directory, output, texts, metadata, external_libraries, description, keep, libraries=more
    )


def _write_arch_wheel(directory: Path, output: Path, arch: str) -> None:
    """Write the wheel of an arch, without a package of its own: pip removes what it installs."""
    name, version, _ = parse_wheel_name(output.name)
    package = name.removesuffix(f"_{arch}")
    if package == name:
        expected = f"a package whose name ends in _{arch}"
        raise BundleError(Finding(output.name, f'the package "{name}"', expected))
    host = canonicalize_name(package)
    info = f"{name}-{version}.dist-info"
    metadata = (
        f"Summary: {_SUMMARY}: device code for {arch}",
        _PYTHON,
        f"Requires-Dist: {host}=={version}",
    )
    files = {}
    for path, file in _files(directory):
        if has_file(arch, path):
            is_license = path.startswith("licenses/")
            files[f"{info}/{path}" if is_license else f"{package}/{path}"] = file
    description = _ARCH_DESCRIPTION.format(host=host, arch=arch)
    _write(output, files, _info_texts(output.name, metadata, description))


def _write_aiter_wheel(
    directory: Path, output: Path, bundle: Mapping[str, Any], external_libraries: Iterable[str]
) -> None:
    """Write a bundle of modules for AITER's Python as a wheel for one Python and PyTorch."""
    package, version, _ = parse_wheel_name(output.name)
    built = bundle["aiter_jit"]
    texts = {
        "__init__.py": _AITER_INIT.format(package=package, version=version),
        "__main__.py": _AITER_MAIN.format(package=package),
    }
    metadata = (
        f"Summary: {_AITER_SUMMARY}",
        f"Requires-Python: =={built['python']}.*",
        f"Requires-Dist: torch=={built['torch']}",
    )
    pth = {f"{package}.pth": _PTH.format(package=package)}
    description = _describe(bundle, package, _AITER_DESCRIPTION)
    more = (metadata, external_libraries, description)
    _pack_wheel(directory, output, texts, *more, beside=pth)


def _describe(bundle: Mapping[str, Any], package: str, text: str = _DESCRIPTION) -> str:
    """Return the description of a wheel: its libraries and their location."""
    libraries = [
        f"- {module['library']} ({module['name']}), for {', '.join(bundle['archs'])}\n"
        for module in bundle["modules"]
    ]
    return text.format(
        aiter=bundle["inputs"]["aiter"]["id"],
        libraries="".join(libraries),
        package=package,
        torch=bundle.get("aiter_jit", {}).get("torch"),
    )


@dataclass(frozen=True)
class TorchWheel:
    """All inputs of a wheel of torch modules.

    Attributes:
        modules, stubs: paths of the libraries and of their type stubs.
        torch, python: required versions.
        license_files: license texts of the AITER tree.
        external_libraries: see `check_platform`.
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
        BundleError: a license is missing, two modules have the same name, or as `write_wheel`.
    """
    _, version, _ = parse_wheel_name(output.name)
    texts = {"__init__.py": _TORCH_INIT.format(torch=inputs.torch, version=version), "py.typed": ""}
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
        _pack_wheel(directory, output, texts, metadata, inputs.external_libraries, description)


def _pack_wheel(
    directory: Path,
    output: Path,
    texts: Mapping[str, str],
    metadata: Iterable[str],
    external_libraries: Iterable[str],
    description: str,
    keep: Callable[[str], bool] = lambda _name: True,
    beside: Mapping[str, str] | None = None,
    libraries: Mapping[str, Path] | None = None,
) -> None:
    """Write a package of files and texts as a wheel.

    Args:
        texts: further files of the package, in addition to those of `directory`.
        metadata: lines of METADATA that differ between wheels.
        keep: whether the package has a file of `directory`, by path.
        beside: files next to the package.
        libraries: further files of the package by path, which the checks include.

    Raises:
        BundleError: as `write_wheel`.
    """
    package, _, tag = parse_wheel_name(output.name)
    needs = read_needs(directory, libraries)
    check_platform(needs, tag.rsplit("-", 1)[-1], external_libraries)
    external = (f"Requires-External: {line}" for line in system_floor(needs))
    texts = {f"{package}/{name}": text for name, text in texts.items()}
    texts |= {**(beside or {}), **_info_texts(output.name, (*metadata, *external), description)}
    files = {f"{package}/{name}": path for name, path in _files(directory) if keep(name)}
    files |= {f"{package}/{name}": path for name, path in (libraries or {}).items()}
    _write(output, files, texts)


def _write(output: Path, files: Mapping[str, Path], texts: Mapping[str, str]) -> None:
    """Write a wheel of files and texts by path."""
    # The digests of libraries that differ from those of the bundle.
    digests: dict[bytes, bytes] = {}
    with writing(output), WheelFile(str(output), "w", ZIP_STORED) as wheel:
        # manifest.json and the SBOM come last.
        for name, path in sorted(files.items(), key=lambda file: file[0].endswith(".json")):
            content = path.read_bytes()
            if path.suffix == ".so" and (shown := show_runpath(content)) != content:
                for algorithm in ("sha1", "sha256"):
                    old, new = (_digest(algorithm, text) for text in (content, shown))
                    digests[old] = new
                content = shown
            for old, new in digests.items() if path.name in (RECORD, SBOM) else ():
                content = content.replace(old, new)
            wheel.writestr(_entry(name), content)
        for name, text in texts.items():
            wheel.writestr(_entry(name), text)


def _digest(algorithm: str, content: bytes) -> bytes:
    digest = hashlib.new(algorithm, content, usedforsecurity=False)
    return digest.hexdigest().encode()


def _info_texts(name: str, metadata: Iterable[str], description: str) -> dict[str, str]:
    """Return METADATA and WHEEL of a wheel by path."""
    package, version, tag = parse_wheel_name(name)
    info = f"{package}-{version}.dist-info"
    return {
        f"{info}/METADATA": _METADATA.format(
            name=canonicalize_name(package),
            version=version,
            more="".join(f"{line}\n" for line in metadata),
            description=description,
        ),
        f"{info}/WHEEL": _WHEEL.format(qola=__version__, tag=tag),
    }


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
