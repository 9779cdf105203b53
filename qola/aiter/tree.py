"""Reads an AITER source tree: what it can build, from which sources, flags and generators.

Everything is read from files; AITER itself is never imported and none of its strings reach `eval`.
Three generations of its configuration are told apart by the text of the `libmha_*` entries:

``wheel``        PyPI wheels around 0.1.7: no sources, entry points written by `mha_*_generate.py`
``cpp_itfs``     around d32b0cb: sources `csrc/cpp_itfs/mha_*.cu`, only CK's generator
``asm_codegen``  around 33f2e6af: the same and `hsa/codegen.py -m fmha_v3_*`
"""

from __future__ import annotations

import ast
import json
import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from qola.aiter.ck_dir import ck_directory
from qola.aiter.core_flags import core_defines
from qola.aiter.expressions import Names, TorchFacts, parse
from qola.aiter.module_config import (
    ARCH_TOKEN,
    CK_MACRO,
    CONFIG_FILE,
    CONFIG_KEYS,
    TREE_TOKEN,
    GeneratorCall,
    ModuleConfig,
    ModuleReader,
    expression,
)
from qola.errors import AiterError, Finding, unseen
from qola.files import UnfitFileError, bounded_bytes, lossy_text

__all__ = [
    "ARCH_TOKEN",
    "CONFIG_FILE",
    "TREE_TOKEN",
    "AiterTree",
    "Generation",
    "GeneratorCall",
    "ModuleConfig",
    "TorchFacts",
    "read_tree",
]

Generation = Literal["wheel", "cpp_itfs", "asm_codegen"]

CORE_FILE = "aiter/jit/core.py"

_MAX_BYTES = 4 << 20
"""The most bytes of a file of AITER's configuration: a hundred times those of 0.1.7."""


@dataclass(frozen=True)
class AiterTree:
    """An AITER source tree. Make one with `read_tree`.

    Attributes:
        generation: which generation of the configuration it has.
        version: AITER's version, empty when the tree does not say.
        meta_dir: ``aiter_meta`` in a wheel, empty in a checkout.
        csrc_dir, hsa_dir, ck_dir: tree-relative directories.
        fmha_dir: the one of CK's flash-attention generator, where the configuration names it.
    """

    root: Path
    generation: Generation
    version: str
    meta_dir: str
    csrc_dir: str
    hsa_dir: str
    ck_dir: str
    fmha_dir: str
    _config: Mapping[str, Mapping[str, Any]] = field(repr=False)
    _core: str = field(default="", repr=False)

    @property
    def has_ck(self) -> bool:
        """Whether Composable Kernel, a submodule, is there."""
        return (self.root / self.fmha_dir / "generate.py").is_file()

    def text(self, path: str) -> str:
        """Return a file of the tree for reading in it, whatever bytes it has."""
        return lossy_text(self.root / path)

    def holds(self, path: str) -> bool:
        """Return whether a tree-relative path lies in the tree or its Composable Kernel.

        Links are followed. A repository of Bazel's is made of links to a tree, which it then is:
        that one alone, not any AITER tree that a link leads to.
        """
        real = Path(os.path.realpath(self.root / path))
        own = {Path(os.path.realpath(self.root / home)) for home in ("", self.ck_dir)}
        own |= self._linked()
        return any(place in own for place in (real, *real.parents))

    def _linked(self) -> set[Path]:
        """Return the tree that this one's parts are links to: patched parts are files of its own.

        A part counts if its link leads to the same place there; where they lead to several trees,
        none does.
        """
        found = set()
        for part in (CONFIG_FILE, CORE_FILE, f"{self.csrc_dir}/include", self.hsa_dir, self.ck_dir):
            real = os.path.realpath(self.root / part)
            if real.endswith(f"/{part}"):
                found.add(Path(real[: -len(part)]))
        found -= {Path(os.path.realpath(self.root))}
        return found if len(found) == 1 and (min(found) / CONFIG_FILE).is_file() else set()

    def module_names(self) -> tuple[str, ...]:
        """Return the modules this tree configures, in the file's order; nothing is evaluated."""
        return tuple(self._config)

    def module(
        self,
        name: str,
        env: Mapping[str, str] | None = None,
        *,
        overrides: Iterable[tuple[str, object]] = (),
        torch: TorchFacts | None = None,
        more_flags: Iterable[str] = (),
    ) -> ModuleConfig:
        """Evaluate the entry `name`, and no other.

        Args:
            env: environment variables the expressions may see; none by default.
            overrides: (key, value) pairs that replace the entry's own values. A string that is
                written as a Python string or f-string is evaluated like AITER's own, any other
                text stands for itself; lists may be tuples, tables tuples of pairs.
            torch: answers for entries that ask about PyTorch.
            more_flags: compiler flags that will be added: with -DENABLE_CK=0 the tree need not have
                Composable Kernel's generator.

        Raises:
            AiterError: no such module, an expression that is refused, a value of the wrong kind,
                or a source or generator that the tree does not have.
        """
        if name not in self._config:
            raise AiterError(
                Finding(
                    place=CONFIG_FILE,
                    found=f"no module {name}",
                    expected=f"one of {', '.join(self._config)}",
                )
            )
        names = self._names(env or {}, torch)
        absent = "" if self.has_ck else self.ck_dir
        plain = {key: expression(value) for key, value in overrides}
        reader = ModuleReader(self.root, name, names, absent)
        config = reader.read({**self._config[name], **plain}, more_flags)
        own = config.flags_cc + config.flags_hip
        added = tuple(
            f"-D{macro}={value}"
            for macro, value in self._core_macros().items()
            if not any(macro in flag for flag in own)
        )
        return replace(config, flags_cc=added + config.flags_cc)

    def _core_macros(self) -> dict[str, str]:
        """Return the macros that core.py defines for every module.

        AITER builds a tree without Composable Kernel with ENABLE_CK=0: its setup.py refuses any
        other value. With 1, csrc/include/aiter_hip_common.h includes CK's headers.
        """
        macros = dict(core_defines(self._core))
        if CK_MACRO in macros and not self.has_ck:
            macros[CK_MACRO] = "0"
        return macros

    def entry_text(self, name: str, key: str) -> str:
        """Return a value of a module's entry as it stands, lists with a line for each item."""
        value = self._config[name].get(key) or ""
        return "\n".join(map(str, value)) if isinstance(value, list) else str(value)

    def modules_that_define(self, macro: str) -> tuple[str, ...]:
        """Return the modules whose entry defines a macro, in the file's order."""
        flag = re.compile(rf"-D{macro}\b")
        return tuple(n for n, entry in self._config.items() if flag.search(json.dumps(entry)))

    def unknown_keys(self) -> dict[str, tuple[str, ...]]:
        """Return the modules with keys that AITER's build, as it is known here, does not have."""
        unknown = {
            name: tuple(key for key in entry if key not in CONFIG_KEYS)
            for name, entry in self._config.items()
        }
        return {name: keys for name, keys in unknown.items() if keys}

    @cached_property
    def _tables(self) -> tuple[dict[str, str], dict[str, str]]:
        return _config_tables(self.root)

    def _names(self, env: Mapping[str, str], torch: TorchFacts | None) -> Names:
        meta = posixpath.join(TREE_TOKEN, self.meta_dir) if self.meta_dir else TREE_TOKEN
        tables, merged = self._tables
        flat = {k: v for k, v in tables.items() if "." not in k}
        return Names(
            constants={
                "AITER_ROOT_DIR": TREE_TOKEN,
                "AITER_META_DIR": meta,
                "AITER_CSRC_DIR": f"{meta}/csrc",
                "AITER_GRADLIB_DIR": f"{meta}/gradlib",
                "CK_DIR": posixpath.join(TREE_TOKEN, self.ck_dir),
                **flat,
            },
            calls={"get_asm_dir": f"{meta}/hsa/{ARCH_TOKEN}", "get_gfx": ARCH_TOKEN},
            attributes={k: v for k, v in tables.items() if "." in k},
            refused=merged,
            env=env,
            torch=torch,
        )


