"""Builds as CK's example/ck_tile/01_fmha/CMakeLists.txt does: generate.py, CMake and ninja."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from bench.ninja_build import NinjaBuild
from bench.processes import Run
from bench.setting import place_flags
from bench.workload import ARCH, RECEIPT, Planned, check_same
from qola.files import sha256_of

PROJECT = Path(__file__).resolve().parent / "ck_cmake"
_PLACE = "generate.py in CMake"


class CkCmake(NinjaBuild):
    """The build with CMake."""

    name = "cmake"

    def build(self, planned: Planned, *, more: bool) -> list[Run]:
        """Configure and build."""
        patterns = self.patterns(more=more)
        self.directory.mkdir(parents=True, exist_ok=True)
        configured = self.run(self._configure(patterns))
        listed = [
            Path(line).name
            for api in patterns
            for line in (self.directory / f"{api}_blob_list.txt").read_text("utf-8").splitlines()
        ]
        digests = planned.digests()
        # By name before half an hour of compiling, and by content afterwards.
        check_same(digests, {name: digests.get(name, "") for name in listed}, _PLACE)
        built = self.ninja()
        theirs = {name: sha256_of(self.directory / name) for name in listed}
        check_same(digests, theirs, _PLACE)
        return [configured, built]

    def ninja(self) -> Run:
        """Build the configured project."""
        cmake = self.setting.tools / "cmake"
        return self.run([cmake, "--build", ".", "-j", str(self.setting.jobs)])

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
