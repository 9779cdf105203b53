"""Records which modules AITER's Python requests, and writes a manifest that builds them.

    python -m qola.aiter_record [-o aiter.toml] -- vllm serve MODEL ...
    python aiter_record.py --from aiter.jsonl -o aiter.toml

This file needs only Python's own modules, 3.10 or later, and no other file of qola: copy it into an
image. It runs the command with a sitecustomize.py on PYTHONPATH, so that child processes are
recorded, too. Each process appends a line to the record before AITER imports or compiles a module.
A killed process loses nothing. Nothing that AITER does or returns changes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.machinery
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, ModuleType
from typing import Any

_HOOK = "sitecustomize"
_OWN = os.path.dirname(os.path.realpath(__file__))
# Beside this file are the hook, or packages of qola with names of Python's own modules.
sys.path[:] = [place for place in sys.path if os.path.realpath(place) != _OWN]

if __name__ != _HOOK:
    # Other processes do not need these.
    import argparse
    import shlex
    import shutil
    import signal
    import subprocess
    import tempfile
    from pathlib import Path

VARIABLE = "QOLA_AITER_RECORD"
"""Names the record's file, an absolute path, in each recorded process."""

#: A line of a record, before its values are checked.
_Values = dict[str, Any]

_FIRST_LINE = "# Written by qola.aiter_record"
#: AITER's modules with functions that request kernels.
_CORE, _CPP_ITFS = "aiter.jit.core", "csrc.cpp_itfs.utils"
#: Begins the names of the modules whose `compile` calls the second JIT.
_FUNCTIONS = "csrc.cpp_itfs."
#: Arguments of `compile` that replace a library's name.
_NAMING = ("func_name", "folder")
_DISTRIBUTIONS = ("amd-aiter", "aiter")
#: Most bytes of a record, which other users' processes may append to; a server writes some kB.
_MOST_BYTES = 64 << 20
#: Integers of a function's arguments: those of C++.
_INTEGERS = range(-(2**63), 2**63)
_NOT_FOUND, _NOT_EXECUTABLE, _USAGE, _SIGNALLED = 127, 126, 2, 128

# ---- In each recorded process.


class _Recorder:
    """Appends requests to the record, each once in a process."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._seen: set[str] = set()

    def note(self, event: str, **values: Any) -> None:
        """Append a request; the program goes on if that fails."""
        try:
            line = json.dumps({"event": event, **values}, default=str)
            if line in self._seen:
                return
            self._seen.add(line)
            # A line of its own even behind a line that was cut off.
            data = f"\n{line}\n".encode("utf-8", "backslashreplace")
            flags = os.O_APPEND | os.O_CREAT | os.O_WRONLY | getattr(os, "O_CLOEXEC", 0)
            handle = os.open(self._file, flags, 0o666)
            try:
                os.write(handle, data)
            finally:
                os.close(handle)
        except Exception as error:
            # A recorder must not end a server.
            if "" not in self._seen:
                self._seen.add("")
                with contextlib.suppress(OSError, ValueError):
                    words = getattr(error, "strerror", None) or error
                    print(f"qola.aiter_record: {self._file}: {words}", file=sys.stderr)


def _before(module: ModuleType, name: str, note: Callable[..., None]) -> None:
    """Call `note` with the arguments before each call of a function of a module."""
    original = getattr(module, name, None)
    if not callable(original):
        return

    @functools.wraps(original)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            note(*args, **kwargs)
        return original(*args, **kwargs)

    _replace(module, name, original, recorded)


def _replace(module: ModuleType, name: str, original: Any, recorded: Any) -> None:
    """Put a wrapper in the place of a function, with the methods of functools.lru_cache."""
    for method in ("cache_clear", "cache_info", "cache_parameters"):
        if hasattr(original, method):
            setattr(recorded, method, getattr(original, method))
    setattr(module, name, recorded)


def _record_core(module: ModuleType, recorder: _Recorder) -> None:
    """Record the modules that AITER's JIT is asked for, and those it compiles."""
    recorder.note(
        "aiter",
        version=_aiter_version(),
        archs=_archs(),
        python=".".join(map(str, sys.version_info[:2])),
        torch=str(getattr(sys.modules.get("torch"), "__version__", "")),
    )
    _before(module, "get_module", lambda md_name, *_, **__: recorder.note("module", name=md_name))
    _before(module, "build_module", lambda md_name, *_, **__: recorder.note("build", name=md_name))
    _record_variants(module, recorder)
    _record_ctypes(module, recorder)