def read_tree(root: Path) -> AiterTree:
    """Read the AITER tree at `root`: a checkout or an unpacked wheel.

    Raises:
        AiterError: `root` is no AITER tree, parts are missing, its configuration is no JSON
            object, or is of no generation that is known. A tree without Composable Kernel can be
            read: later ones have modules that do without.
    """
    meta = "aiter_meta" if (root / "aiter_meta").is_dir() else ""
    prefix = f"{meta}/" if meta else ""
    core = _core(root)
    ck_dir = prefix + ck_directory(core)
    needed = {
        CONFIG_FILE: "an AITER checkout, or a wheel unpacked with its aiter_meta directory",
        f"{prefix}csrc/include": "AITER's C++ sources",
    }
    findings = [
        Finding(place=str(root), found=f"no {path}", expected=what)
        for path, what in needed.items()
        if not (root / path).exists()
    ]
    if findings:
        raise AiterError(findings)
    config = _read_config(root)
    return AiterTree(
        root=root,
        generation=_generation(config),
        version=_version(root),
        meta_dir=meta,
        csrc_dir=f"{prefix}csrc",
        hsa_dir=f"{prefix}hsa",
        ck_dir=ck_dir,
        fmha_dir=f"{ck_dir}/{_fmha_dir(config)}",
        _config=config,
        _core=core,
    )


def _read_text(root: Path, path: str) -> str:
    try:
        return bounded_bytes(root / path, _MAX_BYTES).decode("utf-8")
    except (OSError, UnfitFileError, UnicodeDecodeError) as error:
        raise AiterError(
            Finding(place=path, found=f"cannot be read: {error}", expected="a text file")
        ) from None


