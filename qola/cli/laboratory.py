"""Loads the laboratory's modules by name: the core starts, installs and is tested without them."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from qola.common.packages import ROOT
from qola.common.ruleset import ruleset_root
from qola_base.errors import ExitCode, Finding, QolaError, shell_code

_PART = "qola_lab"
_PROGRAM = "//qola_lab:program"
"""The command line with the laboratory, in Bazel."""


class NoLaboratoryError(
    QolaError, title="the laboratory is not installed", exit_code=ExitCode.TOOLCHAIN
):
    """A command needs the part qola_lab, which this installation does not have."""


def load(module: str) -> Any:
    """Import a module, which may be one of the laboratory.

    Raises:
        NoLaboratoryError: the part qola_lab is missing.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != _PART:
            raise
        found, expected = f"no package {_PART}", "qola with the laboratory"
        fix = "bazel run @qola//qola_lab:program -- ..., or pip install a checkout or wheel of qola"
        raise NoLaboratoryError(Finding(module, found, expected, fix)) from None


def run_with_bazel(words: Sequence[str], environ: Mapping[str, str]) -> int | None:
    """Run a command of the laboratory where Bazel runs //:qola; return its exit code.

    Bazel builds what the laboratory needs, such as the emulator's engine, only then: a command of
    the core never waits for it.

    Returns:
        None if Bazel did not start this program, or if this is that program.
    """
    directory = environ.get("BUILD_WORKING_DIRECTORY", "")
    if not directory or not environ.get("RUNFILES_DIR") or find_spec(_PART):
        return None
    # The directory of qola among the runfiles: the main repository, or the canonical name of qola.
    name = ROOT.name
    bazel: Any = importlib.import_module("qola.build.bazel")  # not needed by --help
    label = _PROGRAM if name == "_main" else f"@@{name}{_PROGRAM}"
    options = ["--ui_event_filters=-info", "--noshow_progress"]
    start = [*bazel.find_bazel(environ, ruleset_root()), "run", *options, label, "--"]
    print(f"qola: bazel run {label}, which has this command", file=sys.stderr)
    sys.stdout.flush()
    child = bazel.child_environment(environ)
    ran = subprocess.run([*start, *words], env=child, cwd=directory, check=False)
    return shell_code(ran.returncode)
