"""Evaluates one entry of AITER's optCompilerConfig.json."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from qola.aiter.expressions import ARCH_TOKEN, MAX_LENGTH, Names, RefusedError, Value, evaluate
from qola_base.errors import AiterError, Finding, unseen

CONFIG_FILE = "aiter/jit/optCompilerConfig.json"

#: Stands for the tree's root in flags that need an absolute path.
TREE_TOKEN = "@AITER@"

CK_MACRO = "ENABLE_CK"
"""AITER's macro: 0 builds a module without Composable Kernel."""

# Keys of AITER's build by the type of their value. Source: get_args_of_build in core.py.
_LIST_KEYS = (
    "srcs",
    "flags_extra_cc",
    "flags_extra_hip",
    "extra_include",
    "extra_ldflags",
    "blob_gen_cmd",
    "third_party",
)
_BOOL_KEYS = (
    "verbose",
    "is_python_module",
    "is_standalone",
    "torch_exclude",
    "hipify",
    "is_experimental",
)
_TEXT_KEYS = ("md_name", "hip_clang_path")
_MAP_KEYS = ("flags_extra_hip_per_source",)
#: Values without effect, as the file has them.
_NOTHING: tuple[object, ...] = ("", "''", '""', "None", "False", None, False, [], {})
CONFIG_KEYS = (*_LIST_KEYS, *_BOOL_KEYS, *_TEXT_KEYS, *_MAP_KEYS)
_CK_GENERATOR = "/01_fmha/generate.py"


@dataclass(frozen=True)
class GeneratorCall:
    """A generator that AITER runs before it compiles a module.

    Attributes:
        script: tree-relative path; contains `ARCH_TOKEN` if there is one script per arch.
        args: its arguments; ``{}`` stands for the output directory.
    """

    script: str
    args: tuple[str, ...]

    @property
    def per_arch(self) -> bool:
        """Whether each architecture has a script of its own."""
        return ARCH_TOKEN in self.script

    @property
    def ck_receipt(self) -> str:
        """The receipt of a call of CK's generator."""
        return self.option("-r", "--receipt") or "0"

    @property
    def ck_directions(self) -> tuple[str, ...]:
        """The directions of a call of CK's generator."""
        return tuple((self.option("-d", "--direction") or "fwd").split(","))

    def option(self, *names: str) -> str | None:
        """Return the argument after the first of `names`, if any."""
        for name, value in zip(self.args, self.args[1:], strict=False):
            if name in names:
                return value
        return None


@dataclass(frozen=True)
class ModuleConfig:
    """One entry of optCompilerConfig.json, evaluated.

    Attributes:
        srcs: tree-relative sources; a directory stands for the sources in it.
        flags_hip: flags for HIP sources; `TREE_TOKEN` stands for the tree's root.
        flags_hip_per_source: (source pattern, flags) pairs; see `flags_of_source`.
        include_dirs: tree-relative directories, in AITER's order.
        hipify: AITER translates the sources with hipify first.
        is_experimental: AITER does not build it by default.
        md_name: the name of the built library; may be empty.
        hip_clang_path: the compiler of the entry, None for the default one.
        third_party: further source trees that the module needs.
    """

    name: str
    srcs: tuple[str, ...] = ()
    flags_cc: tuple[str, ...] = ()
    flags_hip: tuple[str, ...] = ()
    flags_hip_per_source: tuple[tuple[str, tuple[str, ...]], ...] = ()
    ldflags: tuple[str, ...] = ()
    include_dirs: tuple[str, ...] = ()
    generators: tuple[GeneratorCall, ...] = ()
    torch_exclude: bool = False
    is_python_module: bool = True
    is_standalone: bool = False
    hipify: bool = False
    is_experimental: bool = False
    md_name: str = ""
    hip_clang_path: str | None = None
    third_party: tuple[str, ...] = ()

    @property
    def ck_calls(self) -> tuple[GeneratorCall, ...]:
        """Calls of CK's generator."""
        return tuple(c for c in self.generators if f"/{c.script}".endswith(_CK_GENERATOR))

    def flags_of_source(self, file: str) -> tuple[str, ...]:
        """Return the additional flags of a source: those of the first pattern that fits.

        AITER copies each source to a folder of its build, as .cu, and compares path and name.
        """
        name = f"{PurePosixPath(file).stem}.cu"
        built = f"/{self.name}/build/srcs/{name}"
        for pattern, flags in self.flags_hip_per_source:
            if fnmatchcase(built, pattern) or fnmatchcase(name, pattern):
                return flags
        return ()

    @property
    def without_ck(self) -> bool:
        """Whether its flags exclude Composable Kernel: ``-DENABLE_CK=0``."""
        return builds_without_ck((*self.flags_cc, *self.flags_hip))


