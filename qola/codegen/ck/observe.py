"""Runs CK's generate.py unmodified, and records its registrations, texts and files.

The recorder only relies on naming habits of CK: a class named ``*ApiPool`` collects the rows of a
dispatch with methods named ``register*`` and renders them; an object with a ``filename`` is a
kernel. Files in the output directory stay in memory, unless the generator reads them again.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
import io
import os
import pathlib
import runpy
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class UsageError(Exception):
    """A generator rejects its command line."""

    EXIT_CODE = 2


@dataclass(frozen=True)
class Registered:
    """One call of a pool's method `register*`. Its first argument is the row of the dispatch."""

    method: str
    args: tuple[Any, ...]
    more: dict[str, Any]

    @property
    def row(self) -> Any:
        """The registered object, passed by position or by keyword."""
        return next(iter((*self.args, *self.more.values())))


@dataclass
class Pool:
    """One pool of a generator.

    Attributes:
        rows: the registrations, in order.
        renders: (name, arguments, text) of each text that the generator took from the pool.
    """

    make: Callable[[], Any]
    rows: list[Registered] = field(default_factory=list)
    renders: list[tuple[str, tuple[tuple[Any, ...], dict[str, Any]] | None, str]] = field(
        default_factory=list
    )

    def replay(self, rows: Sequence[Registered]) -> list[str]:
        """Render the texts of a new pool that has only these rows."""
        pool = self.make()
        for row in rows:
            getattr(pool, row.method)(*row.args, **row.more)
        return [
            getattr(pool, name) if call is None else getattr(pool, name)(*call[0], **call[1])
            for name, call, _ in self.renders
        ]


@dataclass
class Recording:
    """The record of one run of a generator.

    Attributes:
        files: texts of the written files, by path below the output directory, in order.
        kernels: the kernel objects, by their file names.
    """

    pools: list[Pool] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    kernels: dict[str, Any] = field(default_factory=dict)


def observe(script: Path, arguments: Sequence[str], output: Path) -> Recording:
    """Run a generator in this process, and record it.

    Args:
        output: an existing, empty directory, which the command line names.
    """
    try:
        return _observe(script, arguments, output, _kept_in_memory)
    except FileNotFoundError as error:
        if not str(error.filename).startswith(os.path.join(output, "")):
            raise
        # It reads or renames a file that it wrote.
        return _observe(script, arguments, output, _kept_on_disk)


def _observe(
    script: Path,
    arguments: Sequence[str],
    output: Path,
    keep: Callable[[Path, dict[str, str]], AbstractContextManager[None]],
) -> Recording:
    recording = Recording()
    before = sys.argv, list(sys.path), builtins.__build_class__
    imported = set(sys.modules)
    recorder = _Recorder(recording, before[2])
    sys.argv, sys.path[:0] = [str(script), *arguments], [str(script.parent)]
    builtins.__build_class__ = recorder.build_class  # type: ignore[assignment]
    try:
        with keep(output, recording.files):
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code == UsageError.EXIT_CODE:
            raise UsageError(f"{script.name} does not take {' '.join(arguments)}") from end
        if end.code not in (None, 0):
            raise RuntimeError(f"{script.name} ended with {end.code}") from end
    finally:
        sys.argv, sys.path[:], builtins.__build_class__ = before
        _forget(script.parent, imported)
        recorder.end()
    return recording


def _forget(folder: Path, imported: Container[str]) -> None:
    """Unload the modules of a folder, so that the next run creates their classes again."""
    root = os.path.join(os.path.abspath(folder), "")

    def is_below(module: Any) -> bool:
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        return any(os.path.abspath(place).startswith(root) for place in places if place)

    # A namespace package looks up its parent: inspect all modules before the first is removed.
    for name in [n for n, m in sys.modules.items() if n not in imported and is_below(m)]:
        del sys.modules[name]