def _record_variants(module: ModuleType, recorder: _Recorder) -> None:
    """Record the name that a module's generator function makes of the arguments of a call."""
    original = getattr(module, "compile_ops", None)
    if not callable(original):
        return

    @functools.wraps(original)
    def compile_ops(*args: Any, **kwargs: Any) -> Any:
        # compile_ops(_md_name, fc_name=None, gen_func=None, ...)
        base = args[0] if args else kwargs.get("_md_name")
        if len(args) > 2:
            args = (*args[:2], _recorded_variant(args[2], base, recorder), *args[3:])
        elif "gen_func" in kwargs:
            kwargs["gen_func"] = _recorded_variant(kwargs["gen_func"], base, recorder)
        return original(*args, **kwargs)

    _replace(module, "compile_ops", original, compile_ops)


def _recorded_variant(gen_func: Any, base: Any, recorder: _Recorder) -> Any:
    if not callable(gen_func):
        return gen_func

    @functools.wraps(gen_func)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        found = gen_func(*args, **kwargs)
        with contextlib.suppress(Exception):
            if "md_name" in found:
                recorder.note("variant", module=base, name=found["md_name"])
        return found

    return recorded


def _record_ctypes(module: ModuleType, recorder: _Recorder) -> None:
    """Record modules that AITER opens with ctypes, when one of their functions is called."""
    original = getattr(module, "_ctypes_call", None)
    if not callable(original):
        return

    @functools.wraps(original)
    def ctypes_call(func: Any, fc_name: Any, md_name: Any, *args: Any, **kwargs: Any) -> Any:
        caller = original(func, fc_name, md_name, *args, **kwargs)

        @functools.wraps(caller)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            recorder.note("module", name=md_name)
            return caller(*args, **kwargs)

        return recorded

    _replace(module, "_ctypes_call", original, ctypes_call)


def _record_cpp_itfs(module: ModuleType, recorder: _Recorder) -> None:
    """Record the functions of AITER's second JIT, with the arguments of their templates."""

    def compiled(*args: Any, **kwargs: Any) -> None:
        # compile_template_op(src_template, md_name, includes, sources, cxxflags, func_name, folder)
        names = ("src_template", "md_name", "includes", "sources", "cxxflags", *_NAMING)
        values = dict(zip(names, args, strict=False)) | kwargs
        own = {k: v for k, v in values.items() if k not in names}
        name = values.get("func_name")
        # A function with a name of its own has other arguments, among them code objects.
        args_of_name: Any = [] if name else own
        call = None if name or values.get("sources") else _compile_call()
        name = name or default_name(values["md_name"], tuple(own.values()))
        folder = values.get("folder") or name
        about = {"name": name, "folder": folder, "args": args_of_name, "call": call}
        recorder.note("function", module=values["md_name"], **about)

    def named(md_name: str, args: tuple[Any, ...]) -> None:
        name = default_name(md_name, args)
        recorder.note("function", module=md_name, name=name, folder=name, args=list(args))

    default_name = module.get_default_func_name
    _before(module, "compile_template_op", compiled)
    _before(module, "get_default_func_name", named)


