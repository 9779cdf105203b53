"""The import hook of wheels in mode aiter, without PyTorch and AITER."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from runtime.wheel import aiter_modules

LOOK = """\
import importlib.util, os, sys
sys.path[:0] = sys.argv[1:]
from aiter_modules import Hook
sys.meta_path.insert(0, Hook())
print(importlib.util.find_spec("aiter") is not None, "AITER_JIT_DIR" in os.environ)
import aiter
"""


def import_aiter(directory: Path) -> tuple[str, str]:
    """Find and import AITER in a Python with the packages of a directory."""
    shutil.copy(aiter_modules.__file__, directory)
    command = [sys.executable, "-I", "-c", LOOK, str(directory)]
    result = subprocess.run(command, env={}, capture_output=True, text=True, check=False)
    return result.stdout, result.stderr


def test_gpus_of_other_containers(tmp_path: Path) -> None:
    """Prevents: `import aiter` fails in a container that has access to some of the GPUs."""
    for node, version in enumerate((0, 90402)):
        (tmp_path / str(node)).mkdir()
        text = f"cpu_cores_count 0\ngfx_target_version {version}\n"
        (tmp_path / str(node) / "properties").write_text(text, "utf-8")
    # The driver rejects reads of other GPUs' properties, also by root.
    (tmp_path / "2/properties").mkdir(parents=True)
    assert aiter_modules.machine_archs(tmp_path) == ["gfx942"]


def test_machines_without_aiter(tmp_path: Path) -> None:
    """Prevents: a server that checks whether AITER is installed gets an error."""
    out, err = import_aiter(tmp_path)
    assert out == "False False\n"
    assert err.endswith("ModuleNotFoundError: No module named 'aiter'\n")


def test_functions_of_the_second_jit(tmp_path: Path) -> None:
    """Prevents: AITER compiles functions because it only searches the home directory."""
    torch = tmp_path / "torch.py"
    torch.write_text("__version__ = '2'\n", "utf-8")
    (tmp_path / "aiter").mkdir()
    (tmp_path / "aiter/__init__.py").write_text(
        "import os\nprint(os.environ['AITER_JIT_DIR'], os.environ.get('AITER_ROOT_DIR'))\n", "utf-8"
    )
    python = ".".join(map(str, sys.version_info[:2]))
    built = {"python": python, "torch": "2", "files": {}}
    inputs = {"aiter": {"id": "0.1.7", "version": ""}}
    module = {"name": "pa_1", "call": "pa(mtp=1)"}
    directory = str(tmp_path / "aiter_jit")
    for modules, root in (([module], directory), ([{"name": "module_norm"}], "None")):
        bundle = {"aiter_jit": built, "inputs": inputs, "archs": ["gfx942"], "modules": modules}
        (tmp_path / "manifest.json").write_text(json.dumps(bundle), "utf-8")
        out, err = import_aiter(tmp_path)
        assert (out.splitlines()[-1], err) == (f"{directory} {root}", "")


def test_modules_for_another_environment(tmp_path: Path) -> None:
    """Prevents: a server that looks for AITER without using it does not start."""
    built = {"python": "3.1", "torch": "2", "files": {"aiter/__init__.py": "of another one"}}
    inputs = {"aiter": {"id": "0.1.7", "version": ""}}
    bundle = {"aiter_jit": built, "inputs": inputs, "archs": ["gfx942"]}
    (tmp_path / "manifest.json").write_text(json.dumps(bundle), "utf-8")
    (tmp_path / "aiter").mkdir()
    (tmp_path / "aiter/__init__.py").write_text("print('imported')\n", "utf-8")
    out, err = import_aiter(tmp_path)
    assert out == "True False\n"
    for expected in ("ImportError: ", "built for 3.1\n", "PyTorch", "built for AITER 0.1.7\n"):
        assert expected in err
