"""``qola emulate``: a program on a machine without a GPU."""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from typing import Any

from qola.build.compiler import fake_hip
from qola.cli.commands import add_command
from qola.cli.console import Surroundings
from qola.common.extras import needs
from qola.common.packages import ROOT
from qola.common.version import docs_url
from qola_base.errors import ExitCode, Finding, ToolchainError, shell_code

_DEFAULT = "gfx950"
EMULATED = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
"""Archs that the emulator knows (`gfxemu.isa.ISAS`, which needs the extra verify)."""
_EPILOG = f"""\
PROGRAM is an executable that needs libamdhip64.so.7 and was linked as usual (-pie), or a Python
file. It finds a HIP runtime without a GPU, built by the first call, and the emulator runs its
kernels: small problems only. The exit code is the program's, or 1 if only a kernel failed.
Limits: {docs_url("internals/emulation.md")}"""


def add_commands(commands: Any) -> None:
    """Add emulate to the parser's subcommands."""
    words = "[--device ARCH] PROGRAM [ARGUMENT...]"
    codes = (ExitCode.TOOLCHAIN,)
    parser = add_command(commands, "emulate", _emulate, codes, words=words, epilog=_EPILOG)
    parser.add_argument(
        "--device",
        choices=EMULATED,
        default=_DEFAULT,
        help="arch of the GPU (default: %(default)s)",
    )
    parser.add_argument("program", metavar="PROGRAM", help="an executable, or a Python file")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT", help="the program's arguments"
    )


def _emulate(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola emulate``."""
    module = "gfxemu.run_program"
    with needs("verify", "qola emulate"):
        importlib.import_module(module)
    program = around.directory.absolute() / args.program
    if not program.is_file():
        expected = "an executable, or a Python file"
        raise ToolchainError(Finding(args.program, "no such file", expected), "nothing to emulate")
    runtime = fake_hip(around.environ)
    environ = dict(around.environ)
    for name, first in (("PYTHONPATH", ROOT), ("LD_LIBRARY_PATH", runtime.parent)):
        environ[name] = os.pathsep.join(filter(None, [str(first), environ.get(name)]))
    command = [sys.executable, "-m", module, f"--runtime={runtime}", f"--arch={args.device}"]
    around.console.out.flush()
    ran = subprocess.run(
        [*command, str(program), *args.arguments], env=environ, cwd=around.directory, check=False
    )
    return shell_code(ran.returncode)
