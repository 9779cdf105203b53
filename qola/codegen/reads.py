"""What a generator reads, seen from within its process.

An answer may be kept only if all that decides it is in its key. The key has the files beside the
generator; whether it looked at anything else is observed, never supposed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

#: Events of Python by which a process learns nothing of the machine. An unknown one may be more.
_HARMLESS = frozenset(
    {
        "builtins.id",
        "code.__new__",
        "compile",
        "exec",
        "function.__new__",
        "glob.glob",
        "glob.glob/2",
        "import",
        "marshal.loads",
        "object.__delattr__",
        "object.__getattr__",
        "object.__setattr__",
        "os.mkdir",
        "os.remove",
        "os.walk",
        "pathlib.Path.glob",
        "pathlib.Path.rglob",
        "pathlib.Path.walk",
        "sys._getframe",
        "sys._getframemodulename",
    }
)

_FILES = frozenset({"open", "os.listdir", "os.scandir"})

#: qola's own files are in the key, and so are the names beside it.
_QOLA = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_BESIDE = os.path.dirname(_QOLA)

#: Python's own modules, by whose version the key goes; what others install is not among them.
_PYTHON = os.path.join(os.path.dirname(os.path.abspath(os.__file__)), "")
_INSTALLED = (f"{_PYTHON}site-packages/", f"{_PYTHON}dist-packages/")


class Reads:
    """Names what this process reads from now on, but Python, qola and what is in some folders."""

    def __init__(self, folders: Sequence[str]) -> None:
        """Watch.

        Args:
            folders: absolute paths; what the process has to itself.
        """
        # Byte code is looked for below /dev/null (qola.codegen.bytecode), where nothing is.
        own = (_QOLA, os.devnull, *folders)
        self._own = (*(os.path.join(folder, "") for folder in own), _PYTHON)
        self._found: dict[str, None] = {}
        self._done = False
        sys.addaudithook(self._hook)

    def end(self) -> list[str]:
        """Stop watching; return paths, and events that name none as words in angle brackets."""
        self._done = True
        return list(self._found)

    def _hook(self, event: str, args: tuple[object, ...]) -> None:
        if self._done or event in _HARMLESS:
            return
        path = args[0] if event in _FILES else None
        if isinstance(path, (str, bytes, os.PathLike)):
            name = os.fsdecode(path)
            whole = os.path.abspath(name)
            # ".." behind a link leads elsewhere than the name says.
            if os.pardir in name and os.path.realpath(name) != os.path.realpath(whole):
                self._found[name] = None
            elif not self._is_own(whole):
                self._found[whole] = None
        elif not isinstance(path, int):  # a number was opened before
            self._found[f"<{event}>"] = None

    def _is_own(self, path: str) -> bool:
        below = os.path.join(path, "")
        return path == _BESIDE or (below.startswith(self._own) and not below.startswith(_INSTALLED))
