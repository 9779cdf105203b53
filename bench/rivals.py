"""The builds to compare with: AITER's own, and Composable Kernel's with CMake; both run ninja."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench.compiles import TIMED, Compile, read_compiles
from bench.processes import Run
from bench.setting import Setting, place_flags
from bench.workload import ARCH, MODULES, RECEIPT, Planned, Workload, check_same
from qola.plan.model import PlannedModule, TorchModule
from qola_base.files import sha256_of, write_if_changed

PROJECT = Path(__file__).resolve().parent / "ck_cmake"

# aiter/jit/utils/cpp_extension.py: flags of every compile, in its order.
_COMMON_FLAGS = [
    "-fPIC",
    "-std=c++20",
    "-O3",
    "-D__HIP_PLATFORM_AMD__=1",
    "-DUSE_ROCM=1",
    "-DHIPBLAS_V2",
    "-DCUDA_HAS_FP16=1",
    "-D__HIP_NO_HALF_OPERATORS__=1",
    "-D__HIP_NO_HALF_CONVERSIONS__=1",
    "-mcmodel=large",
    "-fno-unique-section-names",
    "-ffunction-sections",
    "-fdata-sections",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
]
# aiter/jit/core.py: flags of HIP sources. The optional ones come from sdk_facts.
_HIP_FLAGS = [
    "-DLEGACY_HIPBLAS_DIRECT",
    "-DUSE_PROF_API=1",
    "-D__HIP_PLATFORM_HCC__=1",
    "-U__HIP_NO_HALF_CONVERSIONS__",
    "-U__HIP_NO_HALF_OPERATORS__",
    "-Wno-unused-result",
    "-Wno-switch-bool",
    "-Wno-vla-cxx-extension",
    "-Wno-undefined-func-template",
    "-Wno-macro-redefined",
    "-Wno-missing-template-arg-list-after-template-kw",
    "-D__Float4_e2m1fn_x2",
    f"--offload-arch={ARCH}",
    "-fno-gpu-rdc",
]
_LINK_FLAGS = [
    "-shared",
    "-mcmodel=large",
    "-ffunction-sections",
    "-fdata-sections",
    "-Wl,--gc-sections",
    # The default of AMD's clang.
    "-fuse-ld=lld",
]
_DIRECTIONS = {module: direction for direction, module in MODULES.items()}


@dataclass
class NinjaBuild(ABC):
    """A build with ninja, in its own directory. Its compiles run through TIMED.

    Attributes:
        optional_flags: flags of sdk_facts that the compiler accepts.
    """

    name: ClassVar[str]
    """Name of the directory."""

    setting: Setting
    workload: Workload
    optional_flags: Sequence[str]

    @property
    def directory(self) -> Path:
        """The build directory."""
        return self.setting.work / self.name

    @abstractmethod
    def prepare(self, planned: Planned, *, more: bool) -> list[Run]:
        """Generate the sources and build.ninja; return the programs that ran, in order.

        Raises:
            BenchError: a program failed, or ninja would compile other sources than the plan.
        """

    @abstractmethod
    def object(self, direction: str, kernel: str) -> str:
        """Return the path of a kernel's object, relative to the build directory."""

    @abstractmethod
    def library(self, direction: str) -> Path:
        """Return the path of a direction's library."""

    def ninja(self, *targets: str) -> Run:
        """Run ninja for some targets, or for all."""
        return self.run(["ninja", "-j", str(self.setting.jobs), *targets])

    def compile(self, objects: Mapping[str, str]) -> tuple[Run, dict[str, Compile]]:
        """Compile kernels, again if their objects exist; return the times by kernel.

        Args:
            objects: path by kernel.
        """
        for path in objects.values():
            (self.directory / path).unlink(missing_ok=True)
        run = self.ninja(*objects.values())
        return run, read_compiles(self.directory / "timed.log", objects)

    def commands(self, objects: Mapping[str, str]) -> dict[str, str]:
        """Return the shell commands that compile kernels, by kernel; `objects` as for `compile`."""
        return {
            name: self.run(["ninja", "-t", "commands", "-s", path]).output.strip()
            for name, path in objects.items()
        }

    def patterns(self, *, more: bool) -> Mapping[str, str]:
        """Return the pattern of generate.py by direction."""
        return self.workload.more if more else self.workload.patterns

    def run(self, command: Sequence[str | Path]) -> Run:
        """Run a program in the build directory, in the environment of the SDK."""
        return self.setting.run(command, self.directory)


@dataclass(frozen=True)
class Module:
    """A library in build.ninja, with absolute paths of its sources."""

    name: str
    sources: tuple[Path, ...]
    flags: tuple[str, ...]


