"""Finds Bazel, runs it in a workspace, follows its events, and stops it cleanly."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from qola.build.events import ANSI, EventReader, fails, find_refusal
from qola.build.progress import Status
from qola.common.version import docs_url
from qola_base.errors import Finding, ToolchainError
from qola_base.progress import Pace, flush_progress, log

#: Bazel's exit codes for faults of the machine: environment, bazelw's set-up, server.
_MACHINE_EXIT_CODES = frozenset({36, 37, 38, 45})

#: Exists only in bazelw's private tree, where the system's settings are qola's own.
_TREE = Path("/usr/share/qola/registry")

_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.1
_REPORT_SECONDS = 10.0
"""Between two reports of progress."""

GET_BAZEL = "npm install -g @bazel/bazelisk, or QOLA_BAZEL=<path of a Bazel>"

LOG = "bazel.log"
"""File of the workspace with Bazel's own output."""

#: Variables that Bazel sets for a program that it runs (bazel run //:qola).
_OF_BAZEL_RUN = ("BUILD_WORKING_DIRECTORY", "BUILD_WORKSPACE_DIRECTORY", "PYTHONSAFEPATH")

_NO_MODULES: Mapping[str, Sequence[str]] = MappingProxyType({})

_MODULE_PYTHON = "QOLA_TORCH"
"""Variable that names the Python for which modules are built."""


