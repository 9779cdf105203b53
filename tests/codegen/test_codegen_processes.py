"""Generators that fail, hang, write too much, or outlive qola."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from qola.codegen import process
from qola.codegen.asm.script import run_script as run_aiter_script
from qola.codegen.process import run_module
from qola.common.processes import thread_pool
from qola_base.errors import CodegenError
from tests.codegen.fake_ck import make_tree
from tests.codegen.generating import run
from tests.support.waiting import wait_for

#: A script that creates a file when it starts, then runs for ten minutes with a child process.
ENDLESS = """\
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]])
open(sys.argv[1] + "/started", "w").close()
time.sleep(600)
"""


def run_script(folder: Path, text: str) -> None:
    (folder / "script.py").write_text(text)
    arguments = [str(folder / "seen"), "--archs=gfx950", str(folder / "script.py"), str(folder)]
    run_module("qola.codegen.asm.run_script", arguments, cwd=folder, place="script.py")


def find_processes(folder: Path) -> list[bytes]:
    """Return the command lines of processes that have a directory as an argument."""
    argument, commands = os.fsencode(folder) + b"\0", []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes()
        except OSError:  # the process has ended
            continue
        commands += [command] if argument in command else []
    return commands


def test_generator_ends_with_a_killed_parent(tmp_path: Path) -> None:
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
        assert len(find_processes(tmp_path)) == 3
        parent.kill()
    wait_for(lambda: not find_processes(tmp_path))


def test_signal_ends_generators_of_all_threads(tmp_path: Path) -> None:
    """Prevents: a signal in the main thread that waits until generators of other threads end."""

    def run_endless(folder: Path) -> None:
        folder.mkdir()
        run_script(folder, ENDLESS)

    def work(number: int) -> None:
        # The planner has a thread for each module, which has threads for its generators.
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
    wait_for(lambda: not [name for folder in folders for name in find_processes(folder)])
    assert len(list(tmp_path.glob("*/started"))) == 4, "one was started after the signal"


def test_generator_has_a_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: an endless wait for a generator's child, or after a generator closes its output."""
    monkeypatch.setattr(process, "TIMEOUT", 1)
    for text in (ENDLESS, "import os, time\nos.close(1); os.close(2)\ntime.sleep(600)"):
        with pytest.raises(CodegenError, match="no end after 1 s"):
            run_script(tmp_path, text)
        wait_for(lambda: not find_processes(tmp_path))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("while True: print('x' * 10_000)", "more than 16 MiB of messages"),
        ("open('x', 'w').truncate(2 << 30)", "File too large"),
        ("x = bytearray(9 << 30)", "MemoryError"),
    ],
)
def test_generator_resources_are_limited(tmp_path: Path, text: str, found: str) -> None:
    """Prevents: memory or a disk filled by a generator in a loop."""
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
def test_failing_generator_is_an_error_with_its_output(
    tmp_path: Path, text: str, parts: list[str]
) -> None:
    """Prevents: leftovers of a failed generator compiled, since AITER ignores its exit code."""
    (tmp_path / "script.py").write_text(f"import sys\nOUT = sys.argv[-1]\n{text}\n")
    with pytest.raises(CodegenError) as error:
        run_aiter_script(
            tmp_path / "script.py", ["--output_dir", "{}"], "script.py --output_dir {}"
        )
    assert "script.py --output_dir {}" in str(error.value)
    assert [part for part in parts if part not in str(error.value)] == []


def test_generator_that_exits_early(tmp_path: Path) -> None:
    """Prevents: a traceback if CK's generator calls os._exit."""
    tree = make_tree(tmp_path / "tree")
    generator = tree.root / tree.fmha_dir / "generate.py"
    generator.write_text(generator.read_text() + "\nimport os\nos._exit(0)\n")
    with pytest.raises(CodegenError, match="before it had generated anything"):
        run(tree, tmp_path / "out")


def test_unreadable_tree_is_an_error(tmp_path: Path) -> None:
    """Prevents: a traceback for a file of the tree that only another user may read."""
    text = "raise PermissionError(13, 'Permission denied', '/tree/configs.csv')"
    with pytest.raises(CodegenError, match="shows the owners") as caught:
        run_script(tmp_path, text)
    assert "/tree/configs.csv" in str(caught.value)
    assert "Traceback" not in str(caught.value)
