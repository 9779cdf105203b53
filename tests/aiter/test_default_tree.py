"""The tree of who names none: fetched by pip, checked, kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from qola.checkout import default_tree
from qola.checkout.default_tree import find_tree
from qola.errors import AiterError, QolaError
from qola.fetch import wheel as wheel_module
from qola.files import sha256_of
from tests.aiter.trees import use_index, write_wheel
from tests.support.folders import write


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the wheel of the small tree, pinned, where pip finds it and nothing else."""
    use_index(monkeypatch, tmp_path / "wheels")
    path = write_wheel(tmp_path / "wheels", "amd-aiter", "0.1.7")
    pin = {"package": "amd-aiter", "commit": "c", "sha256": sha256_of(path), "version": "0.1.7"}
    write(tmp_path, {"third_party/aiter/wheel.json": json.dumps(pin)})
    monkeypatch.setattr(default_tree, "ruleset_root", lambda: tmp_path)
    return path


def test_it_is_fetched_once_and_kept(wheel: Path, tmp_path: Path, logged: list[str]) -> None:
    """Prevents: `qola plan` after pip install that asks for a tree; a fetch at every command."""
    environ = {"QOLA_CACHE_HOME": str(tmp_path / "a b/cache")}
    tree = find_tree(None, environ)
    assert (tree / "aiter_meta/csrc/include/mha_fwd.h").read_text() == "// one\n"
    assert tree.parent == tmp_path / "a b/cache/trees"
    assert logged == ["fetching amd-aiter==0.1.7"]
    wheel.unlink()
    assert find_tree(None, environ) == tree
    assert len(logged) == 1


def test_another_wheel_is_refused(wheel: Path, tmp_path: Path) -> None:
    """Prevents: generators run from a wheel that is not the pinned one; half a tree kept."""
    wheel.write_bytes(wheel.read_bytes() + b"x")
    with pytest.raises(AiterError, match="the file is not the pinned one"):
        find_tree(None, {"QOLA_CACHE_HOME": str(tmp_path / "cache")})
    assert [path.name for path in (tmp_path / "cache/trees").iterdir()] == ["lock"]


def test_without_the_wheel_the_error_names_both_ways(wheel: Path, tmp_path: Path) -> None:
    """Prevents: a dead end without a network."""
    wheel.unlink()
    with pytest.raises(AiterError) as caught:
        find_tree(None, {"QOLA_CACHE_HOME": str(tmp_path / "cache")})
    assert "pip config debug" in str(caught.value)
    assert "--aiter-root DIR names" in str(caught.value)


@pytest.mark.usefixtures("wheel")
def test_a_directory_that_others_write_to_is_refused(tmp_path: Path) -> None:
    """Prevents: another user's program run as an AITER generator."""
    environ = {"QOLA_CACHE_HOME": str(tmp_path / "cache")}
    tree = default_tree.kept_tree(environ)
    tree.mkdir(parents=True)
    for place in (tree, tree.parent):
        place.chmod(0o777)
        with pytest.raises(QolaError, match=rf"{place}\n.*mode 0777") as caught:
            find_tree(None, environ)
        # With files that others may have put there, to take the right to write is no repair.
        repair = f"rm -r {place}" if place == tree else f"chmod go-w {place}"
        assert repair in str(caught.value)
        subprocess.run(repair, shell=True, check=True)
    assert (find_tree(None, environ) / "AITER.json").is_file()


_SLOW_PIP = """\
import os, pathlib, sys, time
time.sleep(0.5)
pathlib.Path(os.environ["TMPDIR"], "part").write_bytes(b"x" * 7_000_000)
time.sleep(0.5)
pathlib.Path(sys.argv[sys.argv.index("-d") + 1], "a.whl").write_bytes(b"")
"""


def test_a_slow_fetch_says_how_much_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    """Prevents: minutes without a word."""
    write(tmp_path / "modules", {"pip.py": _SLOW_PIP})
    (tmp_path / "wheel").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    monkeypatch.setattr(wheel_module, "_PROGRESS_SECONDS", 0.2)
    found = wheel_module.pip_download("p", "1", tmp_path / "wheel")
    assert found.name == "a.whl"
    assert logged == ["fetching p==1: 7 MB so far"]


def test_a_python_without_pip_is_told_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: `pip config debug` as advice in an environment without pip."""
    raising = f"raise SystemExit('{sys.executable}: No module named pip')\n"
    write(tmp_path / "modules", {"pip.py": raising})
    (tmp_path / "wheel").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    with pytest.raises(AiterError, match="-m ensurepip"):
        wheel_module.pip_download("p", "1", tmp_path / "wheel")
