"""Builds as CK's example/ck_tile/01_fmha/CMakeLists.txt does: generate.py, CMake and ninja."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from bench.ninja_build import TIMED, NinjaBuild
from bench.processes import Run
from bench.setting import place_flags
from bench.workload import ARCH, RECEIPT, Planned, check_same
from qola_base.files import sha256_of

PROJECT = Path(__file__).resolve().parent / "ck_cmake"


class CkCmake(NinjaBuild):
    """The build with CMake."""

    name = "cmake"

    def prepare(self, planned: Planned, *, more: bool) -> list[Run]:
        """Configure, and generate the sources."""
        patterns = self.patterns(more=more)
        self.directory.mkdir(parents=True, exist_ok=True)
        configured = self.run(self._configure(patterns))
        listed = [
            Path(line).name
            for api in patterns
            for line in (self.directory / f"{api}_blob_list.txt").read_text("utf-8").splitlines()
        ]
        generated = self.ninja(*listed)
        theirs = {name: sha256_of(self.directory / name) for name in listed}
        check_same(planned.digests(), theirs, "generate.py in CMake")
        return [configured, generated]

    def object(self, direction: str, kernel: str) -> str:
        """Return the path of a kernel's object."""
        return f"CMakeFiles/tile_fmha_{direction}_instances.dir/{kernel}.cpp.o"

    def library(self, direction: str) -> Path:
        """Return the path of a direction's library."""
        return self.directory / f"libfmha_{direction}.so"

    def _configure(self, filters: Mapping[str, str]) -> list[str]:
        places = " ".join(place_flags(self.setting.sdk))
        link = f"-fuse-ld=lld -L{self.setting.sdk / 'rocm/lib'} -lamdhip64"
        values = {
            "APIS": ";".join(filters),
            "CK_DIR": self.setting.ck,
            "CMAKE_CXX_COMPILER": self.setting.sdk / "bin/clang++",
            "CMAKE_CXX_COMPILER_LAUNCHER": TIMED,
            "CMAKE_CXX_FLAGS": places,
            "CMAKE_EXE_LINKER_FLAGS": link,
            "CMAKE_MAKE_PROGRAM": self.setting.tools / "ninja",
            "CMAKE_SHARED_LINKER_FLAGS": link,
            "GPU_TARGETS": ARCH,
            "OPTIONAL_FLAGS": "SHELL:" + " ".join(self.optional_flags),
            "PYTHON": sys.executable,
            "RECEIPT": RECEIPT,
            **{f"FILTER_{api}": pattern for api, pattern in filters.items()},
        }
        return [
            *(str(self.setting.tools / "cmake"), "-G", "Ninja", "-S", str(PROJECT), "-B", "."),
            *(f"-D{name}={value}" for name, value in sorted(values.items())),
        ]
