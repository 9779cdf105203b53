"""What a user reads of Bazel, by programs that speak for it."""

from __future__ import annotations

import io
import os
import stat
import sys
from pathlib import Path

import pytest

from qola.build import bazel
from qola.build.bazel import BuildOptions, build
from qola.errors import ToolchainError
from qola.progress import show_progress

_HEAD = f"""\
#!{sys.executable}
import json, sys, time
def say(text): print(text, file=sys.stderr, flush=True)
def event(**words): events.write(json.dumps(words) + "\\n"); events.flush()
(name,) = (a.partition("=")[2] for a in sys.argv if a.startswith("--build_event_json_file="))
"""
_BUILDS = """\
events = open(name, "w")
say("bazelw: fetching what is missing")
for n in range(60): say(f"INFO: line {n}")
said = "Analyzing: 2 targets\\nqola: a.toml is planned with 1 warning\\nINFO: x\\n"
event(id={"progress": {}}, progress={"stderr": said})
time.sleep(0.5)
event(id={"buildFinished": {}}, finished={"exitCode": {}})
"""
_NO_TREE = """\
say("bazelw: making the tree")
say("bazelw: error: no apt on this machine")
say("  looked in /usr/bin")
say("bazelw: to fix: apt-get install apt")
sys.exit(36)
"""
_WRONG_OPTION = """\
say("ERROR: --bogus :: Unrecognized option: --bogus")
sys.exit(2)
"""


def program(directory: Path, text: str) -> list[str]:
    path = directory / "bazel"
    path.write_text(_HEAD + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return [str(path)]


def run(directory: Path, text: str, *, verbose: bool = False) -> None:
    """Build with a fake Bazel that runs the text."""
    options = BuildOptions(subcommands=verbose)
    build(program(directory, text), directory, ["//:x"], options, os.environ)


def test_bazels_output_is_in_a_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    logged: list[str],
) -> None:
    """Prevents: sixty lines of Bazel around what matters; a warning of the plan lost in them."""
    monkeypatch.setattr(bazel, "_REPORT_SECONDS", 0.2)
    run(tmp_path, _BUILDS)
    assert logged == [
        "bazelw: fetching what is missing",
        "Analyzing: 2 targets",
        "a.toml is planned with 1 warning",
    ]
    assert capfd.readouterr() == ("", "")
    log = tmp_path / bazel.LOG
    assert "INFO: line 59" in log.read_text()
    before = log.read_text()
    run(tmp_path, _BUILDS)
    assert logged[3:] == logged[:3]
    assert log.read_text() == before * 2, "a bundle's build hides that of its libraries"


_TELLS_PYTHON = (
    """\
import os
say("python " + os.environ.get("QOLA_TORCH", "none"))
"""
    + _BUILDS
)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, sys.executable),
        ({"QOLA_PYTHON": "/plans"}, sys.executable),
        ({"QOLA_TORCH": "/v/bin/python"}, "/v/bin/python"),
        # bazel run //:qola: what runs it is Bazel's choice, which rules make by themselves.
        ({"BUILD_WORKING_DIRECTORY": "/w"}, "none"),
    ],
)
def test_modules_are_for_the_python_that_builds(
    environ: dict[str, str], expected: str, tmp_path: Path
) -> None:
    """Prevents: a module for another Python than the one that runs `qola build`."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("QOLA_")}
    bazel = program(tmp_path, _TELLS_PYTHON)
    build(bazel, tmp_path, ["//:x"], BuildOptions(), {**own, **environ})
    assert f"python {expected}\n" in (tmp_path / "bazel.log").read_text("utf-8")


def test_verbose_shows_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], logged: list[str]
) -> None:
    """Prevents: --verbose that shows no command."""
    run(tmp_path, _BUILDS, verbose=True)
    assert logged == []
    assert "INFO: line 59" in capfd.readouterr().err
    assert not (tmp_path / bazel.LOG).exists()


def test_quiet_keeps_warnings(tmp_path: Path) -> None:
    """Prevents: --quiet that hides what a plan warns of."""
    stream = io.StringIO()
    with show_progress(stream, quiet=True):
        run(tmp_path, _BUILDS)
    assert stream.getvalue() == "qola: a.toml is planned with 1 warning\n"


def test_bazelws_error_is_qolas(tmp_path: Path) -> None:
    """Prevents: "see above" where nothing is above; bazelw's fix below another one."""
    with pytest.raises(ToolchainError) as caught:
        run(tmp_path, _NO_TREE)
    (finding,) = caught.value.findings
    assert "no apt on this machine\n  looked in /usr/bin" in finding.found
    assert "making the tree" not in finding.found
    assert finding.fix == "apt-get install apt"


def test_a_bazel_that_does_not_start_says_why(tmp_path: Path) -> None:
    """Prevents: a wrong --bazel-arg without Bazel's words about it."""
    with pytest.raises(ToolchainError, match="Unrecognized option: --bogus"):
        run(tmp_path, _WRONG_OPTION)