def _compile_call() -> _Values | None:
    """Return the file and the arguments of the `compile` that calls the second JIT."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code, module = frame.f_code, str(frame.f_globals.get("__name__"))
        if code.co_name == "compile" and module.startswith(_FUNCTIONS):
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            own = {name: frame.f_locals[name] for name in names if name not in _NAMING}
            if all(isinstance(value, (str, int)) for value in own.values()):
                return {"name": module.rpartition(".")[2], "arguments": own}
            return None
        frame = frame.f_back
    return None


def _aiter_version() -> str:
    metadata = importlib.import_module("importlib.metadata")
    for name in _DISTRIBUTIONS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return str(metadata.version(name))
    return ""


def _archs() -> list[str]:
    """Return archs that environment variables name: AITER's core sets AITER_ASM_DIR."""
    found = re.findall(r"gfx[0-9a-f]+", os.environ.get("AITER_ASM_DIR", "").rpartition("hsa")[2])
    return found or re.findall(r"gfx[0-9a-f]+", os.environ.get("GPU_ARCHS", ""))


_RECORDED = {_CORE: _record_core, _CPP_ITFS: _record_cpp_itfs}


class _Finder:
    """Finds AITER's modules as other finders do, and records their functions once executed."""

    def __init__(self, recorder: _Recorder) -> None:
        self._recorder = recorder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of another finder; its loader records after it has executed."""
        if name not in _RECORDED:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                with contextlib.suppress(AttributeError):  # a loader without instance attributes
                    self._hook(name, spec.loader)
                return spec
        return None

    def _hook(self, name: str, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            # The loader is as it was before AITER's code runs.
            with contextlib.suppress(AttributeError):
                del loader.exec_module
            execute(module)
            record(name, module, self._recorder)

        loader.exec_module = exec_module


def record(name: str, module: ModuleType, recorder: _Recorder) -> None:
    """Record the functions of a module of AITER's; what is unknown is left alone."""
    try:
        _RECORDED[name](module, recorder)
    except Exception as error:
        recorder.note("error", module=name, text=f"{type(error).__name__}: {error}")


def install(file: str) -> None:
    """Record this process, whether AITER is imported already or not."""
    recorder = _Recorder(file)
    sys.meta_path.insert(0, _Finder(recorder))
    for name in _RECORDED:
        if name in sys.modules:
            record(name, sys.modules[name], recorder)


