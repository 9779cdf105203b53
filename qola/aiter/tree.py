"""Reads an AITER source tree: its modules with their sources, flags and generators.

AITER itself is never imported, and none of its strings reach `eval`. The text of the `libmha_*`
entries distinguishes three generations of its configuration:

``wheel``        PyPI wheels around 0.1.7: no sources, entry points written by `mha_*_generate.py`
``cpp_itfs``     around d32b0cb: sources `csrc/cpp_itfs/mha_*.cu`, only CK's generator
``asm_codegen``  around 33f2e6af: the same and `hsa/codegen.py -m fmha_v3_*`
"""

from __future__ import annotations

import ast
import json
import os
import platform
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from qola.aiter.core_file import (
    CONFIGS,
    MergedTable,
    TuningTables,
    ck_directory,
    core_defines,
    tuning_tables,
)
from qola.aiter.expressions import ARCH_TOKEN, Names, parse
from qola.aiter.module_config import (
    CK_MACRO,
    CONFIG_FILE,
    CONFIG_KEYS,
    TREE_TOKEN,
    GeneratorCall,
    ModuleConfig,
    ModuleReader,
    expression,
)
from qola_base.errors import AiterError, Finding, unseen
from qola_base.files import UnfitFileError, bounded_bytes, lossy_text

__all__ = [
    "ARCH_TOKEN",
    "CONFIG_FILE",
    "TREE_TOKEN",
    "AiterTree",
    "Generation",
    "GeneratorCall",
    "ModuleConfig",
    "read_tree",
]

Generation = Literal["wheel", "cpp_itfs", "asm_codegen"]

CORE_FILE = "aiter/jit/core.py"

ROCM = "7.2"
"""Version of the pinned ROCm, for entries that query the version of PyTorch's HIP."""

_TORCH = frozenset({"float8_e4m3fnuz"})
"""Attributes that entries query, and that PyTorch has since version 2.1."""

_MAX_BYTES = 4 << 20
"""Maximal size of a file of AITER's configuration: a hundred times that of 0.1.7."""