def _read_config(root: Path) -> dict[str, dict[str, Any]]:
    try:
        data = json.loads(_read_text(root, CONFIG_FILE))
    except (ValueError, RecursionError) as error:
        raise AiterError(
            Finding(place=CONFIG_FILE, found=f"no JSON: {error}", expected="a JSON object")
        ) from None
    if not isinstance(data, dict) or not all(isinstance(v, dict) for v in data.values()):
        raise AiterError(
            Finding(
                place=CONFIG_FILE,
                found=f"a {type(data).__name__}",
                expected="a JSON object of objects, one per module",
            )
        )
    return data


def _libraries(config: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of the attention libraries' entries."""
    return json.dumps([entry for name, entry in config.items() if name.startswith("libmha_")])


def _fmha_dir(config: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the directory in Composable Kernel of the generator that the libraries name."""
    named = re.search(r"\{CK_DIR\}/([\w/-]{0,200}01_fmha)/generate\.py", _libraries(config))
    return named[1] if named else "example/ck_tile/01_fmha"


def _generation(config: Mapping[str, Mapping[str, Any]]) -> Generation:
    text = _libraries(config)
    marks: tuple[tuple[str, Generation], ...] = (
        ("/hsa/codegen.py -m fmha_v3_", "asm_codegen"),
        ("/cpp_itfs/mha_fwd_generate.py", "wheel"),
        ("/cpp_itfs/mha_fwd.cu", "cpp_itfs"),
    )
    for mark, generation in marks:
        if mark in text:
            return generation
    raise AiterError(
        Finding(
            place=f"{CONFIG_FILE} libmha_fwd",
            found="none of " + ", ".join(mark for mark, _ in marks),
            expected="a configuration as in the 0.1.7 wheels, around d32b0cb or 33f2e6af",
            fix="use an AITER of one of these generations",
        )
    )


def _core(root: Path) -> str:
    """Return AITER's core.py, "" where there is none."""
    return _read_text(root, CORE_FILE) if (root / CORE_FILE).is_file() else ""


def _version(root: Path) -> str:
    file = "aiter/_version.py"
    text = _read_text(root, file) if (root / file).is_file() else ""
    match = re.search(r"""^(?:__version__|version)\s*(?:=[^=]*)?=\s*['"]([^'"]+)['"]""", text, re.M)
    return match.group(1) if match else ""


def _config_tables(root: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return (name -> tuning table, name -> why it has no path) as core.py defines them.

    `NAME = get_config_file(VARIABLE, DEFAULT, STEM)` (wheel) or a property NAME of a class that
    returns such a call (later). AITER merges the table with those of its model_configs directory
    when it is imported; such a merged table is not a file of the tree.
    """
    try:
        tree = parse(_core(root))
    except (SyntaxError, ValueError):
        return {}, {}
    directory = root / "aiter/configs/model_configs"
    models = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
    tables: dict[str, str] = {}
    merged: dict[str, str] = {}
    for owner in ast.walk(tree):
        if isinstance(owner, ast.Assign) and isinstance(owner.targets[0], ast.Name):
            names = [owner.targets[0].id]
        elif isinstance(owner, ast.FunctionDef):
            names = [f"AITER_CONFIGS.{owner.name}"]
        else:
            continue
        for stem in _table_stems(owner):
            extra = [name for name in models if stem in name and "untuned" not in name]
            for name in names:
                if extra:
                    merged[name] = f"AITER merges {stem}.csv with {', '.join(extra)} at run time"
                else:
                    tables[name] = f"{TREE_TOKEN}/aiter/configs/{stem}.csv"
    return tables, merged


def _table_stems(owner: ast.AST) -> set[str]:
    """Return the third arguments of all calls of get_config_file in `owner`."""
    stems = set()
    for call in ast.walk(owner):
        if isinstance(call, ast.Call) and len(call.args) == 3:
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            stem = call.args[2]
            if name == "get_config_file" and isinstance(stem, ast.Constant):
                stems.add(str(stem.value))
    return stems


_CONFIGS = ("aiter/configs/*.csv", "aiter/configs/model_configs/**/*")


_LICENSES = ("LICENSE", "*.dist-info/LICENSE", "*.dist-info/licenses/LICENSE")


def configs(tree: AiterTree) -> tuple[str, ...]:
    """Return AITER's tuning tables and all of model_configs/, relative to the tree, sorted."""
    return _files(tree.root, _CONFIGS)


def licenses(tree: AiterTree) -> tuple[str, ...]:
    """Return the license texts of AITER and Composable Kernel, relative to the tree, sorted.

    Those that are missing are missing here: it matters to who makes a bundle, not to a plan.
    """
    return _files(tree.root, (*_LICENSES, f"{tree.ck_dir}/LICENSE"))


def _files(root: Path, patterns: Iterable[str]) -> tuple[str, ...]:
    found = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    names = sorted(path.relative_to(root).as_posix() for path in found)
    if odd := [name for name in names if unseen(name)]:
        expected = "names of files in UTF-8, without control characters"
        raise AiterError([Finding(name, "a file of this name", expected) for name in odd])
    return tuple(names)