@dataclass(frozen=True)
class BuildOptions:
    """Options of bazel build.

    Attributes:
        keep_going: continue with actions that do not depend on a failed one.
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
    """Return QOLA_BAZEL, else bazelw, else Bazel on PATH; raise ToolchainError if there is none."""
    named, path = environ.get("QOLA_BAZEL", ""), environ.get("PATH")
    wrapper = ruleset / "bazelw"
    if named and named != "tree":
        if found := shutil.which(named, path=path):
            return [found]
        raise _no_bazel("QOLA_BAZEL", f"{named}, which is not a program")
    if wrapper.is_file() and (bash := shutil.which("bash", path=path)):
        # With bash: an installer of packages may drop the executable bit.
        return [bash, str(wrapper)]
    for name in ("bazelisk", "bazel"):
        if found := shutil.which(name, path=path):
            return [found]
    raise _no_bazel("PATH", "neither bazelisk nor bazel")


def beside(bazel: Sequence[str], ruleset: Path) -> list[str]:
    """Return a prefix for commands: bazelw runs a program that its Bazel built; [] for others."""
    # bazelw's Bazel may be in the private tree, which has its own Python.
    return [*bazel, "--beside-bazel"] if str(ruleset / "bazelw") in bazel else []


def _no_bazel(place: str, found: str) -> ToolchainError:
    expected = "Bazelisk, or a Bazel of version 7.4 or later"
    finding = Finding(place, found, expected, GET_BAZEL)
    return ToolchainError(finding, "no Bazel to build with")


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
    if not found.get(_MODULE_PYTHON) and "BUILD_WORKING_DIRECTORY" not in environ:
        found[_MODULE_PYTHON] = sys.executable
    return found


def ask(
    command: Sequence[str], environ: Mapping[str, str], directory: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a short Bazel command; raise ToolchainError if it cannot be started."""
    with _starting(command):
        return subprocess.run(
            command,
            cwd=directory,
            env=child_environment(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )


@contextmanager
def _starting(command: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        expected = "Bazelisk, or a Bazel, which this machine can run"
        finding = Finding(command[0], error.strerror or str(error), expected, GET_BAZEL)
        raise ToolchainError(finding, "Bazel cannot be started") from None


def own_settings_alone() -> list[str]:
    """Return the startup options that ignore settings that no key of a prebuilt bundle has."""
    # This option comes first: bazelw removes it before it enters its tree.
    return [*([] if _TREE.exists() else ["--nosystem_rc"]), "--nohome_rc"]


def build(
    bazel: Sequence[str],
    workspace: Path,
    targets: Sequence[str],
    options: BuildOptions,
    environ: Mapping[str, str],
    modules: Mapping[str, Sequence[str]] = _NO_MODULES,
) -> EventReader:
    """Run bazel build and log its progress; return the events.

    Bazel's own output goes to the workspace's LOG; with options.subcommands it goes to standard
    error unchanged.

    Args:
        modules: the modules whose kernels are counted, as of `planned_kernels`.

    Raises:
        ToolchainError: Bazel did not start, or could not work on this machine.
        KeyboardInterrupt: after Bazel was stopped; so with any other exception a signal raises.
    """
    file = workspace / "events.json"
    file.unlink(missing_ok=True)
    events, output = _Tail(file), None if options.subcommands else _Tail(workspace / LOG)
    reader = EventReader(output=str(workspace / LOG)) if output else EventReader()
    command = [*bazel, "build", *options.to_arguments(), f"--build_event_json_file={file}"]
    command += ["--build_event_publish_all_actions", "--", *targets]
    status = Status(reader, modules, options.jobs or os.cpu_count() or 1)
    with ExitStack() as stack:
        if output:
            stream = stack.enter_context(output.path.open("ab")).fileno()
        else:
            stream = 2  # Standard output is for the summary of qola.
            flush_progress()
        # In its own session, so that one Ctrl-C is one interrupt: the third kills the server.
        with _starting(command):
            process = subprocess.Popen(
                command,
                cwd=workspace,
                env=child_environment(environ),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
    try:
        _follow(process, events, reader, output, status)
    except BaseException:
        log.info("stopping Bazel")
        _stop(process)
        raise
    if output:
        for message in reader.messages():
            log.warning(message)
        if refusal := reader.refusal():
            log.warning(f"the remote cache refuses access: {refusal}\n{_REFUSED_FIX}")
    if reader.exit_code is None or process.returncode in _MACHINE_EXIT_CODES:
        raise ToolchainError(
            no_build(bazel, process.returncode, output.text() if output else ""),
            "Bazel cannot build here",
        )
    return reader


def _follow(
    process: subprocess.Popen[bytes],
    events: _Tail,
    reader: EventReader,
    output: _Tail | None,
    status: Status,
) -> None:
    """Wait for Bazel, and log its progress unless its own output is shown."""
    start = reported = time.monotonic()
    last, pace, running = "", Pace(), True
    while running:
        running = process.poll() is None
        seconds = time.monotonic() - start
        for line in events.lines():
            reader.feed(line, seconds)
        if output:
            for line in output.lines():
                if line.startswith("bazelw: ") and not line.startswith(_BAZELW_ERRORS):
                    log.info(line)
            if time.monotonic() - reported >= _REPORT_SECONDS or not running:
                reported, text = time.monotonic(), status.text(seconds)
                if text and text != last:
                    pace.report(text, status.share)
                    last = text
        if running:
            time.sleep(_POLL_SECONDS)


_BAZELW_ERRORS = ("bazelw: error: ", "bazelw: to fix: ")
_BAZELW_ERROR = re.compile(
    r"^bazelw: error: (?P<found>.*?)^bazelw: to fix: (?P<fix>.*?)\Z", re.MULTILINE | re.DOTALL
)


_REFUSED_FIX = (
    "--bazel-arg=--remote_header=Authorization=... or a credential helper authenticates "
    f"({docs_url('guide/remote-cache.md')}); --bazel-arg=--remote_upload_local_results=false only "
    "reads; a bucket of S3 answers 403 for a missing file unless the reader has s3:ListBucket"
)


def no_build(bazel: Sequence[str], code: int, output: str) -> Finding:
    """Return why Bazel built nothing, from its output or bazelw's."""
    of_bazelw = _BAZELW_ERROR.search(output)
    # The message of a rule is more specific than the lines around it.
    output = of_bazelw["found"] if of_bazelw else "\n".join(fails(output)) or output
    fix = _REFUSED_FIX if find_refusal(output) else "qola doctor shows what is missing"
    found = output.strip().splitlines()[-15:]
    return Finding(
        " ".join(bazel),
        "\n".join([f"exit code {code}, before anything was built", *found]),
        "a Bazel that can work on this machine",
        of_bazelw["fix"].strip() if of_bazelw else fix,
    )


class _Tail:
    """Reads complete new lines of a growing file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._start = self._position = path.stat().st_size if path.exists() else 0

    def text(self) -> str:
        """Return the text since the start, without colours."""
        data = self.path.read_bytes()[self._start :]
        return ANSI.sub("", data.decode("utf-8", "replace"))

    def lines(self) -> list[str]:
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._position)
            whole, end, _ = file.read().rpartition(b"\n")
        self._position += len(whole) + len(end)
        return whole.decode("utf-8", "replace").split("\n") if end else []


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
