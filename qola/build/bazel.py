"""Runs Bazel in a workspace: finds it, shows its progress, follows its events, stops it cleanly."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.build.events import EventReader
from qola.errors import Finding, ToolchainError

#: Exit codes of Bazel's that speak of the machine: its environment, bazelw's set-up, its server.
MACHINE_EXIT_CODES = frozenset({36, 37, 38, 45})

_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.1

#: Variables by which Bazel tells a program it runs (bazel run //:qola) about that program.
_OF_BAZEL_RUN = ("BUILD_WORKING_DIRECTORY", "BUILD_WORKSPACE_DIRECTORY", "PYTHONSAFEPATH")


@dataclass(frozen=True)
class BuildOptions:
    """How Bazel builds.

    Attributes:
        keep_going: go on with what does not depend on a failed action.
        jobs: actions at a time, None for as many as Bazel thinks fit.
    """

    keep_going: bool = True
    jobs: int | None = None
    subcommands: bool = False
    more: tuple[str, ...] = ()
    quiet: bool = False

    def to_arguments(self) -> list[str]:
        """Return the arguments of bazel build."""
        found = ["--keep_going" if self.keep_going else "--nokeep_going"]
        found += [f"--jobs={self.jobs}"] if self.jobs else []
        found += ["--subcommands"] if self.subcommands else []
        found += ["--noshow_progress", "--ui_event_filters=-info"] if self.quiet else []
        return [*found, *self.more]


def find_bazel(environ: Mapping[str, str], ruleset: Path) -> list[str]:
    """Return how to start Bazel: QOLA_BAZEL, else qola's bazelw, else what PATH has.

    Raises:
        ToolchainError: there is none.
    """
    named = environ.get("QOLA_BAZEL", "")
    wrapper = ruleset / "bazelw"
    if named and named != "tree":
        found = shutil.which(named, path=environ.get("PATH"))
        if found is None:
            raise _no_bazel("QOLA_BAZEL", f"{named}, which is not a program")
        return [found]
    bash = shutil.which("bash", path=environ.get("PATH"))
    if wrapper.is_file() and bash:
        # By way of bash: an installer of packages may drop the executable bit.
        return [bash, str(wrapper)]
    for name in ("bazelisk", "bazel"):
        if found := shutil.which(name, path=environ.get("PATH")):
            return [found]
    raise _no_bazel("PATH", "neither bazelisk nor bazel")


def _no_bazel(place: str, found: str) -> ToolchainError:
    return ToolchainError(
        Finding(
            place,
            found,
            "Bazelisk, or a Bazel of version 7.4 or later",
            "npm install -g @bazel/bazelisk, or QOLA_BAZEL=<path of a Bazel>",
        ),
        "there is no Bazel to build with",
    )


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for Bazel: without what a Bazel around this process said of it."""
    return {
        key: value
        for key, value in environ.items()
        if key not in _OF_BAZEL_RUN and not key.startswith(("RUNFILES_", "TEST_"))
    }


def build(
    bazel: Sequence[str],
    workspace: Path,
    targets: Sequence[str],
    options: BuildOptions,
    environ: Mapping[str, str],
    note: Callable[[str], None] = lambda _: None,
) -> EventReader:
    """Run bazel build, whose own output goes to standard error; return what its events said.

    Raises:
        ToolchainError: Bazel did not start, or could not work on this machine.
        KeyboardInterrupt: after Bazel was stopped; so with any other exception a signal raises.
    """
    events = _EventFile(workspace / "events.json")
    command = [*bazel, "build", *options.to_arguments(), f"--build_event_json_file={events.path}"]
    # In a session of its own, so that one Ctrl-C is one interrupt: the third kills Bazel's server.
    process = subprocess.Popen(
        [*command, "--", *targets],
        cwd=workspace,
        env=child_environment(environ),
        stdin=subprocess.DEVNULL,
        # Standard output is for the summary; Bazel writes nothing there that matters.
        stdout=2,
        start_new_session=True,
    )
    try:
        while process.poll() is None:
            events.read_on()
            time.sleep(_POLL_SECONDS)
        events.read_on()
    except BaseException:
        note("stopping Bazel")
        _stop(process)
        raise
    if events.reader.exit_code is None or process.returncode in MACHINE_EXIT_CODES:
        raise ToolchainError(
            Finding(
                " ".join(bazel),
                f"exit code {process.returncode}, before anything was built",
                "a Bazel that can work on this machine",
                "see what it says above; bazelw --doctor tells what is missing",
            ),
            "Bazel cannot build here",
        )
    return events.reader


class _EventFile:
    """The file Bazel appends its events to, read as it grows."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self.path = path
        self.reader = EventReader()
        self._started = time.monotonic()
        self._position = 0
        self._rest = b""

    def read_on(self) -> None:
        """Feed the reader what came since the last call."""
        if not self.path.exists():
            return
        # As bytes: the file may end within a character.
        with self.path.open("rb") as file:
            file.seek(self._position)
            data = self._rest + file.read()
            self._position = file.tell()
        *lines, self._rest = data.split(b"\n")
        for line in lines:
            self.reader.feed(line.decode("utf-8"), time.monotonic() - self._started)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt Bazel, as Ctrl-C would, and wait until it has stopped."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(_STOP_SECONDS)
    except ProcessLookupError:
        process.wait()
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