def build_file(
    modules: Sequence[Module],
    *,
    flags: Sequence[str],
    includes: Sequence[Path],
    link_flags: Sequence[str],
) -> str:
    """Return build.ninja like AITER's _write_ninja_file, with two improvements.

    Sources depend on their headers, through depfiles, and one file builds all modules concurrently.

    Args:
        includes: include directories, in search order.
    """
    blocks = [
        "ninja_required_version = 1.3",
        f"flags = {_words([*(f'-I{path}' for path in includes), *flags])}\n"
        f"ldflags = {_words(link_flags)}",
        "rule hip_compile\n"
        f"  command = {TIMED} hipcc -MMD -MF $out.d $flags $module_flags -c $in -o $out\n"
        "  depfile = $out.d\n"
        "  deps = gcc",
        "rule link\n"
        "  command = hipcc @$out.rsp $ldflags -o $out\n"
        "  rspfile = $out.rsp\n"
        "  rspfile_content = $in",
    ]
    for module in modules:
        compiles, objects = [], []
        for source in sorted(module.sources):
            object_file = object_path(module.name, source.stem)
            objects.append(object_file)
            compiles.append(
                f"build {object_file}: hip_compile {_escape(source)}\n"
                f"  module_flags = {_words(module.flags)}"
            )
        blocks += ["\n".join(compiles), f"build {module.name}.so: link {' '.join(objects)}"]
    blocks.append("default " + " ".join(f"{module.name}.so" for module in modules))
    return "\n\n".join(blocks) + "\n"


def object_path(module: str, source: str) -> str:
    """Return the path of the object of a source of a module."""
    return f"{module}/{source}.cuda.o"


def _words(values: Sequence[object]) -> str:
    return " ".join(str(value) for value in values)


def _escape(path: Path) -> str:
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


class AiterNinja(NinjaBuild):
    """The build with AITER's flags."""

    name = "aiter"

    def prepare(self, planned: Planned, *, more: bool) -> list[Run]:
        """Generate, and write build.ninja."""
        patterns = self.patterns(more=more)
        runs, modules = [], []
        for module in planned.plan.modules:
            blob = self.directory / module.name / "blob"
            blob.mkdir(parents=True, exist_ok=True)
            direction = _DIRECTIONS[module.name]
            runs.append(self._generate(direction, patterns[direction], blob))
            for file in planned.own_sources(module):
                text = (planned.directory / file).read_text(encoding="utf-8")
                write_if_changed(blob / Path(file).name, text)
            modules.append(self._attention(module, blob))
        self._check(planned)
        modules += [
            self._python_module(planned, module)
            for module in planned.plan.torch_modules
            if module.name in planned.kernels
        ]
        write_if_changed(self.directory / "build.ninja", self._build_file(modules))
        return runs

    def object(self, direction: str, kernel: str) -> str:
        """Return the path of a kernel's object."""
        return object_path(self.workload.parts[direction], kernel)

    def library(self, direction: str) -> Path:
        """Return the path of a direction's library."""
        return self.directory / f"{self.workload.parts[direction]}.so"

    def _attention(self, module: PlannedModule, blob: Path) -> Module:
        sources = tuple(sorted(blob.glob("*.cpp")))
        return Module(module.name, sources, (f"-I{self.setting.generator.parent}", *module.copts))

    def _python_module(self, planned: Planned, module: TorchModule) -> Module:
        """Copy the sources of AITER and of its generators, each to be compiled alone."""
        place = self.directory / module.name
        names = {name for names in planned.batches()[module.name].values() for name in names}
        files = (*(source.file for source in module.sources), *(f.file for f in module.generated))
        sources = []
        for file in files:
            inside = Path(file).relative_to(module.name)
            if inside.parts[:2] not in (("generated", "batches"), ("generated", "once")):
                write_if_changed(place / inside, (planned.directory / file).read_text("utf-8"))
                if inside.suffix == ".cpp" and inside.stem in names:
                    sources.append(place / inside)
        torch = self.setting.torch.flags if self.setting.torch else ()
        dirs = planned.plan.header_set(module.headers).include_dirs
        flags = [
            *(f"-I{self.setting.aiter / directory}" for directory in dirs),
            f"-I{place / 'generated'}",
            *torch,
            f"-DTORCH_EXTENSION_NAME={module.name}",
            *module.copts,
        ]
        return Module(module.name, tuple(sources), tuple(flags))

    def _generate(self, direction: str, pattern: str, blob: Path) -> Run:
        return self.run(
            [
                *(sys.executable, "-B", self.setting.generator, "--targets", ARCH),
                *("-d", direction, "--receipt", str(RECEIPT), "--filter", pattern),
                *("--output_dir", blob),
            ]
        )

    def _check(self, planned: Planned) -> None:
        ours = planned.digests()
        own = {Path(f).name for m in planned.plan.modules for f in planned.own_sources(m)}
        blobs = sorted(self.directory.glob("*/blob/*.cpp"))
        theirs = {path.name: sha256_of(path) for path in blobs if path.name not in own}
        check_same(ours, theirs, "generate.py for AITER")

    def _build_file(self, modules: Sequence[Module]) -> str:
        meta = self.setting.aiter / "aiter_meta"
        places = place_flags(self.setting.sdk)
        return build_file(
            modules,
            flags=["-DWITH_HIP", *_COMMON_FLAGS, *_HIP_FLAGS, *self.optional_flags, *places],
            includes=[
                meta / "3rdparty/ck_helper",
                self.setting.ck / "include",
                self.setting.ck / "library/include",
                meta / "csrc/include",
            ],
            link_flags=[
                *_LINK_FLAGS,
                *places,
                f"-L{self.setting.sdk / 'rocm/lib'}",
                "-lamdhip64",
                *(self.setting.torch.link_flags if self.setting.torch else ()),
            ],
        )


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
