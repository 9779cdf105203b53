"""Runs CK's generate.py as it is, and watches what it registers, renders and writes.

Nothing of CK is known here but habits: a class named ``*ApiPool`` collects the rows of a dispatch
by methods named ``register*`` and renders them; an object with a ``filename`` is a kernel. What a
generator writes into its output directory stays in memory, unless it asks for it again.
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
    """A command line that a generator does not take."""

    EXIT_CODE = 2


@dataclass(frozen=True)
class Registered:
    """One registration: the method's name and all it was given, of which the first is the row."""

    method: str
    args: tuple[Any, ...]
    more: dict[str, Any]

    @property
    def row(self) -> Any:
        """What was registered, by position or by keyword."""
        return next(iter((*self.args, *self.more.values())))


@dataclass
class Pool:
    """One pool of a generator.

    Attributes:
        rows: what was registered, in order.
        renders: (name, arguments, text) of each text that the generator took from it.
    """

    make: Callable[[], Any]
    rows: list[Registered] = field(default_factory=list)
    renders: list[tuple[str, tuple[tuple[Any, ...], dict[str, Any]] | None, str]] = field(
        default_factory=list
    )

    def replay(self, rows: Sequence[Registered]) -> list[str]:
        """Return what the generator would have taken from the pool, had it these rows alone."""
        pool = self.make()
        for row in rows:
            getattr(pool, row.method)(*row.args, **row.more)
        return [
            getattr(pool, name) if call is None else getattr(pool, name)(*call[0], **call[1])
            for name, call, _ in self.renders
        ]


@dataclass
class Recording:
    """What one run of a generator did.

    Attributes:
        files: text of what it wrote, by path below the output directory, in order.
        kernels: its kernel objects, by the file's name they gave.
    """

    pools: list[Pool] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    kernels: dict[str, Any] = field(default_factory=dict)


def observe(script: Path, arguments: Sequence[str], output: Path) -> Recording:
    """Run a generator in this process and return what it did.

    Args:
        arguments: its command line, in which `output` is the output directory.
        output: an existing, empty directory.
    """
    try:
        return _observe(script, arguments, output, _kept_in_memory)
    except FileNotFoundError as error:
        if not str(error.filename).startswith(os.path.join(output, "")):
            raise
        # It reads what it wrote, or gives it another name.
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
    watch = _Watch(recording)
    sys.argv, sys.path[:0] = [str(script), *arguments], [str(script.parent)]
    textwrap.indent = indent
    builtins.__build_class__ = functools.partial(_build_class, watch, before[2])
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
        watch.end()
    return recording


def _forget(folder: Path, imported: Container[str]) -> None:
    """Forget what was imported from a folder: the classes a next run makes are watched anew."""
    root = os.path.join(os.path.abspath(folder), "")

    def is_below(module: Any) -> bool:
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        return any(os.path.abspath(place).startswith(root) for place in places if place)

    # A namespace's path asks for its parent: look at all before the first is gone.
    for name in [n for n, m in sys.modules.items() if n not in imported and is_below(m)]:
        del sys.modules[name]


