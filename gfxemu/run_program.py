"""Runs a program on the fake HIP runtime with the emulator, for hip_binary and `qola emulate`.

Its main runs in this process, on this thread: of a shared library, as hip_binary links programs, of
an executable, or of a Python file.
"""

from __future__ import annotations

import argparse
import atexit
import ctypes
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from gfxemu.executable import is_executable, load_main
from gfxemu.faults import Fault
from gfxemu.hip import Hip
from gfxemu.launch import ARCHS, Options
from qola_base.errors import Finding, QolaError, visible

#: Exit code of a program that ended with 0 although a kernel failed.
KERNEL_FAILED = 1

#: Instructions in which compilers often read registers that nothing wrote: they use the lower half
#: of a sum of 64 bits, and lanes that are on of a mask.
_COMPILERS = ("v_mad_u64", "v_mad_i64", "v_mad_co_u64", "v_mad_co_i64", "s_")

_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program, and end the process with its exit code."""
    parser = argparse.ArgumentParser(prog="gfxemu.run_program", allow_abbrev=False)
    parser.add_argument("--runtime", required=True, type=Path, help="gfxemu/fake_hip's library")
    parser.add_argument("--arch", required=True, choices=ARCHS, help="arch of the device")
    parser.add_argument(
        "--checked", action="store_true", help="also report reads of uninitialised memory"
    )
    parser.add_argument("program", type=Path, help="the program as a shared library")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    args = parser.parse_args(argv)
    try:
        run(args.runtime, args.arch, args.program, args.arguments, checked=args.checked)
    except QolaError as error:
        print(error, file=sys.stderr, flush=True)
        # At C's exit, after Python's end, nothing can call the handler of `run`.
        os._exit(int(error.exit_code))
    return 0


def run(
    runtime: Path, arch: str, program: Path, arguments: Sequence[str], *, checked: bool = False
) -> None:
    """Run a program's main and end the process with its exit code.

    Args:
        checked: whether reads of memory, LDS and registers that nothing wrote are faults.

    Raises:
        QolaError: the program cannot be loaded, or has no main.
    """
    failed: list[BaseException] = []

    def report(error: BaseException) -> None:
        failed.append(error)
        text = f"qola: emulated kernel: {hip.describe(error)}"
        print(visible(text, keep="\n\t"), file=sys.stderr, flush=True)

    seen: set[tuple[str, int]] = set()

    def hint(fault: Fault) -> None:
        if fault.kind == "misaligned" or fault.instruction.startswith(_COMPILERS):
            return
        if (fault.kernel, fault.pc) not in seen:
            seen.add((fault.kernel, fault.pc))
            text = f"qola: emulated kernel: hint: {hip.describe(fault)}"
            print(visible(text, keep="\n\t"), file=sys.stderr, flush=True)

    options = Options(strict=True, checked=checked, hints=True)
    hip = Hip(runtime, arch, options, report=report, hint=hint)
    libc = ctypes.CDLL(None)

    def at_exit(code: int, _: object) -> None:
        if failed and code == 0:
            print("qola: exit code 1, because a kernel failed", file=sys.stderr, flush=True)
            libc.fflush(None)
            os._exit(KERNEL_FAILED)

    handler = _Handler(at_exit)
    # Before the program's own handlers and static objects, and so after them at the end.
    libc.on_exit(handler, None)
    if program.suffix == ".py":
        sys.stdout.flush()
        libc.exit(_run_python(program, arguments))
    entry: Callable[..., int] | None
    try:
        if is_executable(program):
            library, entry = load_main(program, hip.load)
        else:
            library = hip.load(program)
            entry = getattr(library, "main", None)
    except OSError as error:
        expected = "a program whose libraries and symbols are found"
        fix = "add the library of the undefined symbol to deps, or -l... to linkopts; of a file "
        fix += "that is not found, add its directory to LD_LIBRARY_PATH"
        raise QolaError(Finding(str(program), str(error), expected, fix)) from None
    if entry is None:
        expected = "a main with default visibility"
        raise QolaError(
            Finding(str(program), "no main", expected, "leave out -fvisibility=hidden for it")
        )
    words = [os.fsencode(word) for word in (str(program), *arguments)]
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    sys.stdout.flush()
    # By C's exit, so that handlers and static destructors run while Python can serve launches.
    environment = ctypes.c_void_p.in_dll(libc, "environ")
    libc.exit(entry(len(words), argv, environment))


def _run_python(program: Path, arguments: Sequence[str]) -> int:
    """Run a Python file and the functions that it leaves for the end; return its exit code."""
    sys.argv = [str(program), *arguments]
    sys.path.insert(0, str(program.parent.resolve()))
    code: object = 0
    try:
        runpy.run_path(str(program), run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    sys.exit(main())
