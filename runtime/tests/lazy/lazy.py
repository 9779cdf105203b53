"""A small lazy module: sources of three kernels, their index, and a program that requests them."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gfxemu.tests.sdk import compiler_of
from qola.lazy.index import FILE, LINK_SCRIPT, Headers, Index, Kernel, code_digests, render_index
from qola_base.files import sha256_of_text
from tests.support.running import output_of, run

ARCH = "gfx942"
MODULE = "libtoy"

SCALE, FILL, BROKEN = "toy_scale", "toy_fill", "toy_broken"
"""Kernel instances; the last does not compile."""

# Declares only what a launch needs: <hip/hip_runtime.h> takes the compiler three seconds.
_SOURCE = """\
#include <hip/hip_runtime_api.h>
#include "{name}.h"
extern "C" hipError_t __hipPushCallConfiguration(dim3, dim3, size_t, hipStream_t);
namespace {{
__attribute__((global)) void kernel(float* data) {{ *data *= VALUE; }}
}}
int launch()
{{
    kernel<<<1, 64>>>(nullptr);
    return hipGetLastError() == hipSuccess ? VALUE : -1;
}}
"""

_SCRIPT = "SECTIONS { .toy : { *(.toy) } } INSERT BEFORE .text;\n"

_ENTRY = """\
#include "qola_kernel.h"
QOLA_KERNEL_BEGIN
QOLA_KERNEL_FUNCTION(launch)
QOLA_KERNEL_END
"""

_FLAGS = ("-x", "hip", "-std=c++20", "-O1", "-nogpuinc", "-nogpulib")

# Compiles a kernel once per command, sources and environment for all tests of a file.
_COMPILER = """\
#!/bin/bash
case " $* " in *" -shared "*) ;; *) exec {command} "$@";; esac
echo "$$ $*" >> {log}
{before}
[ "$(ulimit -f)" = unlimited ] && [ -w {made} ] || exec {command} "$@"
output="${{!#}}"
known='^(_|HOME|PWD|OLDPWD|SHLVL|TMPDIR|MAX_JOBS|(QOLA|CK_JIT|ASK|FAKE_HIP)_[A-Z_]*)='
made={made}/$(
    {{
        echo "${{*:1:$#-1}}"
        env | grep -vE "$known" | sort
        find . -type f -exec sha256sum {{}} + | sort
    }} | sha256sum | head -c 64
)
[ ! -e "$made" ] || exec cp "$made" "$output"
[ ! -e "$made.failed" ] || {{ cat "$made.failed" >&2; exit 1; }}
{command} "$@" 2> "$made.$$"
code=$?
cat "$made.$$" >&2
[ $code = 0 ] && cp "$output" "$made.$$" && mv "$made.$$" "$made"
[ $code != 1 ] || mv "$made.$$" "$made.failed"
exit $code
"""

VALUES = {SCALE: 7, FILL: 9}
"""Return value of each kernel's function after a launch."""

SCALED, FILLED = str(VALUES[SCALE]), str(VALUES[FILL])
"""These values as the program prints them."""


@dataclass(frozen=True)
class Tools:
    """Files that Bazel built or fetched."""

    ask: Path  # the program that requests kernels, linked with the runtime
    kernels: Path  # qola-kernels
    hip: Path  # the fake HIP runtime
    sdk: Path  # the compiler's installation
    runtime: Path  # runtime/lazy
    compiled: Path  # directory of compiled kernels, which later tests reuse

    @property
    def compiler(self) -> list[str]:
        """The command of the SDK's compiler."""
        return compiler_of(self.sdk)


def tools(compiled: Path) -> Tools:
    """Return the tools that the environment names, with a directory for compiled kernels."""
    return Tools(
        ask=Path(os.environ["QOLA_TEST_ASK"]).resolve(),
        kernels=Path(os.environ["QOLA_TEST_KERNELS"]).resolve(),
        hip=Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve(),
        # Not resolved: the SDK's files may be links out of its directory.
        sdk=Path(os.environ["QOLA_TEST_CLANG"]).absolute().parent.parent,
        runtime=Path(os.environ["QOLA_TEST_RUNTIME"]).absolute().parent,
        compiled=compiled,
    )


