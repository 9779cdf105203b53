"""Runs a program on the fake HIP runtime, and reads its launches."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

#: The file name and soname of HIP's runtime, major version 7.
RUNTIME = "libamdhip64.so.7"


@dataclass(frozen=True)
class Launch:
    """One kernel launch, as the fake runtime saw it."""

    kernel: str  # Mangled name of the kernel
    arch: str  # Arch whose code object it came from
    grid: tuple[int, int, int]  # Blocks in x, y, z
    block: tuple[int, int, int]  # Work-items of a block in x, y, z
    lds_static: int  # LDS of the kernel itself, in bytes
    lds_dynamic: int  # LDS the caller asked for in addition, in bytes
    stream: int  # 0 for the default stream, then 1, 2, ... in order of creation
    kernarg_bytes: int  # Size of the kernarg segment by the code object's metadata
    kernarg: bytes  # The kernel's arguments as they would lie in memory
    # "fatbin" (registered by a program or library) or "module" (loaded by hipModuleLoad)
    source: str
    code_object_sha256: str  # Digest of the code object


def read_log(path: Path) -> list[Launch]:
    """Launches in a log, in order; none where nothing was launched."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    launches: list[Launch] = []
    for line in lines:
        values = json.loads(line)
        values["kernarg"] = bytes.fromhex(values.pop("kernarg_hex"))
        values |= {key: tuple(values[key]) for key in ("grid", "block")}
        launches.append(Launch(**values))
    return launches


@dataclass(frozen=True)
class FakeHip:
    """A fake HIP runtime with a device of one arch."""

    runtime: Path  # The fake's shared library; its name is RUNTIME
    arch: str  # Arch of the device
    library_dirs: tuple[Path, ...] = ()  # Further directories to look for shared libraries in
    cu_count: int | None = None  # Compute units, None for those of the arch's largest GPU
    timeout: float | None = None  # Seconds after which `run` fails, None for never

    def environment(self, log: Path) -> dict[str, str]:
        """Environment in which programs find the fake in place of HIP's own runtime."""
        dirs = (self.runtime.parent, *self.library_dirs)
        result = {
            "LD_LIBRARY_PATH": os.pathsep.join(str(path) for path in dirs),
            "FAKE_HIP_ARCH": self.arch,
            "FAKE_HIP_LOG": str(log),
        }
        if self.cu_count is not None:
            result["FAKE_HIP_CU_COUNT"] = str(self.cu_count)
        return result

    def run(
        self, command: Sequence[str | Path], log: Path, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, whatever its exit code; launches go to the log."""
        return subprocess.run(
            [str(argument) for argument in command],
            env=self.environment(log) | env,
            capture_output=True,
            encoding="utf-8",
            timeout=self.timeout,
            check=False,
        )