class _Watch:
    """Follows the pools of one run; what happens within a pool's own method is not counted."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._pools: dict[int, tuple[Any, Pool]] = {}
        self._inside = False
        self._undo: list[Callable[[], None]] = []
        self._checks: list[Any] = []

    def made(self, pool: Any, args: tuple[Any, ...], more: dict[str, Any]) -> None:
        if not self._inside and id(pool) not in self._pools:
            found = Pool(lambda: type(pool)(*args, **more))
            self._pools[id(pool)] = pool, found
            self.recording.pools.append(found)

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Give a class another attribute until the run ends."""
        if name in vars(owner):
            self._undo.append(functools.partial(setattr, owner, name, vars(owner)[name]))
        else:
            self._undo.append(functools.partial(delattr, owner, name))
        setattr(owner, name, value)

    def check(self, names: dict[str, Any]) -> None:
        """Have CK's duplicate check grouped, and left out where rows are registered again."""
        own = "check_duplicates_and_paddings"
        check = names.get(own)
        if check is not None and check not in self._checks:
            names[own] = grouped_check(check)
            self._checks.append(names[own])
            self._undo.append(lambda: names.update({own: lambda _traits, _trait: None}))

    def end(self) -> None:
        """Leave pools as they were made: what they do from now on is not counted."""
        for undo in reversed(self._undo):
            undo()

    def within(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, such that nothing it does is counted."""

        def run(*args: Any, **more: Any) -> Any:
            outside, self._inside = self._inside, True
            try:
                return call(*args, **more)
            finally:
                self._inside = outside

        return run

    def called(self, name: str, function: Callable[..., Any], is_property: bool) -> Any:
        """Return the method of a pool, watched."""
        inside = self.within(function)

        @functools.wraps(function)
        def watched(pool: Any, *args: Any, **more: Any) -> Any:
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

        return watched


def _build_class(
    watch: _Watch, build: Callable[..., Any], body: Any, name: str, *bases: Any, **more: Any
) -> Any:
    made = build(body, name, *bases, **more)
    if isinstance(vars(made).get("filename"), property):
        _watch_names(made, watch)
    if name.endswith("ApiPool"):
        _watch_pool(made, watch)
        watch.check(body.__globals__)
    return made


def _watch_names(made: Any, watch: _Watch) -> None:
    get, kernels = made.filename.fget, watch.recording.kernels

    def named(kernel: Any) -> str:
        name: str = get(kernel)
        kernels[name] = kernel
        return name

    watch.put(made, "filename", property(named))


def _watch_pool(made: Any, watch: _Watch) -> None:
    start = made.__init__

    @functools.wraps(start)
    def started(pool: Any, *args: Any, **more: Any) -> None:
        watch.within(start)(pool, *args, **more)
        watch.made(pool, args, more)

    found = {name: value for base in made.__mro__[-2::-1] for name, value in vars(base).items()}
    watch.put(made, "__init__", started)
    for name, value in found.items():
        if isinstance(value, property) and value.fget is not None:
            watch.put(made, name, property(watch.called(name, value.fget, True)))
        elif inspect.isfunction(value) and not name.startswith("__"):
            watch.put(made, name, watch.called(name, value, False))


class _Written(io.StringIO):
    """A text file that goes into a dictionary when it is closed."""

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
    """Keep the text files that are written below a directory; others go where they always do."""
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
    # What got past these functions is on the disk.
    with _kept_on_disk(output, files):
        pass


@contextlib.contextmanager
def _kept_on_disk(output: Path, files: dict[str, str]) -> Iterator[None]:
    """Take the files that are in a directory in the end out of it."""
    yield
    for path in sorted(filter(Path.is_file, output.rglob("*"))):
        files.setdefault(path.relative_to(output).as_posix(), path.read_text(encoding="utf-8"))
        path.unlink()


def indent(text: str, prefix: str, predicate: Callable[[str], bool] | None = None) -> str:
    """Do what `textwrap.indent` does, which took twice the time before Python 3.14."""
    lines = text.splitlines(keepends=True)
    if predicate is None:
        return "".join([line if line.isspace() else prefix + line for line in lines])
    return "".join([prefix + line if predicate(line) else line for line in lines])


def grouped_check(check: Callable[[list[Any], Any], None]) -> Callable[[list[Any], Any], None]:
    """Return CK's duplicate check, given only the traits it would not skip.

    CK compares every new trait with all earlier ones and skips those that differ in any field but
    padding: 10 s for the backward direction. Grouping by those fields first gives it the same
    candidates in linear time. Within a group only paddings are left to compare, and groups repeat
    each other's: what it has allowed once is not asked again.
    """
    groups: dict[int, tuple[list[Any], dict[str, list[Any]]]] = {}
    allowed: set[Any] = set()
    names_of: dict[type, tuple[list[str], list[str]]] = {}

    def group(by_key: dict[str, list[Any]], trait: Any) -> tuple[list[Any], Any]:
        """Return the traits that differ in paddings alone, and what these are."""
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
