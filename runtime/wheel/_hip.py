"""Loads a library and HIP's runtime. Without a runtime, the error lists the searched places."""

from __future__ import annotations

import ctypes
import os
import re
from importlib.util import find_spec
from pathlib import Path

#: Directories of site-packages in which pip installs HIP's runtime, below lib/: that of AMD's wheel
#: rocm-sdk-core, and rocm. RUNPATH of the libraries names them, too (rules/private/link.bzl).
PIP_PACKAGES = ("_rocm_sdk_core", "rocm")
_MISSING = re.compile(r"(libamdhip64\.so\.\d+): cannot open shared object file")


def load_library(library: Path) -> ctypes.CDLL:
    """Load a library, and HIP's runtime first if the dynamic linker does not find it.

    Raises:
        RuntimeError: the library, or the runtime, cannot be loaded.
    """
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        missing = _MISSING.match(str(error))
        if not missing:
            raise RuntimeError(f"{library}: {error}") from error
    directory = library.parent
    runpath = [
        (up / package / "lib", "RUNPATH")
        for package in PIP_PACKAGES
        for up in (directory.parent, directory.parent.parent)
    ]
    load_runtime(missing[1], runpath, f"{library}: ")
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise RuntimeError(f"{library}: {error}") from error


def load_runtime(soname: str, runpath: list[tuple[Path, str]], subject: str) -> ctypes.CDLL:
    """Load HIP's runtime: as the dynamic linker finds it, of this Python's packages, or of ROCm.

    Args:
        soname: such as libamdhip64.so.7.
        runpath: directories that a library's RUNPATH names, for the error.
        subject: the beginning of the error.

    Raises:
        RuntimeError: no directory has the runtime, or it cannot be loaded.
    """
    try:
        return ctypes.CDLL(soname)
    except OSError as error:
        found = str(error)
    further = _further_places()
    if not found.startswith(f"{soname}: cannot open"):
        # It was found, and one of its own libraries was not.
        further = []
    for directory, _ in further:
        if (directory / soname).is_file():
            try:
                return ctypes.CDLL(str(directory / soname))
            except OSError as error:
                found = str(error)
                break
    named = os.environ.get("LD_LIBRARY_PATH", "")
    places = [(Path(name), "LD_LIBRARY_PATH") for name in re.split("[:;]", named) if name]
    places += [*runpath, *further]
    lines = [f"  {directory} ({why}){_others(directory, soname)}" for directory, why in places]
    raise RuntimeError(
        "\n".join(
            [
                f"{subject}HIP's runtime {soname} was not loaded: {found}. Searched:",
                *dict.fromkeys(lines),
                "  the system's directories (ldconfig -p)",
                "Install ROCm with this file, or AMD's wheel rocm-sdk-core for this Python; or set "
                "ROCM_PATH to its ROCm, or add its directory to LD_LIBRARY_PATH, before Python "
                "starts.",
            ]
        )
    )


def _further_places() -> list[tuple[Path, str]]:
    """Return directories that the dynamic linker may not know."""
    places = []
    for package in PIP_PACKAGES:
        spec = find_spec(package)
        directories = (spec and spec.submodule_search_locations) or ()
        places += [(Path(one) / "lib", f"package {package}") for one in directories]
    rocm = os.environ.get("ROCM_PATH")
    if rocm:
        places.append((Path(rocm) / "lib", "ROCM_PATH"))
    places.append((Path("/opt/rocm/lib"), "ROCm's default"))
    return places


def _others(directory: Path, soname: str) -> str:
    """Return ": has <file>" of the other versions of the runtime in a directory."""
    pattern = re.compile(r"libamdhip64\.so(\.\d+)?$")
    try:
        names = sorted(name for name in os.listdir(directory) if pattern.match(name))
    except OSError:
        return ""
    other = [name for name in names if name != soname]
    return f": has {', '.join(other)}" if other else ""
