"""The program of wheels in mode aiter, without PyTorch and without AITER."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from qola.bundle.in_wheel import aiter_modules

LOOK = """\
import importlib.util, os, sys
sys.path[:0] = sys.argv[1:]
from aiter_modules import Hook
sys.meta_path.insert(0, Hook())
print(importlib.util.find_spec("aiter"), "AITER_JIT_DIR" in os.environ)
"""


def test_gpus_of_other_containers(tmp_path: Path) -> None:
    """Prevents: `import aiter` that fails in a container with some of the machine's GPUs."""
    for node, version in enumerate((0, 90402)):
        (tmp_path / str(node)).mkdir()
        text = f"cpu_cores_count 0\ngfx_target_version {version}\n"
        (tmp_path / str(node) / "properties").write_text(text, "utf-8")
    # The driver refuses to read those of other GPUs, also for root.
    (tmp_path / "2/properties").mkdir(parents=True)
    assert aiter_modules.machine_archs(tmp_path) == ["gfx942"]


def test_machines_without_aiter(tmp_path: Path) -> None:
    """Prevents: a server that only asks whether AITER is installed, and gets an error."""
    shutil.copy(aiter_modules.__file__, tmp_path)
    command = [sys.executable, "-I", "-c", LOOK, str(tmp_path)]
    looked = subprocess.run(command, env={}, capture_output=True, text=True, check=False)
    assert (looked.stderr, looked.stdout) == ("", "None False\n")