class _Recorder:
    """Records the pools of one run. Calls from within a pool's own method are not recorded."""

    def __init__(self, recording: Recording, build: Callable[..., Any]) -> None:
        self._recording, self._build = recording, build
        self._pools: dict[int, tuple[Any, Pool]] = {}
        self._inside = False
        self._ended = False

    def end(self) -> None:
        """Record nothing further: rows are registered and rendered again later."""
        self._inside = self._ended = True

    def build_class(self, body: Any, name: str, *bases: Any, **more: Any) -> Any:
        """Build a class as `builtins.__build_class__`, and record its objects."""
        made = self._build(body, name, *bases, **more)
        if isinstance(named := vars(made).get("filename"), property):
            made.filename = property(self._recorded_name(named.fget))
        if name.endswith("ApiPool"):
            self._record_pool(made)
            # CK's check of each row against all earlier ones takes 10 s for the backward, and
            # `reachable` finds the rows that it refuses.
            if "check_duplicates_and_paddings" in body.__globals__:
                body.__globals__["check_duplicates_and_paddings"] = lambda _traits, _trait: None
        return made

    def _recorded_name(self, get: Any) -> Callable[[Any], str]:
        def named(kernel: Any) -> str:
            name: str = get(kernel)
            if not self._ended:
                self._recording.kernels[name] = kernel
            return name

        return named

    def _record_pool(self, made: Any) -> None:
        start = made.__init__

        @functools.wraps(start)
        def started(pool: Any, *args: Any, **more: Any) -> None:
            self._run_inside(start, pool, *args, **more)
            if not self._inside and id(pool) not in self._pools:
                found = Pool(lambda: type(pool)(*args, **more))
                self._pools[id(pool)] = pool, found
                self._recording.pools.append(found)

        found = {name: value for base in made.__mro__[-2::-1] for name, value in vars(base).items()}
        made.__init__ = started
        for name, value in found.items():
            if isinstance(value, property) and value.fget is not None:
                setattr(made, name, property(self._recorded(name, value.fget, True)))
            elif inspect.isfunction(value) and not name.startswith("__"):
                setattr(made, name, self._recorded(name, value, False))

    def _recorded(self, name: str, function: Callable[..., Any], is_property: bool) -> Any:
        """Wrap a method of a pool so that it records its calls."""

        @functools.wraps(function)
        def method(pool: Any, *args: Any, **more: Any) -> Any:
            if self._inside:
                return function(pool, *args, **more)
            result = self._run_inside(function, pool, *args, **more)
            if id(pool) in self._pools:
                found = self._pools[id(pool)][1]
                if name.startswith("register"):
                    found.rows.append(Registered(name, args, more))
                elif isinstance(result, str):
                    found.renders.append((name, None if is_property else (args, more), result))
            return result

        return method

    def _run_inside(self, call: Callable[..., Any], *args: Any, **more: Any) -> Any:
        """Call a function without recording the calls in it."""
        outside, self._inside = self._inside, True
        try:
            return call(*args, **more)
        finally:
            self._inside = outside


class _Written(io.StringIO):
    """A text file that is stored in a dictionary when it is closed."""

    def __init__(self, files: dict[str, str], name: str, before: str) -> None:
        super().__init__()
        self.write(before)
        self._files, self._name = files, name

    def close(self) -> None:
        if not self.closed:
            self._files[self._name] = self.getvalue()
        super().close()


@contextlib.contextmanager
def _kept_in_memory(output: Path, files: dict[str, str]) -> Iterator[None]:
    """Keep text files that are written below a directory in memory."""
    root = os.path.join(os.path.abspath(output), "")
    before = builtins.open, io.open, pathlib.Path.open

    def opened(file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
        if mode in ("w", "wt", "a", "at") and isinstance(file, (str, os.PathLike)):
            path = os.path.abspath(file)
            if path.startswith(root):
                name = path[len(root) :]
                return _Written(files, name, files.get(name, "") if mode[0] == "a" else "")
        return before[0](file, mode, *args, **more)

    builtins.open = io.open = opened
    pathlib.Path.open = opened  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        builtins.open, io.open, pathlib.Path.open = before  # type: ignore[method-assign]
    # Files written in another way are on disk.
    with _kept_on_disk(output, files):
        pass


@contextlib.contextmanager
def _kept_on_disk(output: Path, files: dict[str, str]) -> Iterator[None]:
    """Move the files of a directory into memory at the end."""
    yield
    for path in sorted(filter(Path.is_file, output.rglob("*"))):
        files.setdefault(path.relative_to(output).as_posix(), path.read_text(encoding="utf-8"))
        path.unlink()