@dataclass
class Toy:
    """A bundle with one lazy module, in a separate directory."""

    path: Path
    tools: Tools  # programs that build and use the bundle
    identity: str  # the compiler of the library
    # Text of each kernel's header.
    headers: dict[str, str] = field(
        default_factory=lambda: {
            SCALE: "#define VALUE 7\n",
            FILL: "#define VALUE 9\n",
            BROKEN: "#error this kernel is broken on purpose\n",
        }
    )
    archs: tuple[str, ...] = (ARCH,)  # archs of each kernel

    def __post_init__(self) -> None:
        self.write()

    @property
    def root(self) -> Path:
        """Directory of the sources."""
        return self.path / "share/qola/toys" / MODULE

    @property
    def cache(self) -> Path:
        """The cache directory of the programs."""
        return self.path / "cache"

    @property
    def log(self) -> Path:
        """The log of compiler runs, one line per run."""
        return self.path / "compiles.log"

    @property
    def index(self) -> Index:
        """The index of the current sources."""
        kernel_h = (self.tools.runtime / "qola_kernel.h").read_text()
        return Index(
            module=MODULE,
            root=f"../share/qola/toys/{MODULE}",
            identity=self.identity,
            flags=(*_FLAGS, "-fPIC", "-fvisibility=hidden"),
            arch_flags={"gfx950": ("-DFOR_950",)},
            package_flags={"toys": ("-DTOYS",)},
            headers={
                name: Headers(
                    (f"include/{name}", "include/qola"),
                    {
                        f"include/{name}/{name}.h": sha256_of_text(text),
                        "include/qola/qola_kernel.h": sha256_of_text(kernel_h),
                    },
                )
                for name, text in self.headers.items()
            },
            link_flags=("-shared", "-no-hip-rt", "-fuse-ld=lld", "-Wl,-z,defs", "-Wl,-Bsymbolic"),
            link_script=sha256_of_text(_SCRIPT),
            entries={"one": sha256_of_text(_ENTRY)},
            kernels=tuple(
                Kernel(name, arch, "toys", name, "one", sha256_of_text(_SOURCE.format(name=name)))
                for name in self.headers
                for arch in self.archs
            ),
        )

    def codes(self) -> dict[str, str]:
        """Return the code digest of each kernel for the first arch."""
        index = self.index
        pairs = zip(index.kernels, code_digests(index), strict=True)
        return {kernel.name: code for kernel, code in pairs if kernel.arch == self.archs[0]}

    def entry(self, kernel: str, identity: str = "", arch: str = ARCH) -> Path:
        """Return the path of a kernel in the cache."""
        key = self.key(kernel, identity)
        return self.cache / kernel / f"{arch}-{key[:32]}.so"

    def key(self, kernel: str, identity: str = "") -> str:
        """Return a kernel's key for the first arch."""
        parts = ("qola kernel key", self.codes()[kernel], self.archs[0], identity or self.identity)
        return sha256_of_text("".join(f"{part}\n" for part in parts))

    def write(self) -> None:
        """Write the sources, the index, and the table of the program."""
        index = self.index
        files = {
            FILE: render_index(index),
            "entries/one.cpp": _ENTRY,
            LINK_SCRIPT: _SCRIPT,
            "include/qola/qola_kernel.h": (self.tools.runtime / "qola_kernel.h").read_text(),
        }
        for name, text in self.headers.items():
            files[f"include/{name}/{name}.h"] = text
            files[f"src/toys/{name}.cpp"] = _SOURCE.format(name=name)
        for file, text in files.items():
            (self.root / file).parent.mkdir(parents=True, exist_ok=True)
            (self.root / file).write_text(text)
        rows = [
            [index.module, index.root, index.identity, sha256_of_text(render_index(index))],
            *(
                [kernel.name, kernel.arch, code]
                for kernel, code in zip(index.kernels, code_digests(index), strict=True)
            ),
        ]
        (self.path / "table").write_text("".join("\t".join(row) + "\n" for row in rows))
        library = self.path / "lib/ask"
        if not library.exists():
            library.parent.mkdir()
            shutil.copy(self.tools.ask, library)
            (self.path / "bin").mkdir()
            shutil.copy(self.tools.kernels, self.path / "bin/qola-kernels")

    def compiler(self, before: str = "") -> str:
        """Return a compiler that logs compiles of kernels and runs `before` (shell) for each."""
        text = _COMPILER.format(
            log=self.log,
            before=before or ":",
            made=self.tools.compiled,
            command=f"{shlex.join(self.tools.compiler)} -isystem {self.tools.sdk}/rocm/include",
        )
        path = self.path / f"compiler-{sha256_of_text(text)[:8]}"
        if not path.exists():
            # Replace the file atomically: another process may be running it.
            path.with_suffix(".new").write_text(text)
            path.with_suffix(".new").chmod(0o755)
            path.with_suffix(".new").rename(path)
        return str(path)

    def environment(self, **settings: str) -> dict[str, str]:
        """Return the environment of programs; settings replace the defaults."""
        defaults = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.path),
            "TMPDIR": str(self.path / "tmp"),
            "LD_LIBRARY_PATH": str(self.tools.hip.parent),
            "FAKE_HIP_ARCH": ARCH,
            "ASK_TABLE": str(self.path / "table"),
            "ASK_LAUNCH": "1",
            "QOLA_CACHE": str(self.cache),
        }
        (self.path / "tmp").mkdir(exist_ok=True)
        if "QOLA_COMPILER" not in settings:
            defaults["QOLA_COMPILER"] = self.compiler()
        return {name: value for name, value in (defaults | settings).items() if value}

    def row(self, kernel: str, arch: str = ARCH) -> int:
        """Return the row of a kernel in the table."""
        return [(k.name, k.arch) for k in self.index.kernels].index((kernel, arch))

    def start(
        self, *kernels: str, threads: str = "1", times: str = "1", **settings: str
    ) -> subprocess.Popen[str]:
        """Start the program that requests kernels."""
        rows = (str(self.row(kernel)) for kernel in kernels)
        return self.launch(self.command(*rows, threads=threads, times=times), **settings)

    def launch(self, command: Sequence[str | Path], **settings: str) -> subprocess.Popen[str]:
        """Start a command that requests kernels."""
        return subprocess.Popen(
            command,
            env=self.environment(**settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
        )

    def command(self, *rows: str, threads: str = "1", times: str = "1") -> list[str]:
        """Return the command line of the program for these rows."""
        return [str(self.path / "lib/ask"), threads, times, *rows]

    def ask(self, *kernels: str, **settings: str) -> Answer:
        """Request kernels and wait for the answer."""
        return finish(self.start(*kernels, **settings))

    def call(self, *parts: str, threads: str = "1", times: str = "1", **settings: str) -> Answer:
        """Call an entry point that launches kernels; ask.cpp describes other parts."""
        operand = ",".join(str(self.row(part)) if part in self.headers else part for part in parts)
        return finish(self.launch(self.command(operand, threads=threads, times=times), **settings))

    def check_available(self, *kernels: str, **settings: str) -> Answer:
        """Request kernels, and check that each kernel is available and launched."""
        answer = self.ask(*kernels, **settings)
        assert answer.values == [str(VALUES[kernel]) for kernel in kernels], answer
        return answer

    def check_unavailable(self, *kernels: str, **settings: str) -> Answer:
        """Request kernels, and check that no kernel is available."""
        answer = self.ask(*kernels, **settings)
        assert answer.values == [UNAVAILABLE] * len(kernels), answer
        return answer

    def tool(
        self, *arguments: str | Path, stdin: str = "", **settings: str
    ) -> subprocess.CompletedProcess[str]:
        """Run qola-kernels."""
        command = [self.path / "bin/qola-kernels", *arguments]
        return run(command, env=self.environment(**settings), input=stdin, cwd=self.path)

    def check_tool(
        self, code: int, /, *arguments: str | Path, stdin: str = "", **settings: str
    ) -> subprocess.CompletedProcess[str]:
        """Run qola-kernels, and check its exit code."""
        result = self.tool(*arguments, stdin=stdin, **settings)
        assert result.returncode == code, result.stderr
        return result

    def compiles(self) -> int:
        """Return the number of kernel compiles so far."""
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def entries(self) -> list[Path]:
        """Return the entries in the cache."""
        return sorted(self.cache.glob("*/*.so"))

    def leftovers(self) -> list[Path]:
        """Return temporary files that a compile must delete."""
        return sorted([*self.cache.glob("*/*.tmp.*"), *(self.path / "tmp").glob("*")])


@dataclass(frozen=True)
class Answer:
    """Output of the program that requests kernels."""

    lines: tuple[str, ...]  # a line for each requested kernel
    errors: str  # standard error

    @property
    def values(self) -> list[str]:
        """Return values of the kernels, or their statuses, without the times."""
        parts = [line.split() for line in self.lines]
        return [part[3] if part[1] == "ok" else " ".join(part[1:]) for part in parts]

    @property
    def runs(self) -> list[int]:
        """Number of runs of each call."""
        return [int(line.split()[4]) for line in self.lines if " ok " in line]

    @property
    def milliseconds(self) -> list[float]:
        """Time of each kernel request."""
        return [float(line.split()[2]) for line in self.lines if " ok " in line]


UNAVAILABLE = "status -4"


def finish(process: subprocess.Popen[str], timeout: int = 120) -> Answer:
    """Wait for a program that requests kernels, and check that it exits with 0."""
    out, errors = process.communicate(timeout=timeout)
    sys.stderr.write(errors)
    assert process.returncode == 0, f"exit code {process.returncode}: {errors}"
    return Answer(tuple(out.splitlines()), errors)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process with SIGKILL, so that it cannot clean up."""
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def processes_with(text: str) -> list[str]:
    """Return the command lines of running processes that contain a text."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found


def preloaded(toy: Toy, source: str) -> str:
    """Compile a library for LD_PRELOAD that replaces a function of the C library."""
    (toy.path / "shim.c").write_text(source)
    shim = str(toy.path / "shim.so")
    options = ["-x", "c", "-shared", "-fPIC", "-fuse-ld=lld", "-o", shim]
    output_of([*toy.tools.compiler, *options, str(toy.path / "shim.c")])
    return shim
