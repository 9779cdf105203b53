"""qola doctor and qola cache, with fake programs for bazelw and Bazel."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from qola.build import housekeeping
from qola.cli import command_line as cli
from qola.cli import machine as doctor
from tests.support.folders import write

_REPORT = """\
#!/bin/sh
echo "pinned      Bazel 7"
echo "found       bazel on PATH: none"
"""


def program(path: Path, text: str) -> Path:
    write(path.parent, {path.name: text})
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command with variables; the cache is a directory of its own."""

    def call(*arguments: str, **variables: str) -> tuple[int, str]:
        environ = {"PATH": os.environ["PATH"], "QOLA_CACHE_HOME": str(tmp_path / "cache")}
        code = cli.main(arguments, environ | variables)
        return code, capsys.readouterr().out

    return call


def test_the_report_of_bazelw_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """Prevents: doctor and bazelw find different Bazels, or doctor omits bazelw's fix."""
    monkeypatch.setattr(doctor, "ruleset_root", lambda: tmp_path)
    program(tmp_path / "bazelw", f'{_REPORT}echo "answer      the private tree"\n')
    code, text = run("doctor", "-q")
    assert code == 0
    assert "           found       bazel on PATH: none\n" in text
    assert "ok      Bazel  the private tree\n" in text
    broken = f'{_REPORT}echo "answer      Bazel cannot run. To fix: apt-get install x"\nexit 1\n'
    program(tmp_path / "bazelw", broken)
    code, text = run("doctor", "-q")
    assert code == 5
    assert "missing  Bazel  Bazel cannot run.\n" in text
    assert text.endswith("           fix: apt-get install x\n")


def test_qola_bazel(tmp_path: Path, run: Run) -> None:
    """Prevents: doctor reports success although QOLA_BAZEL does not start."""
    bazel = program(tmp_path / "bazel", "#!/bin/sh\necho bazel 7.7.1\n")
    code, text = run("doctor", "-q", QOLA_BAZEL=str(bazel))
    assert code == 0
    assert f"{bazel}: bazel 7.7.1\n" in text
    program(bazel, "#!/bin/sh\necho no java >&2\nexit 1\n")
    code, text = run("doctor", "--json", QOLA_BAZEL=str(bazel))
    assert code == 5
    (found,) = [check for check in json.loads(text) if check["name"] == "Bazel"]
    assert (found["status"], found["found"]) == ("missing", f"{bazel}: no java")
    assert "QOLA_BAZEL=" in found["fix"]
    code, text = run("doctor", "-q", QOLA_BAZEL=str(tmp_path / "absent"))
    assert code == 5
    assert "which is not a program" in text


def test_a_bazel_that_does_not_start(tmp_path: Path, run: Run) -> None:
    """Prevents: with a Bazel for another processor, doctor stops before the other checks."""
    bazel = program(tmp_path / "bazel", "\x7fELF, but not here")
    code, text = run("doctor", "-q", QOLA_BAZEL=str(bazel))
    assert code == 5
    assert f"missing  Bazel  {bazel}: Exec format error\n" in text
    assert "ok       qola" in text
    program(bazel, "#!/bin/sh\nprintf 'bazel \\377\\n'\n")
    assert "bazel \ufffd\n" in run("doctor", "-q", QOLA_BAZEL=str(bazel))[1]


def test_a_cache_writable_by_others(tmp_path: Path, run: Run) -> None:
    """Prevents: doctor accepts a cache that all other commands refuse."""
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    code, text = run("doctor", "--json", QOLA_CACHE_HOME=str(cache))
    found = {check["name"]: check for check in json.loads(text)}["cache"]
    assert code == 5
    assert found["status"] == "missing"
    assert "writable by others" in found["found"]
    assert f"chmod go-w {cache}" in found["fix"]


def test_missing_programs_have_a_fix(tmp_path: Path, run: Run) -> None:
    """Prevents: doctor reports a missing program without a fix."""
    (tmp_path / "file").write_text("")
    environ = {"QOLA_CACHE_HOME": str(tmp_path / "file"), "QOLA_BAZEL": "absent", "PATH": "/no"}
    code, text = run("doctor", "--json", **environ)
    assert code == 5
    found = {check["name"]: check for check in json.loads(text)}
    assert found["cache"]["status"] == found["Bazel"]["status"] == "missing"
    assert found["git"]["status"] == "absent"
    assert all(check["fix"] for check in found.values() if check["status"] == "missing")


def test_cache(tmp_path: Path, run: Run) -> None:
    """Prevents: `cache` reports a wrong size, or deletes files without --prune."""
    cache = write(tmp_path / "cache", {"disk/a": "x" * 100_000, "trees/t/f": "y"})
    os.utime(cache / "disk/a", (0, 0))
    code, text = run("cache", "--json")
    found = json.loads(text)
    assert code == 0
    assert found["directory"] == str(cache)
    assert found["freed"] == 0
    assert found["parts"]["disk"] >= 100_000
    assert found["total"] == sum(found["parts"].values())
    code, text = run("cache", "--prune", "30", "-q")
    assert text.splitlines()[0].endswith("kB freed")
    assert not (cache / "disk/a").exists()
    assert (cache / "trees/t/f").exists()


def test_pruning_a_cache_writable_by_others(tmp_path: Path, run: Run) -> None:
    """Prevents: pruning a shared cache follows another user's link and deletes files."""
    write(tmp_path, {"mine/letter": "x", "shared/empty": ""})
    os.utime(tmp_path / "mine/letter", (0, 0))
    (tmp_path / "shared/disk").symlink_to(tmp_path / "mine")
    (tmp_path / "shared").chmod(0o777)
    code, text = run("cache", "--prune=1", QOLA_CACHE_HOME=str(tmp_path / "shared"))
    assert (code, text) == (1, "")
    assert (tmp_path / "mine/letter").exists()


@pytest.mark.parametrize("days", ["9" * 400, "9" * 5000])
def test_pruning_with_a_huge_age(tmp_path: Path, run: Run, days: str) -> None:
    """Prevents: a traceback for a number of days beyond the range of time values."""
    write(tmp_path / "cache", {"disk/a": "x"})
    code, _ = run("cache", "--prune", days)
    assert code == 2
    assert (tmp_path / "cache/disk/a").exists()


def test_pruning_a_file_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """Prevents: for a file of root in the cache, the error suggests an unrelated fix."""
    path = str(tmp_path / "cache/disk/a")
    permission_error = PermissionError(errno.EACCES, "Permission denied", path)
    monkeypatch.setattr(housekeeping, "prune", Mock(side_effect=permission_error))
    code, text = run("cache", "--prune=1", "--json")
    error = json.loads(text)["error"]
    assert (code, error["title"]) == (1, "the cache cannot be pruned")
    (finding,) = error["findings"]
    assert (finding["place"], finding["found"]) == (path, "Permission denied")
    assert finding["expected"] == "a directory of your own, whose files you can remove"
    assert finding["fix"] == f"ls -ld {path} shows the owner"
