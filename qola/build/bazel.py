"""Finds Bazel, runs it in a workspace, follows its events, and stops it cleanly."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from qola.build.events import ANSI, EventReader, fails
from qola.build.progress import Status
from qola.errors import Finding, ToolchainError
from qola.progress import Pace, flush_progress, log

#: Bazel's exit codes for faults of the machine: environment, bazelw's set-up, server.
MACHINE_EXIT_CODES = frozenset({36, 37, 38, 45})

#: Exists only in bazelw's private tree, where the system's settings are qola's own.
_TREE = Path("/usr/share/qola/registry")

_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.1
_TELL_SECONDS = 10.0
"""Between two reports of progress."""

GET_BAZEL = "npm install -g @bazel/bazelisk, or QOLA_BAZEL=<path of a Bazel>"

LOG = "bazel.log"
"""File of the workspace with Bazel's own output."""

#: Variables that Bazel sets for a program that it runs (bazel run //:qola).
_OF_BAZEL_RUN = ("BUILD_WORKING_DIRECTORY", "BUILD_WORKSPACE_DIRECTORY", "PYTHONSAFEPATH")


MODULE_PYTHON = "QOLA_TORCH"
"""Variable that names the Python for which modules are built."""


@dataclass(frozen=True)
class BuildOptions:
    """Options of bazel build.

    Attributes:
        keep_going: continue with actions that do not depend on a failed one.
        jobs: parallel actions, None for Bazel's default.
        subcommands: show each command, and Bazel's own output.
        more: further arguments.
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
    """Return the command of Bazel: QOLA_BAZEL, else qola's bazelw, else Bazel on PATH.

    Raises:
        ToolchainError: Bazel was not found.
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
        # With bash: an installer of packages may drop the executable bit.
        return [bash, str(wrapper)]
    for name in ("bazelisk", "bazel"):
        if found := shutil.which(name, path=environ.get("PATH")):
            return [found]
    raise _no_bazel("PATH", "neither bazelisk nor bazel")


def beside(bazel: Sequence[str], ruleset: Path) -> list[str]:
    """Return the prefix of a command that runs a program built by this Bazel.

    Args:
        bazel: the result of `find_bazel`.
    """
    wrapper = str(ruleset / "bazelw")
    # bazelw's Bazel may be in the private tree, which has its own Python.
    return [*bazel, "--beside-bazel"] if wrapper in bazel else []