def builds_without_ck(flags: Iterable[str]) -> bool:
    """Return whether compiler flags exclude Composable Kernel."""
    values = [flag.partition("=")[2] for flag in flags if flag.startswith(f"-D{CK_MACRO}=")]
    return values[-1:] == ["0"]


def split_flags(flags: Iterable[str], place: str) -> tuple[str, ...]:
    """Split flags into the compiler's arguments: AITER's build writes them into a shell command.

    A macro remains one argument: ``-D X=1`` becomes ``-DX=1``.

    Raises:
        AiterError: a flag has an open quote.
    """
    arguments: list[str] = []
    for word in (word for flag in flags for word in _shell_words(flag, place)):
        if arguments[-1:] in (["-D"], ["-U"]):
            arguments[-1] += word
        else:
            arguments.append(word)
    return tuple(arguments)


def _shell_words(flag: str, place: str) -> list[str]:
    try:
        return shlex.split(flag)
    except ValueError:
        expected = "flags as a shell reads them, with closed quotes"
        raise AiterError(Finding(place, f"{flag}: an open quote", expected)) from None


def missing_ck(root: Path, directory: str, user: str) -> Finding:
    """Return the finding about a tree that lacks Composable Kernel, which a module needs."""
    git = (root / ".git").exists()
    return Finding(
        f"{root}/{directory}",
        f"no Composable Kernel, which {user} needs",
        "an AITER checkout with its submodules, or a wheel unpacked as a whole",
        f"git -C {shlex.quote(str(root))} submodule update --init --recursive"
        if git
        else "git clone --recurse-submodules https://github.com/ROCm/aiter.git",
    )


def expression(value: object) -> object:
    """Convert a manifest's override to the file's form: lists, objects, expressions."""
    if isinstance(value, str):
        written = re.match(r"f?['\"]", value) or value in ("None", "True", "False")
        return value if written else repr(value)
    if isinstance(value, tuple) and value and all(isinstance(v, tuple) for v in value):
        return {str(key): expression(item) for key, item in value}
    if isinstance(value, (list, tuple)):
        return [expression(item) for item in value]
    if isinstance(value, dict):
        return {key: expression(item) for key, item in value.items()}
    return value


_QUOTED = re.compile(r"f?(['\"]).*\1", re.S)