def _customize() -> None:
    """Record a process that imports this file as sitecustomize; run the next sitecustomize."""
    if file := os.environ.get(VARIABLE):
        install(file)
    spec = importlib.machinery.PathFinder.find_spec(_HOOK, sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules[_HOOK] = module
        spec.loader.exec_module(module)


# ---- From a record to a manifest.


class RecordError(Exception):
    """A record or a file that cannot be used: place, what is wrong, and what would be right."""

    def __init__(self, place: str, found: str, expected: str) -> None:
        super().__init__(f"error: {place}\n  found     {found}\n  expected  {expected}")


class Record:
    """The requests of a record, without repetitions.

    Attributes:
        versions: values of AITER, Python and PyTorch, and archs, each with all that were seen.
        modules: names that AITER's JIT imports, without variants.
        variants: module by the name of its variant.
        built: names that AITER's JIT compiled, or began to.
        functions: functions of csrc/cpp_itfs by name.
        errors: parts of AITER that could not be recorded.
        unread: number of lines that are not requests.
    """

    def __init__(self, data: bytes) -> None:
        self.versions: dict[str, list[str]] = {}
        self.modules: list[str] = []
        self.variants: dict[str, str] = {}
        self.built: list[str] = []
        self.functions: dict[str, _Values] = {}
        self.errors: list[str] = []
        self.unread = 0
        names: set[str] = set()
        for line in data.splitlines():
            if line.strip():
                try:
                    self._read(json.loads(line), names)
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    self.unread += 1
        self.modules = sorted((names - set(self.variants)) | set(self.variants.values()))

    def _read(self, values: _Values, names: set[str]) -> None:
        event = values["event"]
        if event == "aiter":
            for key in ("version", "python", "torch"):
                self._see(key, [_text(values[key])])
            self._see("archs", [_name(arch) for arch in values["archs"]])
        elif event == "module":
            names.add(_name(values["name"]))
        elif event == "variant":
            self.variants[_name(values["name"])] = _name(values["module"])
        elif event == "build":
            name = _name(values["name"])
            names.add(name)
            self.built += [] if name in self.built else [name]
        elif event == "function":
            self._function(_name(values["name"]), values)
        elif event == "error":
            self.errors.append(f"{_text(values['module'])}: {_text(values['text'])}")
        else:
            raise ValueError(event)

    def _see(self, key: str, found: list[str]) -> None:
        seen = self.versions.setdefault(key, [])
        seen += [value for value in found if value and value not in seen]

    def _function(self, name: str, values: _Values) -> None:
        args = values["args"]
        if not isinstance(args, (dict, list)):
            raise TypeError(type(args).__name__)
        found: _Values = {"module": _name(values["module"]), "folder": _text(values["folder"])}
        found |= {"args": args, "call": _read_call(values.get("call"))}
        # With its arguments, and their names, if any process has recorded them.
        known = self.functions.get(name, {"args": None})["args"]
        if not isinstance(known, dict) and (not known or isinstance(args, dict)):
            self.functions[name] = found


def _read_call(call: Any) -> _Values | None:
    """Return the call of a function that a manifest can request; None for others."""
    if call is None:
        return None
    arguments = {_name(key): value for key, value in call["arguments"].items()}
    for value in arguments.values():
        if isinstance(value, str) and value.isprintable():
            continue
        # Control characters and surrogates do not come from a server; a boolean is an int.
        if not isinstance(value, int) or value not in _INTEGERS:
            raise ValueError(value)
    return {"name": _name(call["name"]), "arguments": arguments}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(type(value).__name__)
    return value


def _name(value: Any) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_]{1,512}", _text(value)):
        raise ValueError(value)
    return str(value)


def _toml(value: Any) -> str:
    """Return a string, number, boolean or list as TOML writes it.

    TOML refuses JSON's surrogate pairs for characters beyond the BMP, and the delete character.
    """
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def manifest(record: Record, archs: Sequence[str] = ()) -> str:
    """Return a manifest of the requested modules, by AITER's own names.

    Args:
        archs: instead of those that processes recorded.
    """
    tables = [*_tables(record, archs), *_function_tables(record)]
    return "\n".join([*_head(record), *tables, *_notes(record)]) + "\n"


def _head(record: Record) -> Iterator[str]:
    yield f"{_FIRST_LINE}: the modules that AITER's Python requested, by their names."
    for key, name in (("version", "AITER"), ("torch", "PyTorch"), ("python", "Python")):
        if found := record.versions.get(key):
            yield f"# {name} {', '.join(map(_comment, found))}"
    if record.unread:
        yield f"# {record.unread} lines of the record are not requests, and were ignored."
    yield from (f"# Not recorded: {_comment(text)}" for text in record.errors)


def _tables(record: Record, archs: Sequence[str]) -> Iterator[str]:
    found = [*archs] or record.versions.get("archs", [])
    yield ""
    if source := _source(record.versions.get("version", [])):
        yield "[qola]"
        yield f"aiter_commit = {_toml(source)}"
        yield ""
    yield "[build]"
    if found:
        yield f"architectures = {_toml(found)}"
    else:
        yield '#architectures = ["gfx942"]'
    yield 'mode = "aiter"'
    for name in record.modules:
        yield ""
        yield "[[modules]]"
        yield f"name = {_toml(name)}"
        variants = sorted(v for v, base in record.variants.items() if base == name and v != name)
        if variants:
            yield "names = ["
            yield from (f"  {_toml(variant)}," for variant in variants)
            yield "]"
        if {name, *variants} & {*record.built}:
            yield "# compiled by AITER's JIT while it was recorded"


