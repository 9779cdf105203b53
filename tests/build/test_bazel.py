"""Bazel's output as users of qola read it, with fake Bazels."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path

import pytest

from qola.build import bazel
from qola.build.bazel import BuildOptions, build
from qola_base.errors import ToolchainError
from qola_base.progress import show_progress
from tests.support.fake_bazel import write_bazel

_BUILDS = """\
say("bazelw: fetching what is missing")
for n in range(60): say(f"INFO: line {n}")
progress("Analyzing: 2 targets\\nqola: a.toml is planned with 1 warning\\nINFO: x\\n")
time.sleep(0.5)
finish()
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


def run(directory: Path, text: str, *, verbose: bool = False) -> None:
    """Build with a fake Bazel that runs the text."""
    options = BuildOptions(subcommands=verbose)
    build([str(write_bazel(directory, text))], directory, ["//:x"], options, os.environ)


def test_bazel_output_is_written_to_a_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    logged: list[str],
) -> None:
    """Prevents: sixty lines of Bazel's output that hide a warning of the plan."""
    monkeypatch.setattr(bazel, "_REPORT_SECONDS", 0.2)
    run(tmp_path, _BUILDS)
    assert [re.sub(r"\d+ s elapsed", "N s elapsed", line) for line in logged] == [
        "bazelw: fetching what is missing",
        "Analyzing: 2 targets; N s elapsed",
        "a.toml is planned with 1 warning",
    ]
    assert capfd.readouterr() == ("", "")
    log = tmp_path / bazel.LOG
    assert "INFO: line 59" in log.read_text()
    before = log.read_text()
    run(tmp_path, _BUILDS)
    assert logged[3:] == logged[:3]
    assert log.read_text() == before * 2, "a bundle's build hides that of its libraries"


_PRINTS_PYTHON = """\
say("python " + os.environ.get("QOLA_TORCH", "none"))
finish()
"""


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, sys.executable),
        ({"QOLA_PYTHON": "/plans"}, sys.executable),
        ({"QOLA_TORCH": "/v/bin/python"}, "/v/bin/python"),
        # bazel run //:qola: Bazel chooses the Python that runs qola, and the rules find PyTorch.
        ({"BUILD_WORKING_DIRECTORY": "/w"}, "none"),
    ],
)
def test_modules_are_built_for_the_running_python(
    environ: dict[str, str], expected: str, tmp_path: Path
) -> None:
    """Prevents: a module for another Python than the one that runs `qola build`."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("QOLA_")}
    command = [str(write_bazel(tmp_path, _PRINTS_PYTHON))]
    build(command, tmp_path, ["//:x"], BuildOptions(), {**clean, **environ})
    assert f"python {expected}\n" in (tmp_path / "bazel.log").read_text("utf-8")


def test_verbose_shows_bazel_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], logged: list[str]
) -> None:
    """Prevents: --verbose that does not show Bazel's output."""
    run(tmp_path, _BUILDS, verbose=True)
    assert logged == []
    assert "INFO: line 59" in capfd.readouterr().err
    assert not (tmp_path / bazel.LOG).exists()


def test_quiet_shows_warnings(tmp_path: Path) -> None:
    """Prevents: --quiet that hides warnings of a plan."""
    stream = io.StringIO()
    with show_progress(stream, quiet=True):
        run(tmp_path, _BUILDS)
    assert stream.getvalue() == "qola: a.toml is planned with 1 warning\n"


_REFUSED = """\
for n in range(3):
    progress("\\x1b[35mWARNING: \\x1b[0mRemote Cache: PUT failed with {answer}\\n<html>\\n")
finish()
"""
_NOT_STARTED = """\
say("ERROR: Failed to query remote execution capabilities: UNAUTHENTICATED: HTTP status code 401")
sys.exit(34)
"""


@pytest.mark.parametrize("answer", ["401 Unauthorized", "403 Forbidden"])
def test_refusal_of_a_remote_cache_is_shown(answer: str, tmp_path: Path, logged: list[str]) -> None:
    """Prevents: a build that compiles everything, without a word on the cache's wrong password."""
    run(tmp_path, _REFUSED.replace("{answer}", answer))
    (line,) = [line for line in logged if "refuses access" in line]
    assert answer in line
    assert "--bazel-arg=--remote_header=" in line
    assert "s3:ListBucket" in line


def test_refusal_that_ends_the_build(tmp_path: Path) -> None:
    """Prevents: "qola doctor shows what is missing" for a wrong password of remote workers."""
    with pytest.raises(ToolchainError, match="UNAUTHENTICATED") as caught:
        run(tmp_path, _NOT_STARTED)
    assert caught.value.findings[0].fix.startswith("--bazel-arg=--remote_header=")


def test_other_errors_are_not_refusals(tmp_path: Path, logged: list[str]) -> None:
    """Prevents: the hint for a refusal after another error that contains such a number."""
    text = _REFUSED.replace("{answer}", "500 Internal Server Error").replace("<html>", "x:403 : y")
    run(tmp_path, text)
    assert not [line for line in logged if "refuses" in line]


def test_bazelw_error_is_shown(tmp_path: Path) -> None:
    """Prevents: "see above" without any output above, or a second fix besides bazelw's."""
    with pytest.raises(ToolchainError) as caught:
        run(tmp_path, _NO_TREE)
    (finding,) = caught.value.findings
    assert "no apt on this machine\n  looked in /usr/bin" in finding.found
    assert "making the tree" not in finding.found
    assert finding.fix == "apt-get install apt"


def test_bazel_start_error_is_shown(tmp_path: Path) -> None:
    """Prevents: a wrong --bazel-arg without Bazel's error message."""
    with pytest.raises(ToolchainError, match="Unrecognized option: --bogus"):
        run(tmp_path, _WRONG_OPTION)