class ModuleReader:
    """Evaluates one entry and collects all findings before it raises."""

    def __init__(self, root: Path, name: str, names: Names, absent: str = "") -> None:
        """Prepare to evaluate an entry.

        Include directories below `absent`, a missing submodule, are left out, as AITER does; a
        generator below it is an error.
        """
        self._root, self._name, self._names = root, name, names
        self._absent = f"{absent}/" if absent else ""
        self._without_ck = False
        self._findings: list[Finding] = []

    def read(self, entry: Mapping[str, object], more_flags: Iterable[str] = ()) -> ModuleConfig:
        """Return the entry's values; raises AiterError with all findings of the entry."""
        for key, raw in entry.items():
            if key not in CONFIG_KEYS and raw not in _NOTHING:
                fix = "leave the module out: qola would ignore the key"
                self._report(key, f"unknown key {key}", f"one of {', '.join(CONFIG_KEYS)}", fix)
        lists = {key: self._list(key, entry.get(key, [])) for key in _LIST_KEYS}
        bools = {key: self._bool(key, entry[key]) for key in _BOOL_KEYS if key in entry}
        texts = {key: self._value(key, entry[key]) for key in _TEXT_KEYS if key in entry}
        md_name = str(texts.get("md_name") or "")
        if not re.fullmatch(r"\w{0,200}", md_name, re.ASCII):
            # Files, targets and a linker script are made of it.
            self._report("md_name", md_name[:MAX_LENGTH], "letters, digits and _")
        clang = texts.get("hip_clang_path")
        (key,) = _MAP_KEYS
        per_source = tuple(
            (pattern, self._arguments(key, flags))
            for pattern, flags in self._map(key, entry.get(key, {}))
        )
        for flags_key in ("flags_extra_cc", "flags_extra_hip"):
            lists[flags_key] = self._arguments(flags_key, lists[flags_key])
        flags = (*lists["flags_extra_cc"], *lists["flags_extra_hip"], *more_flags)
        # A module without Composable Kernel does not run its generator.
        optional = builds_without_ck(flags)
        generators = tuple(self._generator(c, optional) for c in lists["blob_gen_cmd"])
        present = [d for d in lists["extra_include"] if not self._is_absent(_relative(d))]
        config = ModuleConfig(
            name=self._name,
            srcs=self._paths("srcs", lists["srcs"]),
            flags_cc=lists["flags_extra_cc"],
            flags_hip=lists["flags_extra_hip"],
            flags_hip_per_source=per_source,
            ldflags=lists["extra_ldflags"],
            include_dirs=self._paths("extra_include", present),
            generators=generators,
            third_party=lists["third_party"],
            md_name=md_name,
            hip_clang_path=None if clang is None else str(clang),
            **{key: value for key, value in bools.items() if key != "verbose"},
        )
        if self._without_ck:
            # Reported once for all of the entry's paths.
            self._findings.append(missing_ck(self._root, self._absent.rstrip("/"), self._name))
        if self._findings:
            raise AiterError(self._findings)
        return config

    def _report(self, key: str, found: str, expected: str, fix: str = "") -> None:
        self._findings.append(Finding(self._place(key), found, expected, fix))

    def _place(self, key: str) -> str:
        return f"{CONFIG_FILE} {self._name}.{key}"

    def _value(self, key: str, raw: object) -> Value:
        """Evaluate a string; other values are literal, as in AITER."""
        if raw is None or isinstance(raw, (bool, int)):
            return raw
        if not isinstance(raw, str):
            self._report(key, f"{raw!r}", "a string, a number, a boolean or null")
            return None
        try:
            value = evaluate(raw, self._names)
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str) and (character := unseen(text)):
                    raise RefusedError(f"a value with the character U+{ord(character):04X}")
            return value
        except RefusedError as refused:
            self._report(
                key,
                f"{raw[:MAX_LENGTH]!r}: {refused.reason}",
                "an expression of names, f-strings and os.environ.get",
                refused.fix,
            )
            return None

    def _list(
        self, key: str, raw: object, read: Callable[[str, object], Value] | None = None
    ) -> tuple[str, ...]:
        items = raw if isinstance(raw, list) else [raw]
        values = [(read or self._value)(key, item) for item in items]
        # AITER ignores empty strings and None.
        return tuple(str(value) for value in values if value not in (None, ""))

    def _arguments(self, key: str, flags: Sequence[str]) -> tuple[str, ...]:
        try:
            return split_flags(flags, self._place(key))
        except AiterError as error:
            self._findings += error.findings
            return ()

    def _bool(self, key: str, raw: object) -> bool:
        value = self._value(key, raw)
        if not isinstance(value, bool):
            self._report(key, repr(value), "True or False")
        return bool(value)

    def _map(self, key: str, raw: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
        if not isinstance(raw, dict):
            self._report(key, repr(raw), "an object: source to list of flags")
            return ()
        return tuple(
            (_relative(str(self._plain(key, k))), self._list(key, v, self._plain))
            for k, v in raw.items()
        )

    def _plain(self, key: str, raw: object) -> Value:
        """Return text unevaluated, as AITER does; a manifest's text is quoted (`expression`)."""
        if isinstance(raw, str) and not _QUOTED.fullmatch(raw):
            return self._value(key, repr(raw))
        return self._value(key, raw)

    def _is_absent(self, path: str) -> bool:
        return bool(self._absent) and path.startswith(self._absent)

    def _paths(self, key: str, values: Sequence[str]) -> tuple[str, ...]:
        paths = tuple(map(_relative, values))
        for path in paths:
            if is_outside(path) or not (ARCH_TOKEN in path or self._exists(path)):
                self._report(key, f"{path} is not in the tree", "a file or directory of the tree")
        return paths

    def _exists(self, path: str) -> bool:
        # os.path returns False for an overlong name; pathlib raises.
        place = self._root / path
        return os.path.isfile(place) or os.path.isdir(place)

    def _generator(self, command: str, optional: bool) -> GeneratorCall:
        try:
            script, *args = shlex.split(command) or [""]
        except ValueError as error:
            self._report("blob_gen_cmd", f"{command!r}: {error}", "a script and its arguments")
            return GeneratorCall("", ())
        path = _relative(script)
        exists = ARCH_TOKEN in path or os.path.isfile(self._root / path)
        if is_outside(path) or not exists:
            if not self._is_absent(path):
                expected = "a generator of the tree"
                self._report("blob_gen_cmd", f"{path} is not in the tree", expected)
            elif not optional:
                self._without_ck = True
        # "{}" stays: AITER replaces it by the output directory with str.format.
        return GeneratorCall(path, tuple(args))


def is_outside(path: str) -> bool:
    """Return whether a path leaves the tree lexically; links are the tree's own."""
    return posixpath.isabs(path) or ".." in path.split("/")


def _relative(path: str) -> str:
    """Return `path` relative to the tree, normalised; a path outside stays unchanged."""
    if path == TREE_TOKEN or path.startswith(TREE_TOKEN + "/"):
        return posixpath.normpath(path[len(TREE_TOKEN) + 1 :] or ".")
    return path