def _source(versions: Sequence[str]) -> str:
    """Return the commit of the recorded AITER, else its version; "" if unknown or not the same.

    setuptools_scm writes the commit into versions of a checkout: 0.1.10.dev3+g1a2b3c4d5.d20260801.
    """
    if len(versions) != 1 or not re.fullmatch(r"[A-Za-z0-9.!+_-]{1,100}", versions[0]):
        return ""
    commit = re.search(r"\+g([0-9a-f]{7,40})(?:\.|$)", versions[0])
    return commit[1] if commit else versions[0]


def _function_tables(record: Record) -> Iterator[str]:
    for name, function in sorted(record.functions.items()):
        if call := function["call"]:
            yield ""
            yield f"# {name}"
            yield "[[functions]]"
            yield f"name = {_toml(call['name'])}"
            if call["arguments"]:
                yield "[functions.arguments]"
            yield from (f"{key} = {_toml(value)}" for key, value in call["arguments"].items())


def _notes(record: Record) -> Iterator[str]:
    others = {name: of for name, of in record.functions.items() if not of["call"]}
    if others:
        yield ""
        yield "# Made from more than a template, so AITER compiles them when they are called:"
    for name, function in sorted(others.items()):
        args = function["args"]
        words = (
            [f"{key}={value}" for key, value in args.items()]
            if isinstance(args, dict)
            else [str(value) for value in args]
        )
        yield f"# {name}: {_comment(' '.join(words))}"


def _comment(text: str) -> str:
    """Return a text that stays on the line of a comment."""
    return "".join(c if c.isprintable() else "?" for c in text)[:2000]


# ---- The command.


