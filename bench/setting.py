"""The common setting of all sides of bench/run: compiler, sources, tools and jobs."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import processes
from bench.processes import Run
from rules_hip.rocm.lay_out_sdk import ALIASES, wrapper

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class TorchSetting:
    """The PyTorch for which Python modules are built, used as with --@qola//:torch=cpu_check.

    Attributes:
        flags: include directories of its headers, and macros.
        link_flags: its libraries.
    """

    flags: tuple[str, ...]
    link_flags: tuple[str, ...]

    @staticmethod
    def from_repository(torch: Path, rocm_headers: Path) -> TorchSetting:
        """Return the PyTorch of QOLA_TORCH.

        Args:
            torch: Bazel's repository @qola_torch.
            rocm_headers: directory of the headers of ROCm's libraries.
        """
        text = (torch / "torch.bzl").read_text(encoding="utf-8")
        found = ast.literal_eval(text.partition("TORCH = ")[2])
        inside = ("include", "include/torch/csrc/api/include", "multiarch", "python")
        places = [
            ROOT / "runtime/torch/cpu_check",
            *(torch / place for place in inside),
            rocm_headers,
        ]
        macros = [f"_GLIBCXX_USE_CXX11_ABI={found['cxx11_abi']}", "TORCH_API_INCLUDE_EXTENSION_H"]
        macros += ["TORCH_Float4_e2m1fn_x2"] if found["fp4"] else []
        libraries = ("c10", "torch_cpu", "torch", "torch_python")
        return TorchSetting(
            (*(f"-I{place}" for place in places), *(f"-D{macro}" for macro in macros)),
            (f"-L{torch / 'lib'}", *(f"-l{library}" for library in libraries)),
        )


@dataclass(frozen=True)
class Setting:
    """Directories and environment.

    Attributes:
        work: directory for all files.
        jobs: number of concurrent compiles.
        torch: None for workloads without Python modules.
    """

    work: Path
    jobs: int
    environ: Mapping[str, str]
    torch: TorchSetting | None = None

    @property
    def log(self) -> Path:
        """The file for the output of programs."""
        return self.work / "log.txt"

    @property
    def sdk(self) -> Path:
        """The compiler as a distribution has it."""
        return self.work / "sdk"

    @property
    def tools(self) -> Path:
        """Directory with the programs ninja and cmake."""
        return self.work / "programs"

    @property
    def aiter(self) -> Path:
        """The AITER tree."""
        return self.work / "aiter_tree"

    @property
    def ck(self) -> Path:
        """Composable Kernel in the AITER tree."""
        return self.aiter / "aiter_meta/3rdparty/composable_kernel"

    @property
    def generator(self) -> Path:
        """CK's generate.py."""
        return self.ck / "example/ck_tile/01_fmha/generate.py"

    def rocm_environ(self) -> dict[str, str]:
        """Return the environment in which hipcc uses the SDK, and PATH has ninja."""
        return {
            **self.environ,
            "HIP_CLANG_PATH": str(self.sdk / "bin"),
            "HIP_PLATFORM": "amd",
            "PATH": f"{self.tools}:{self.environ.get('PATH', '')}",
            "ROCM_PATH": str(self.sdk / "rocm"),
        }

    def run(self, command: Sequence[str | Path], directory: Path) -> Run:
        """Run a program in a directory, in the environment of the SDK."""
        return processes.run(command, self.log, cwd=directory, environ=self.rocm_environ())


def place_flags(sdk: Path) -> list[str]:
    """Return the flags with which an SDK's clang uses only files of the SDK."""
    return [
        "-no-canonical-prefixes",
        f"--sysroot={sdk / 'sysroot'}",
        f"--rocm-path={sdk / 'rocm'}",
        f"-resource-dir={sdk / 'resource'}",
    ]


def as_distributed(sdk: Path, target: Path) -> None:
    """Create an SDK whose compiler uses libc's allocator, like those of distributions."""
    (target / "bin").mkdir(parents=True)
    for part in sdk.iterdir():
        if part.name != "bin":
            (target / part.name).symlink_to(part)
    for program in (sdk / "bin").iterdir():
        script = target / "bin" / program.name
        real = ALIASES.get(program.name, program.name)
        script.write_text(wrapper(real, libc_allocator=True), encoding="utf-8")
        script.chmod(0o755)


def sdk_facts() -> dict[str, Any]:
    """Return the versions of the pinned compiler and the optional flags that it accepts."""
    found: dict[str, Any] = json.loads((ROOT / "third_party/rocm/sdk.json").read_text("utf-8"))
    return found


def processor() -> str:
    """Return the name of this machine's processor."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    found = re.search(r"^model name\s*: (.*)$", info, re.MULTILINE)
    return found[1] if found else "unknown processor"
