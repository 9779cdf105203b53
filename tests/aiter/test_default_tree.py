"""The default AITER tree: fetched by pip, verified and cached."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from qola.checkout import default_tree, source
from qola.checkout.default_tree import find_tree
from qola.fetch import wheel as wheel_module
from qola_base.errors import AiterError, QolaError
from qola_base.files import sha256_of
from tests.aiter.trees import use_index, write_wheel
from tests.support.folders import write


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the pinned wheel of the small tree, the only wheel that pip can find."""
    use_index(monkeypatch, tmp_path / "wheels")
    path = write_wheel(tmp_path / "wheels", "amd-aiter", "0.1.7")
    pin = {"package": "amd-aiter", "commit": "c", "sha256": sha256_of(path), "version": "0.1.7"}
    write(tmp_path, {"third_party/aiter/wheel.json": json.dumps(pin)})
    monkeypatch.setattr(source, "ruleset_root", lambda: tmp_path)
    return path


def test_default_tree_is_fetched_once(wheel: Path, tmp_path: Path, logged: list[str]) -> None:
    """Prevents: `qola plan` after pip install requires a tree, or every command fetches it."""
    environ = {"QOLA_CACHE_HOME": str(tmp_path / "a b/cache")}
    tree = find_tree(None, environ)
    assert (tree / "aiter_meta/csrc/include/mha_fwd.h").read_text() == "// one\n"
    assert tree.parent == tmp_path / "a b/cache/trees"
    assert logged == ["fetching amd-aiter==0.1.7"]
    wheel.unlink()
    assert find_tree(None, environ) == tree
    assert len(logged) == 1


def test_error_without_the_wheel_names_alternatives(wheel: Path, tmp_path: Path) -> None:
    """Prevents: without a network, the error does not name a solution."""
    wheel.unlink()
    with pytest.raises(AiterError) as caught:
        find_tree(None, {"QOLA_CACHE_HOME": str(tmp_path / "cache")})
    assert "pip config debug" in str(caught.value)
    assert "--aiter-root DIR names" in str(caught.value)


@pytest.mark.usefixtures("wheel")
def test_writable_cache_directory_is_rejected(tmp_path: Path) -> None:
    """Prevents: qola runs another user's program as an AITER generator."""
    environ = {"QOLA_CACHE_HOME": str(tmp_path / "cache")}
    tree = default_tree.kept_tree(environ)
    tree.mkdir(parents=True)
    for directory in (tree, tree.parent):
        directory.chmod(0o777)
        with pytest.raises(QolaError, match=rf"{directory}\n.*mode 0777") as caught:
            find_tree(None, environ)
        # The tree may contain files of other users, so chmod is not sufficient.
        repair = f"rm -r {directory}" if directory == tree else f"chmod go-w {directory}"
        assert repair in str(caught.value)
        subprocess.run(repair, shell=True, check=True)
    assert (find_tree(None, environ) / "AITER.json").is_file()


_SLOW_PIP = """\
import os, pathlib, sys, time
time.sleep(0.5)
# At once: on a busy machine a part would be logged, too.
pathlib.Path(os.environ["TMPDIR"], "part").open("wb").truncate(7_000_000)
time.sleep(0.5)
pathlib.Path(sys.argv[sys.argv.index("-d") + 1], "a.whl").write_bytes(b"")
"""


def test_slow_fetch_reports_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    """Prevents: a slow download shows no progress."""
    write(tmp_path / "modules", {"pip.py": _SLOW_PIP})
    (tmp_path / "wheel").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    monkeypatch.setattr(wheel_module, "_PROGRESS_SECONDS", 0.2)
    found = wheel_module.pip_download("p", "1", tmp_path / "wheel")
    assert found.name == "a.whl"
    assert logged == ["fetching p==1: 7 MB so far"]


def test_python_without_pip_gets_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: qola advises `pip config debug` in an environment without pip."""
    raising = f"raise SystemExit('{sys.executable}: No module named pip')\n"
    write(tmp_path / "modules", {"pip.py": raising})
    (tmp_path / "wheel").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    with pytest.raises(AiterError, match="-m ensurepip"):
        wheel_module.pip_download("p", "1", tmp_path / "wheel")