def _environment(file: Path, directory: Path) -> dict[str, str]:
    """Return the variables of a recorded process, with this file in a directory as its hook."""
    shutil.copyfile(os.path.abspath(__file__), directory / f"{_HOOK}.py")
    paths = [str(directory), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {VARIABLE: str(file), "PYTHONPATH": os.pathsep.join(paths)}


def _run(command: Sequence[str], variables: dict[str, str]) -> int:
    """Run a command and return its exit code, 128 and the number of a signal that ended it."""
    handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def forward(number: int, frame: object) -> None:
        if child is None:
            early.append(number)
        elif number not in (signal.SIGINT, signal.SIGQUIT) or not _in_foreground():
            # The terminal sends these to all processes in its foreground by itself.
            child.send_signal(number)

    # A signal that is ignored, as by nohup, stays so for the command.
    before: dict[int, Any]
    before = {n: signal.getsignal(n) for n in handled if signal.getsignal(n) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, forward)
    try:
        try:
            child = subprocess.Popen(command, env={**os.environ, **variables})
        except OSError as error:
            print(f"qola.aiter_record: {command[0]}: {error.strerror}", file=sys.stderr)
            return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
        for number in early:
            child.send_signal(number)
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else _SIGNALLED - code


def _in_foreground() -> bool:
    """Return whether a terminal sends its signals to this process."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _check_files(output: Path, record_file: Path) -> None:
    """Raise an error if the manifest would replace the record."""
    if output.resolve() == record_file.resolve():
        expected = "a manifest next to the record: -o FILE.toml"
        raise RecordError(str(output), "the record's own file", expected)


def _check_output(file: Path) -> None:
    """Raise an error unless a file can be written, and is new or this program's manifest."""
    is_new = not file.exists()
    _check_appends(file, "-o /tmp/aiter.toml")
    if is_new:
        file.unlink()
    else:
        with file.open(encoding="utf-8", errors="replace") as opened:
            if not opened.readline().startswith(_FIRST_LINE):
                raise RecordError(str(file), "a file of yours", "a new file: -o OTHER.toml")


def _check_appends(file: Path, option: str) -> None:
    """Raise an error unless text can be appended to a file; create it."""
    try:
        with file.open("ab"):
            pass
    except OSError as error:
        expected = f"a file that can be written: {option}"
        raise RecordError(str(file), error.strerror or str(error), expected) from None


def _write_manifest(record_file: Path, output: Path, archs: Sequence[str]) -> None:
    with record_file.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        expected = f"at most {_MOST_BYTES >> 20} MiB: remove it, and record again"
        raise RecordError(str(record_file), "a longer record", expected)
    record = Record(data)
    output.write_text(manifest(record, archs), encoding="utf-8")
    counts = f"{len(record.modules)} modules, {len(record.variants)} variants"
    more = f"{counts}, {len(record.functions)} functions of csrc/cpp_itfs"
    print(f"qola.aiter_record: {output}: {more}", file=sys.stderr)
    if not record.modules and not record.functions:
        fix = "send requests to the server" if record.versions else "no process imported AITER"
        print(f"qola.aiter_record: nothing to build: {fix}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="qola.aiter_record",
        usage="%(prog)s [OPTION...] -- COMMAND...",
        description="Record the modules that AITER requests while a command runs, as a manifest.",
        epilog="The exit code is the command's; 128 and the signal's number if a signal ended it.",
    )
    parser.add_argument(
        *("-o", "--output"),
        type=Path,
        default=Path("aiter.toml"),
        metavar="FILE.toml",
        help="manifest to write (default: %(default)s)",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="file of requests, to which processes append (default: the manifest's, .jsonl)",
    )
    parser.add_argument(
        "--arch",
        action="append",
        default=[],
        metavar="ARCH",
        help="of the manifest; repeatable, or a list with ; or , between",
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="FILE",
        help="write the manifest of an earlier record, and run nothing",
    )
    parser.add_argument(
        "--hook",
        type=Path,
        metavar="DIR",
        help="write DIR/sitecustomize.py, and print the variables with which it records each "
        "process, for servers that something else starts",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = _parser()
    words = [*(sys.argv[1:] if argv is None else argv)]
    # All behind -- is the command, also options and a further --.
    end = words.index("--") if "--" in words else len(words)
    args = parser.parse_args(words[:end])
    args.command = words[end + 1 :]
    # As in qola: repeatable, or a list.
    args.arch = [arch for text in args.arch for arch in re.split(r"[;,\s]+", text) if arch]
    if sum(map(bool, (args.command, args.source, args.hook))) != 1:
        parser.error("expected one of: -- COMMAND..., --from FILE, --hook DIR")
    record_file = (args.record or args.output.with_suffix(".jsonl")).absolute()
    try:
        if not args.hook:
            _check_files(args.output, args.source or record_file)
            _check_output(args.output)
        if args.source:
            _write_manifest(args.source, args.output, args.arch)
            return 0
        _check_appends(record_file, "--record /tmp/aiter.jsonl")
        if args.hook:
            args.hook.mkdir(parents=True, exist_ok=True)
            for name, value in _environment(record_file, args.hook.absolute()).items():
                print(f"export {name}={shlex.quote(value)}")
            return 0
        with tempfile.TemporaryDirectory(prefix="qola-record-") as directory:
            code = _run(args.command, _environment(record_file, Path(directory)))
    except RecordError as error:
        print(f"qola.aiter_record: nothing was run\n{error}", file=sys.stderr)
        return _USAGE
    except OSError as error:
        print(f"qola.aiter_record: {error.filename or ''}: {error.strerror}", file=sys.stderr)
        return _USAGE
    try:
        _write_manifest(record_file, args.output, args.arch)
    except RecordError as error:
        print(f"qola.aiter_record: {args.output}: not written\n{error}", file=sys.stderr)
    except OSError as error:
        # The record has everything, and the exit code is the command's.
        fix = f"python {shlex.quote(__file__)} --from {shlex.quote(str(record_file))} -o FILE.toml"
        print(f"qola.aiter_record: {args.output}: {error.strerror}: {fix}", file=sys.stderr)
    return code


if __name__ == _HOOK:
    _customize()
elif __name__ == "__main__":
    sys.exit(main())
