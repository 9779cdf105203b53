"""Lists the modules here for AITER's own Python, and compares the machine with their record.

A wheel has this file, and so has the directory that ``qola build`` makes. It needs only Python.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.abc
import importlib.util
import json
import os
import platform
import re
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
VARIABLE = "AITER_JIT_DIR"
FUNCTIONS = "AITER_ROOT_DIR"
"""Variable with the directory above build/, where AITER's second JIT, csrc/cpp_itfs, looks."""
KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")


def record() -> dict[str, Any]:
    """Return manifest.json."""
    return dict(json.loads((HERE / "manifest.json").read_text(encoding="utf-8")))


def directory() -> Path:
    """Return the directory for AITER_JIT_DIR."""
    return HERE / "aiter_jit"


def machine_archs(nodes: Path = KFD_NODES) -> list[str]:
    """Return the archs of this machine's GPUs, as its driver reports them; [] if there is none.

    A container may read the files of its own GPUs only.
    """
    found = set()
    for file in nodes.glob("*/properties"):
        try:
            text = file.read_text("utf-8")
        except OSError:
            continue
        match = re.search(r"^gfx_target_version (\d+)$", text, re.MULTILINE)
        if match and int(match[1]):
            major, rest = divmod(int(match[1]), 10000)
            found.add(f"gfx{major}{rest // 100:x}{rest % 100:x}")
    return sorted(found)


def differences(nodes: Path = KFD_NODES) -> list[str]:
    """Return how Python, PyTorch, AITER and GPUs differ from those that the modules are for."""
    bundle = record()
    built, aiter = bundle["aiter_jit"], bundle["inputs"]["aiter"]
    found = []
    if platform.python_version_tuple()[:2] != tuple(built["python"].split(".")):
        found.append(f"Python {platform.python_version()}, built for {built['python']}")
    try:
        import torch  # noqa: PLC0415
    except ImportError:
        found.append(f"no PyTorch, built for {built['torch']}")
    else:
        if str(torch.__version__) != built["torch"]:
            found.append(f"PyTorch {torch.__version__}, built for {built['torch']}")
    name = f"AITER {aiter['id'] or aiter['version']}".strip()
    spec = importlib.util.find_spec("aiter")
    if spec is None or not spec.submodule_search_locations:
        found.append(f"no AITER, built for {name}")
    else:
        root = Path(next(iter(spec.submodule_search_locations))).parent
        different = [
            file for file, digest in built["files"].items() if _sha256(root / file) != digest
        ]
        if different:
            more = f" and {len(different) - 1} more" if len(different) > 1 else ""
            found.append(f"another AITER in {root} ({different[0]}{more}), built for {name}")
    archs = machine_archs(nodes)
    if archs and not {*archs} & {*bundle["archs"]}:
        found.append(f"{', '.join(archs)}, built for {', '.join(bundle['archs'])}")
    return found


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def explain(found: list[str]) -> str:
    """Return an error about differences."""
    lines = "".join(f"\n  {line}" for line in found)
    return (
        f"the modules in {HERE} are for something else:{lines}\n"
        f"build them again for this (qola build --wheel), or remove them; {VARIABLE} names another "
        "directory"
    )


class Hook:
    """Sets variables for AITER when it is about to be imported, unless AITER_JIT_DIR is set."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find nothing, or a module whose import fails if Python, PyTorch, AITER or GPU differ.

        Servers that only ask whether AITER is installed do not import it.
        """
        if name != "aiter" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        if VARIABLE in os.environ or importlib.util.find_spec(name) is None:
            return None
        found = differences()
        if found:
            sys.meta_path.insert(0, self)
            return ModuleSpec(name, _Refusal(explain(found)))
        os.environ[VARIABLE] = str(directory())
        if any("call" in module for module in record()["modules"]):
            os.environ.setdefault(FUNCTIONS, str(directory()))
        return None


class _Refusal(importlib.abc.Loader):
    def __init__(self, why: str) -> None:
        self._why = why

    def exec_module(self, module: ModuleType) -> None:
        raise ImportError(self._why)


def main() -> int:
    """List or check the modules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "command",
        nargs="?",
        default="modules",
        choices=("modules", "check", "path"),
        help="modules: list them (default); check: compare this Python, its PyTorch and AITER, and "
        "the GPUs with those that they are for; path: print the directory for AITER_JIT_DIR, and "
        "for AITER_ROOT_DIR if there are functions of csrc/cpp_itfs",
    )
    command = parser.parse_args().command
    if command == "path":
        print(directory())
    elif command == "check":
        # A Hook that refuses AITER hides where AITER is.
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Hook)]
        if found := differences():
            print(explain(found), file=sys.stderr)
            return 1
    else:
        bundle = record()
        built, aiter = bundle["aiter_jit"], bundle["inputs"]["aiter"]
        print(
            f"AITER {aiter['id'] or aiter['version']}, PyTorch {built['torch']}, Python "
            f"{built['python']}, {', '.join(bundle['archs'])}"
        )
        for module in bundle["modules"]:
            print(f"{module['name']}: {module['size'] / 1e6:.2f} MB, {module['sha256'][:16]}")
            for name in (*module.get("names", ()), *filter(None, [module.get("call")])):
                print(f"  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