@dataclass(frozen=True)
class AiterTree:
    """An AITER source tree, as `read_tree` returns it.

    Attributes:
        generation: the generation of its configuration.
        version: AITER's version, "" if the tree does not contain it.
        meta_dir: ``aiter_meta`` in a wheel, "" in a checkout.
        csrc_dir, hsa_dir, ck_dir: tree-relative directories.
        fmha_dir: that of CK's flash-attention generator, as the configuration names it.
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
        """Whether the tree contains Composable Kernel, a submodule."""
        return (self.root / self.fmha_dir / "generate.py").is_file()

    def text(self, path: str) -> str:
        """Return the text of a file of the tree; invalid UTF-8 becomes a replacement mark."""
        return lossy_text(self.root / path)

    def syntax_tree(self, path: str) -> ast.Module:
        """Return the syntax tree of a Python file of the tree.

        Raises:
            AiterError: the Python that runs qola does not understand it.
        """
        try:
            found: ast.Module = parse(self.text(path))
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            place = f"{path}:{line}" if line else path
            expected = f"a file that Python {platform.python_version()} can parse"
            fix = "run qola with the Python for which this AITER is"
            text = getattr(error, "msg", str(error))
            raise AiterError(Finding(place, text, expected, fix)) from None
        return found

    def python_files(self, pattern: str = "**/*.py") -> list[str]:
        """Return the tree-relative files of AITER's Python package, sorted."""
        package = (self.root / CONFIG_FILE).parents[1]
        return sorted(path.relative_to(self.root).as_posix() for path in package.glob(pattern))

    def files_among(self, paths: Iterable[str | Path]) -> Iterator[str]:
        """Yield those paths that are files of the tree, relative to it."""
        root = os.path.join(os.path.abspath(self.root), "")
        for path in map(os.path.abspath, paths):
            if path.startswith(root) and os.path.isfile(path):
                yield path.removeprefix(root)

    def holds(self, path: str) -> bool:
        """Return whether a tree-relative path lies in the tree or its Composable Kernel.

        Links are followed. A repository of Bazel's consists of links to one tree, which counts as
        the tree itself; other AITER trees do not.
        """
        real = Path(os.path.realpath(self.root / path))
        own = {Path(os.path.realpath(self.root / home)) for home in ("", self.ck_dir)}
        own |= self._linked()
        return any(place in own for place in (real, *real.parents))

    def _linked(self) -> set[Path]:
        """Return the one tree that this tree's parts link to; patched parts are regular files.

        A part counts if its link leads to the same path of the other tree. Parts that link to
        several trees do not count.
        """
        found = set()
        for part in (CONFIG_FILE, CORE_FILE, f"{self.csrc_dir}/include", self.hsa_dir, self.ck_dir):
            real = os.path.realpath(self.root / part)
            if real.endswith(f"/{part}"):
                found.add(Path(real[: -len(part)]))
        found -= {Path(os.path.realpath(self.root))}
        return found if len(found) == 1 and (min(found) / CONFIG_FILE).is_file() else set()

    def module_names(self) -> tuple[str, ...]:
        """Return the modules of the configuration, in the file's order, without evaluation."""
        return tuple(self._config)

    def module(
        self,
        name: str,
        *,
        overrides: Iterable[tuple[str, object]] = (),
        more_flags: Iterable[str] = (),
        archs: Sequence[str] = (),
        rocm: str = ROCM,
    ) -> ModuleConfig:
        """Evaluate only the entry `name`.

        Args:
            overrides: (key, value) pairs that replace the entry's own values. A Python string or
                f-string is evaluated like AITER's own, any other text is literal; lists may be
                tuples, tables tuples of pairs.
            more_flags: compiler flags that will be added: with -DENABLE_CK=0 the tree may lack
                Composable Kernel's generator.
            archs: the architectures to build for, () if they are unknown; some entries compare
                them.
            rocm: version of the ROCm that compiles; PyTorch must be for the same major version.

        Raises:
            AiterError: with all findings of the entry.
        """
        if name not in self._config:
            expected = f"one of {', '.join(self._config)}"
            raise AiterError(Finding(CONFIG_FILE, f"no module {name}", expected))
        absent = "" if self.has_ck else self.ck_dir
        plain = {key: expression(value) for key, value in overrides}
        reader = ModuleReader(self.root, name, self._names(archs, rocm), absent)
        config = reader.read({**self._config[name], **plain}, more_flags)
        own = config.flags_cc + config.flags_hip
        macros = dict(core_defines(self._core))
        if CK_MACRO in macros and not self.has_ck:
            # The only value that AITER's setup.py accepts. With 1, aiter_hip_common.h includes CK.
            macros[CK_MACRO] = "0"
        added = tuple(
            f"-D{macro}={value}"
            for macro, value in macros.items()
            if not any(macro in flag for flag in own)
        )
        return replace(config, flags_cc=added + config.flags_cc)

    def entry_text(self, name: str, key: str) -> str:
        """Return a value of a module's entry without evaluation; a list has an item per line."""
        value = self._config[name].get(key) or ""
        return "\n".join(map(str, value)) if isinstance(value, list) else str(value)

    def modules_that_define(self, macro: str) -> tuple[str, ...]:
        """Return the modules whose entry defines a macro, in the file's order."""
        flag = re.compile(rf"-D{macro}\b")
        return tuple(n for n, entry in self._config.items() if flag.search(json.dumps(entry)))

    def unknown_keys(self) -> dict[str, tuple[str, ...]]:
        """Return the keys that qola does not know, by module."""
        unknown = {
            name: tuple(key for key in entry if key not in CONFIG_KEYS)
            for name, entry in self._config.items()
        }
        return {name: keys for name, keys in unknown.items() if keys}

    @property
    def merged_tables(self) -> Mapping[str, MergedTable]:
        """The tuning tables that AITER merges from several, by their path in evaluated values."""
        return self._tables.merged

    @cached_property
    def _tables(self) -> TuningTables:
        return tuning_tables(self.root, self._core)

    def _names(self, archs: Sequence[str], rocm: str) -> Names:
        meta = posixpath.join(TREE_TOKEN, self.meta_dir) if self.meta_dir else TREE_TOKEN
        return Names(
            values={
                "AITER_ROOT_DIR": TREE_TOKEN,
                "AITER_META_DIR": meta,
                "AITER_CSRC_DIR": f"{meta}/csrc",
                "AITER_GRADLIB_DIR": f"{meta}/gradlib",
                "CK_DIR": posixpath.join(TREE_TOKEN, self.ck_dir),
                "torch.version.hip": rocm,
                **self._tables.paths,
            },
            calls={"get_asm_dir": f"{meta}/hsa/{ARCH_TOKEN}", "get_gfx": ARCH_TOKEN},
            archs=tuple(archs),
            torch=_TORCH,
        )