def _no_bazel(place: str, found: str) -> ToolchainError:
    return ToolchainError(
        Finding(
            place,
            found,
            "Bazelisk, or a Bazel of version 7.4 or later",
            GET_BAZEL,
        ),
        "there is no Bazel to build with",
    )


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for Bazel, without variables of an outer Bazel.

    Python modules are built for the Python in QOLA_TORCH, else for this process's, unless Bazel
    started qola: then Bazel chose the Python, not the user.
    """
    found = {
        key: value
        for key, value in environ.items()
        if key not in _OF_BAZEL_RUN and not key.startswith(("RUNFILES_", "TEST_"))
    }
    if not found.get(MODULE_PYTHON) and "BUILD_WORKING_DIRECTORY" not in environ:
        found[MODULE_PYTHON] = sys.executable
    return found


def ask(
    words: Sequence[str], environ: Mapping[str, str], directory: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a short Bazel command and return its output.

    Raises:
        ToolchainError: it cannot be started.
    """
    with _starting(words):
        return subprocess.run(
            words,
            cwd=directory,
            env=child_environment(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )


@contextmanager
def _starting(words: Sequence[str]) -> Iterator[None]:
    """Turn a failed start into a ToolchainError."""
    try:
        yield
    except OSError as error:
        expected = "Bazelisk, or a Bazel, which this machine can run"
        found = error.strerror or str(error)
        finding = Finding(words[0], found, expected, GET_BAZEL)
        raise ToolchainError(finding, "Bazel cannot be started") from None


def own_settings_alone() -> list[str]:
    """Return Bazel's startup options that ignore settings of the user and of the machine.

    Keys of prebuilt bundles do not contain them (docs/guide/prebuilt.md#the-key).
    """
    # This option comes first: bazelw removes it before it enters its tree.
    return [*([] if _TREE.exists() else ["--nosystem_rc"]), "--nohome_rc"]


def build(
    bazel: Sequence[str],
    workspace: Path,
    targets: Sequence[str],
    options: BuildOptions,
    environ: Mapping[str, str],
    kernels: Callable[[Path], Mapping[str, int]] = lambda _: {},
) -> EventReader:
    """Run bazel build and log its progress; return the events.

    Bazel's own output goes to the workspace's LOG; with options.subcommands it goes to standard
    error unchanged.

    Args:
        kernels: what is compiled and the number of kernels in each, as `planned_kernels` has them.

    Raises:
        ToolchainError: Bazel did not start, or could not work on this machine.
        KeyboardInterrupt: after Bazel was stopped; so with any other exception a signal raises.
    """
    events = _EventFile(workspace / "events.json")
    words = [*bazel, "build", *options.to_arguments(), f"--build_event_json_file={events.path}"]
    words += ["--build_event_publish_all_actions", "--", *targets]
    status = Status(events.reader, kernels, options.jobs or os.cpu_count() or 1)
    with ExitStack() as stack:
        # Standard output is for the summary of qola.
        output, file = 2, None
        if options.subcommands:
            flush_progress()
        else:
            file = _LogFile(workspace / LOG)
            events.reader.told = str(file.path)
            output = stack.enter_context(file.path.open("ab")).fileno()
        # In its own session, so that one Ctrl-C is one interrupt: the third kills the server.
        with _starting(words):
            process = subprocess.Popen(
                words,
                cwd=workspace,
                env=child_environment(environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
    try:
        _follow(process, events, file, status)
    except BaseException:
        log.info("stopping Bazel")
        _stop(process)
        raise
    if file:
        for message in events.reader.messages():
            log.warning(message)
    if events.reader.exit_code is None or process.returncode in MACHINE_EXIT_CODES:
        raise ToolchainError(
            no_build(" ".join(bazel), process.returncode, file.text() if file else ""),
            "Bazel cannot build here",
        )
    return events.reader


def _follow(
    process: subprocess.Popen[bytes], events: _EventFile, file: _LogFile | None, status: Status
) -> None:
    """Wait for Bazel, and log its progress unless its own output is shown."""
    last, at, pace = "", time.monotonic(), Pace()
    while True:
        running = process.poll() is None
        events.read_on()
        if file:
            for line in file.of_bazelw():
                log.info(line)
            if time.monotonic() - at >= _TELL_SECONDS or not running:
                at, text = time.monotonic(), status.text(events.seconds())
                if text and text != last:
                    pace.report(text, status.share)
                    last = text
        if not running:
            return
        time.sleep(_POLL_SECONDS)


_OF_BAZELW = re.compile(
    r"^bazelw: error: (?P<found>.*?)^bazelw: to fix: (?P<fix>.*?)\Z", re.MULTILINE | re.DOTALL
)


def no_build(bazel: str, code: int, said: str) -> Finding:
    """Return why Bazel built nothing, from its output or bazelw's."""
    of_bazelw = _OF_BAZELW.search(said)
    # The message of a rule is more specific than the lines around it.
    words_of_rules = fails(said)
    said = of_bazelw["found"] if of_bazelw else "\n".join(words_of_rules) or said
    found = said.strip().splitlines()[-15:]
    words = "\n".join([f"exit code {code}, before anything was built", *found])
    return Finding(
        bazel,
        words,
        "a Bazel that can work on this machine",
        of_bazelw["fix"].strip() if of_bazelw else "qola doctor shows what is missing",
    )


class _LogFile:
    """Bazel's own output in a file, from which bazelw's lines are logged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._start = self._position = path.stat().st_size if path.exists() else 0

    def text(self) -> str:
        """Return the output of this run, without colours."""
        data = self.path.read_bytes()[self._start :]
        return ANSI.sub("", data.decode("utf-8", "replace"))

    def of_bazelw(self) -> list[str]:
        """Return bazelw's new lines, except errors."""
        with self.path.open("rb") as file:
            file.seek(self._position)
            whole, end, _ = file.read().rpartition(b"\n")
        self._position += len(whole) + len(end)
        lines = whole.decode("utf-8", "replace").splitlines()
        errors = ("bazelw: error: ", "bazelw: to fix: ")
        return [s for s in lines if s.startswith("bazelw: ") and not s.startswith(errors)]


class _EventFile:
    """The file of Bazel's events, read while it grows."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self.path = path
        self.reader = EventReader()
        self._started = time.monotonic()
        self._position = 0
        self._rest = b""

    def seconds(self) -> float:
        """Return the time since the start of the build."""
        return time.monotonic() - self._started

    def read_on(self) -> None:
        """Feed new events to the reader."""
        if not self.path.exists():
            return
        # As bytes: the file may end within a character.
        with self.path.open("rb") as file:
            file.seek(self._position)
            data = self._rest + file.read()
            self._position = file.tell()
        *lines, self._rest = data.split(b"\n")
        for line in lines:
            self.reader.feed(line.decode("utf-8"), self.seconds())


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt Bazel like Ctrl-C, and wait until it has stopped."""
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
