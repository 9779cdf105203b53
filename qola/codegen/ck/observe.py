"""Runs CK's generate.py unmodified, and records its registrations, texts and files.

The recorder only relies on naming habits of CK: a class named ``*ApiPool`` collects the rows of a
dispatch with methods named ``register*`` and renders them; an object with a ``filename`` is a
kernel. Files in the output directory stay in memory, unless the generator reads them again.
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import functools
import inspect
import io
import os
import pathlib
import runpy
import sys
import textwrap
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
        arguments: its command line, which names `output`.
        output: an existing, empty directory.
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
    recorder = _Recorder(recording)
    sys.argv, sys.path[:0] = [str(script), *arguments], [str(script.parent)]
    textwrap.indent = indent
    builtins.__build_class__ = functools.partial(_build_class, recorder, before[2])
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

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._pools: dict[int, tuple[Any, Pool]] = {}
        self._inside = False
        self._undo: list[Callable[[], None]] = []
        self._checks: list[Any] = []

    def add_pool(self, pool: Any, args: tuple[Any, ...], more: dict[str, Any]) -> None:
        if not self._inside and id(pool) not in self._pools:
            found = Pool(lambda: type(pool)(*args, **more))
            self._pools[id(pool)] = pool, found
            self.recording.pools.append(found)

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute of a class until the run ends."""
        if name in vars(owner):
            self._undo.append(functools.partial(setattr, owner, name, vars(owner)[name]))
        else:
            self._undo.append(functools.partial(delattr, owner, name))
        setattr(owner, name, value)

    def check(self, names: dict[str, Any]) -> None:
        """Group CK's duplicate check, and skip it when rows are registered again."""
        own = "check_duplicates_and_paddings"
        check = names.get(own)
        if check is not None and check not in self._checks:
            names[own] = grouped_check(check)
            self._checks.append(names[own])
            self._undo.append(lambda: names.update({own: lambda _traits, _trait: None}))

    def end(self) -> None:
        """Restore the classes of the pools."""
        for undo in reversed(self._undo):
            undo()

    def within(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function so that its calls are not recorded."""

        def run(*args: Any, **more: Any) -> Any:
            outside, self._inside = self._inside, True
            try:
                return call(*args, **more)
            finally:
                self._inside = outside

        return run

    def recorded(self, name: str, function: Callable[..., Any], is_property: bool) -> Any:
        """Wrap a method of a pool so that it records its calls."""
        inside = self.within(function)

        @functools.wraps(function)
        def method(pool: Any, *args: Any, **more: Any) -> Any:
            if self._inside:
                return function(pool, *args, **more)
            result = inside(pool, *args, **more)
            if id(pool) in self._pools:
                found = self._pools[id(pool)][1]
                if name.startswith("register"):
                    found.rows.append(Registered(name, args, more))
                elif isinstance(result, str):
                    found.renders.append((name, None if is_property else (args, more), result))
            return result

        return method


def _build_class(
    recorder: _Recorder, build: Callable[..., Any], body: Any, name: str, *bases: Any, **more: Any
) -> Any:
    made = build(body, name, *bases, **more)
    if isinstance(vars(made).get("filename"), property):
        _record_names(made, recorder)
    if name.endswith("ApiPool"):
        _record_pool(made, recorder)
        recorder.check(body.__globals__)
    return made


def _record_names(made: Any, recorder: _Recorder) -> None:
    get, kernels = made.filename.fget, recorder.recording.kernels

    def named(kernel: Any) -> str:
        name: str = get(kernel)
        kernels[name] = kernel
        return name

    recorder.put(made, "filename", property(named))


def _record_pool(made: Any, recorder: _Recorder) -> None:
    start = made.__init__

    @functools.wraps(start)
    def started(pool: Any, *args: Any, **more: Any) -> None:
        recorder.within(start)(pool, *args, **more)
        recorder.add_pool(pool, args, more)

    found = {name: value for base in made.__mro__[-2::-1] for name, value in vars(base).items()}
    recorder.put(made, "__init__", started)
    for name, value in found.items():
        if isinstance(value, property) and value.fget is not None:
            recorder.put(made, name, property(recorder.recorded(name, value.fget, True)))
        elif inspect.isfunction(value) and not name.startswith("__"):
            recorder.put(made, name, recorder.recorded(name, value, False))


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


def indent(text: str, prefix: str, predicate: Callable[[str], bool] | None = None) -> str:
    """Replace `textwrap.indent`, which took twice the time before Python 3.14."""
    lines = text.splitlines(keepends=True)
    if predicate is None:
        return "".join([line if line.isspace() else prefix + line for line in lines])
    return "".join([prefix + line if predicate(line) else line for line in lines])


def grouped_check(check: Callable[[list[Any], Any], None]) -> Callable[[list[Any], Any], None]:
    """Wrap CK's duplicate check so that it only gets traits that it would not skip.

    CK compares every new trait with all earlier ones and skips those that differ in a field other
    than padding: 10 s for the backward direction. Grouping by these fields first finds the same
    candidates in linear time. Within a group only paddings differ, and groups repeat combinations
    of them, so that each allowed combination is checked once.
    """
    groups: dict[int, tuple[list[Any], dict[str, list[Any]]]] = {}
    allowed: set[Any] = set()
    names_of: dict[type, tuple[list[str], list[str]]] = {}

    def group(by_key: dict[str, list[Any]], trait: Any) -> tuple[list[Any], Any]:
        """Return the earlier traits that differ only in padding, and all their paddings."""
        kind = type(trait)
        if kind not in names_of:
            names = [f.name for f in dataclasses.fields(trait)]
            padded = [name for name in names if "pad" in name]
            names_of[kind] = [name for name in names if name not in padded], padded
        fixed, padded = names_of[kind]
        same = by_key.setdefault(repr([getattr(trait, name) for name in fixed]), [])
        pads = [repr([getattr(one, name) for name in padded]) for one in [*same, trait]]
        return same, (kind, tuple(pads))

    def checked(traits: list[Any], trait: Any) -> None:
        if not traits:
            check(traits, trait)
            return
        if id(traits) not in groups:
            # The list is kept as well, so that its id is not used again while the entry lives.
            by_key: dict[str, list[Any]] = {}
            groups[id(traits)] = traits, by_key
            for earlier in traits:
                same, pads = group(by_key, earlier)
                same.append(earlier)
                allowed.add(pads)
        same, pads = group(groups[id(traits)][1], trait)
        if pads not in allowed:
            check(same, trait)
            allowed.add(pads)
        same.append(trait)

    return checked