def read_tree(root: Path) -> AiterTree:
    """Read the AITER tree at `root`: a checkout or an unpacked wheel.

    Raises:
        AiterError: parts of an AITER tree are missing, its configuration is not a JSON object or
            of an unknown generation. A tree may lack Composable Kernel: later ones have modules
            that do not need it.
    """
    meta = "aiter_meta" if (root / "aiter_meta").is_dir() else ""
    prefix = f"{meta}/" if meta else ""
    core = _read_text(root, CORE_FILE) if (root / CORE_FILE).is_file() else ""
    ck_dir = prefix + ck_directory(core)
    needed = {
        CONFIG_FILE: "an AITER checkout, or a wheel unpacked with its aiter_meta directory",
        f"{prefix}csrc/include": "AITER's C++ sources",
    }
    findings = [
        Finding(str(root), f"no {path}", expected)
        for path, expected in needed.items()
        if not (root / path).exists()
    ]
    if findings:
        raise AiterError(findings)
    config = _read_config(root)
    libraries = json.dumps([value for name, value in config.items() if name.startswith("libmha_")])
    named = re.search(r"\{CK_DIR\}/([\w/-]{0,200}01_fmha)/generate\.py", libraries)
    return AiterTree(
        root=root,
        generation=_generation(libraries),
        version=_version(root),
        meta_dir=meta,
        csrc_dir=f"{prefix}csrc",
        hsa_dir=f"{prefix}hsa",
        ck_dir=ck_dir,
        fmha_dir=f"{ck_dir}/{named[1] if named else 'example/ck_tile/01_fmha'}",
        _config=config,
        _core=core,
    )


def _read_text(root: Path, path: str) -> str:
    try:
        return bounded_bytes(root / path, _MAX_BYTES).decode("utf-8")
    except (OSError, UnfitFileError, UnicodeDecodeError) as error:
        raise AiterError(Finding(path, f"cannot be read: {error}", "a text file")) from None


def _read_config(root: Path) -> dict[str, dict[str, Any]]:
    try:
        data = json.loads(_read_text(root, CONFIG_FILE))
    except (ValueError, RecursionError) as error:
        raise AiterError(Finding(CONFIG_FILE, f"not JSON: {error}", "a JSON object")) from None
    if not isinstance(data, dict) or not all(isinstance(v, dict) for v in data.values()):
        expected = "a JSON object of objects, one per module"
        raise AiterError(Finding(CONFIG_FILE, f"a {type(data).__name__}", expected))
    return data


_GENERATIONS: tuple[tuple[str, Generation], ...] = (
    ("/hsa/codegen.py -m fmha_v3_", "asm_codegen"),
    ("/cpp_itfs/mha_fwd_generate.py", "wheel"),
    ("/cpp_itfs/mha_fwd.cu", "cpp_itfs"),
)
"""Marks in the text of the attention libraries' entries."""


def _generation(libraries: str) -> Generation:
    for mark, generation in _GENERATIONS:
        if mark in libraries:
            return generation
    raise AiterError(
        Finding(
            f"{CONFIG_FILE} libmha_fwd",
            "none of " + ", ".join(mark for mark, _ in _GENERATIONS),
            "a configuration as in the 0.1.7 wheels, around d32b0cb or 33f2e6af",
            "use an AITER of one of these generations",
        )
    )


def _version(root: Path) -> str:
    file = "aiter/_version.py"
    text = _read_text(root, file) if (root / file).is_file() else ""
    version = r"""^(?:__version__|version)\s*(?:=[^=]*)?=\s*['"]([\w.!+-]{1,100})['"]"""
    match = re.search(version, text, re.M | re.A)
    return match.group(1) if match else ""


def configs(tree: AiterTree, modules: Iterable[ModuleConfig]) -> tuple[str, ...]:
    """Return the tuning tables that entries of modules name, tree-relative, sorted.

    Of a table that AITER merges from several, these are all of them.
    """
    text = "\n".join(
        word
        for module in modules
        for words in (module.flags_cc, module.flags_hip, *(call.args for call in module.generators))
        for word in words
    )
    files = _files(tree.root, (f"{CONFIGS}/*.csv", f"{CONFIGS}/model_configs/**/*"))
    found = {file for file in files if f"{TREE_TOKEN}/{file}" in text}
    for path, table in tree.merged_tables.items():
        if path in text:
            found |= {*table.files, table.untuned} - {""}
    return tuple(sorted(found))


def licenses(tree: AiterTree) -> tuple[str, ...]:
    """Return the existing license texts of AITER and Composable Kernel, tree-relative, sorted."""
    wheel = ("*.dist-info/LICENSE", "*.dist-info/licenses/LICENSE")
    return _files(tree.root, ("LICENSE", *wheel, f"{tree.ck_dir}/LICENSE"))


def _files(root: Path, patterns: Iterable[str]) -> tuple[str, ...]:
    found = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    names = sorted(path.relative_to(root).as_posix() for path in found)
    if odd := [name for name in names if unseen(name)]:
        expected = "names of files in UTF-8, without control characters"
        raise AiterError([Finding(name, "a file of this name", expected) for name in odd])
    return tuple(names)
