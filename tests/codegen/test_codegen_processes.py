"""Generators that end early, never end, write without end, or outlive qola."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from qola.codegen import process
from qola.codegen.asm.script import run_script as run_in_folder
from qola.codegen.process import run_module
from qola.errors import CodegenError
from qola.processes import thread_pool
from tests.codegen.fake_ck import make_tree
from tests.codegen.generating import run
from tests.support.waiting import wait_for

#: A script that says where it is, and goes on for ten minutes, with a child of its own.
ENDLESS = """\
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]])
open(sys.argv[1] + "/started", "w").close()
time.sleep(600)
"""


def run_script(folder: Path, text: str) -> None:
    (folder / "script.py").write_text(text)
    words = [str(folder / "seen"), "--archs=gfx950", str(folder / "script.py"), str(folder)]
    run_module("qola.codegen.asm.run_script", words, cwd=folder, place="script.py")


def running(folder: Path) -> list[bytes]:
    """Return the commands of processes that have a folder as an argument."""
    word, found = os.fsencode(folder) + b"\0", []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes()
        except OSError:  # it has ended
            continue
        found += [command] if word in command else []
    return found


def test_all_of_a_generator_ends_with_a_killed_parent(tmp_path: Path) -> None:
    """Prevents: generators and their children that run for 15 minutes after kill -9."""
    code = (
        "import sys; from pathlib import Path; "
        "from tests.codegen.test_codegen_processes import ENDLESS, run_script; "
        "run_script(Path(sys.argv[1]), ENDLESS)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=env) as parent:
        wait_for((tmp_path / "started").exists)
        assert len(running(tmp_path)) == 3
        parent.kill()
    wait_for(lambda: not running(tmp_path))


def test_generators_end_with_the_block_that_waits(tmp_path: Path) -> None:
    """Prevents: a signal, raised in the main thread, that waits for generators of other threads."""

    def run_endless(folder: Path) -> None:
        folder.mkdir()
        run_script(folder, ENDLESS)

    def work(number: int) -> None:
        # As a module's generators run in threads of one of the planner's.
        with thread_pool(2) as inner:
            folders = [tmp_path / f"{number}{n}" for n in range(3)]
            list(inner.map(run_endless, folders))

    def interrupt() -> None:
        wait_for(lambda: len(list(tmp_path.glob("*/started"))) == 4)
        os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt), thread_pool(2) as outer:
        list(outer.map(work, range(2)))
    folders = [tmp_path / f"{outer}{inner}" for outer in range(2) for inner in range(3)]
    wait_for(lambda: not [name for folder in folders for name in running(folder)])
    assert len(list(tmp_path.glob("*/started"))) == 4, "one was started after the signal"


def test_a_generator_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a wait for a child that a generator left running, or that closed its output."""
    monkeypatch.setattr(process, "TIMEOUT", 1)
    for text in (ENDLESS, "import os, time\nos.close(1); os.close(2)\ntime.sleep(600)"):
        with pytest.raises(CodegenError, match="no end after 1 s"):
            run_script(tmp_path, text)
        wait_for(lambda: not running(tmp_path))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("while True: print('x' * 10_000)", "more than 16 MiB of messages"),
        ("open('x', 'w').truncate(2 << 30)", "File too large"),
        ("x = bytearray(9 << 30)", "MemoryError"),
    ],
)
def test_a_generator_without_bounds(tmp_path: Path, text: str, found: str) -> None:
    """Prevents: memory or a disk filled by a generator's loop."""
    with pytest.raises(CodegenError, match=found):
        run_script(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("import sys; print('why it failed'); sys.exit(3)", ["exit code 3", "why it failed"]),
        ("raise RuntimeError('in the generator')", ["exit code 1", "in the generator"]),
        ("pass", ["no file"]),
        ("open(OUT + '/notes.txt', 'w')", ["unexpected files: build/module/out/notes.txt"]),
        ("import os; os.mkdir(OUT + '/d'); open(OUT + '/d/x.cpp', 'w')", ["out/d/x.cpp"]),
        ("open('stray.cpp', 'w')", ["unexpected files: cwd/stray.cpp"]),
        ("import site_package_of_the_user", ["No module named 'site_package_of_the_user'"]),
    ],
)
def test_a_bad_generator_fails_with_its_own_words(
    tmp_path: Path, text: str, parts: list[str]
) -> None:
    """Prevents: AITER's habit of ignoring a generator's exit code and compiling leftovers."""
    (tmp_path / "script.py").write_text(f"import sys\nOUT = sys.argv[-1]\n{text}\n")
    with pytest.raises(CodegenError) as error:
        run_in_folder(tmp_path / "script.py", ["--output_dir", "{}"], "script.py --output_dir {}")
    assert "script.py --output_dir {}" in str(error.value)
    assert [part for part in parts if part not in str(error.value)] == []


def test_a_generator_that_ends_in_silence(tmp_path: Path) -> None:
    """Prevents: a traceback for CK's generator if it ends without Python's cleanup."""
    tree = make_tree(tmp_path / "tree")
    generator = tree.root / tree.fmha_dir / "generate.py"
    generator.write_text(generator.read_text() + "\nimport os\nos._exit(0)\n")
    with pytest.raises(CodegenError, match="before it had generated anything"):
        run(tree, tmp_path / "out")


def test_a_tree_of_another_user(tmp_path: Path) -> None:
    """Prevents: a traceback for a file of the tree that only the user who made it may read."""
    text = "raise PermissionError(13, 'Permission denied', '/tree/configs.csv')"
    with pytest.raises(CodegenError, match="shows the owners") as caught:
        run_script(tmp_path, text)
    assert "/tree/configs.csv" in str(caught.value)
    assert "Traceback" not in str(caught.value)
