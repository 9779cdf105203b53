"""CK's way: generate.py, CMake and ninja, as example/ck_tile/01_fmha/CMakeLists.txt does it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import ninja_log, processes
from bench.processes import Run
from bench.setting import Setting
from bench.workload import ARCH, RECEIPT, Planned, Workload, check_same
from qola.digest import sha256_of

PROJECT = Path(__file__).resolve().parent / "ck_cmake"
_PLACE = "generate.py in CMake"


@dataclass
class CkCmake:
    """A build directory of CMake's.

    Attributes:
        setting: where things are.
        workload: what to build.
        optional_flags: flags that the compiler accepts, see sdk_facts.
    """

    setting: Setting
    workload: Workload
    optional_flags: Sequence[str]

    @property
    def directory(self) -> Path:
        """The build directory."""
        return self.setting.work / "cmake"

    def build(self, planned: Planned, *, more: bool) -> list[Run]:
        """Configure and build.

        Args:
            planned: the plan of the same workload.
            more: with the further variant.

        Returns:
            The programs that ran, in order.

        Raises:
            BenchError: a program failed, or other sources were generated than are planned.
        """
        patterns = self.workload.more if more else self.workload.patterns
        self.directory.mkdir(parents=True, exist_ok=True)
        configured = processes.run(
            self._configure(patterns),
            self.setting.log,
            cwd=self.directory,
            environ=self.setting.rocm_environ(),
        )
        listed = [
            Path(line).name
            for api in patterns
            for line in (self.directory / f"{api}_blob_list.txt").read_text("utf-8").splitlines()
        ]
        digests = planned.digests()
        # Before half an hour of compiling: by name, and once they are there by what they hold.
        check_same(digests, {name: digests.get(name, "") for name in listed}, _PLACE)
        built = self.ninja()
        made = {name: sha256_of(self.directory / name) for name in listed}
        check_same(digests, made, _PLACE)
        return [configured, built]

    def ninja(self) -> Run:
        """Build what is configured."""
        return processes.run(
            [self.setting.tools / "cmake", "--build", ".", "-j", str(self.setting.jobs)],
            self.setting.log,
            cwd=self.directory,
            environ=self.setting.rocm_environ(),
        )

    def library(self, direction: str) -> Path:
        """Return the path of a direction's library."""
        return self.directory / f"libfmha_{direction}.so"

    def kernel_seconds(self, planned: Planned) -> dict[str, float]:
        """Return the sum of the compiles of each direction's kernels."""
        text = (self.directory / ".ninja_log").read_text(encoding="utf-8")
        return ninja_log.kernel_seconds(ninja_log.parse(text), planned.kernels)

    def _configure(self, filters: Mapping[str, str]) -> list[str]:
        places = " ".join(self.setting.place_flags())
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
