"""Modules of AITER that Python imports and that need no PyTorch: what is compiled of them.

They have neither kernel instances nor generators; each is a handful of sources on pybind11.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qola.aiter.includes import closure, include_dirs, includes
from qola.aiter.module_kinds import sources
from qola.aiter.tree import AiterTree, ModuleConfig
from qola.errors import Finding, PlanError
from qola.files import sha256_of_text, write_if_changed


@dataclass(frozen=True)
class PythonSource:
    """One source of a Python module.

    Attributes:
        name: target name without the module.
        file: path in the manifest's repository.
        sha256: digest of the file.
    """

    name: str
    file: str
    sha256: str


@dataclass(frozen=True)
class PythonModule:
    """One Python module.

    Attributes:
        name: the module, such as module_aiter_enum.
        library: file name; Python finds a module by it, so it has no namespace before it.
        symbol: the one symbol that leaves it.
        copts: compiler flags of its optCompilerConfig.json entry.
        sources: its sources, in the entry's order.
        include_dirs: include directories in search order, relative to the tree.
        headers: headers of the tree that its sources may read, relative, sorted.
        inputs: files of the tree it is made of: sources and headers, sorted.
    """

    name: str
    library: str
    symbol: str
    copts: tuple[str, ...]
    sources: tuple[PythonSource, ...]
    include_dirs: tuple[str, ...]
    headers: tuple[str, ...]
    inputs: tuple[str, ...]


def plan_python_module(
    tree: AiterTree, config: ModuleConfig, drop_srcs: tuple[str, ...], output: Path, place: str
) -> PythonModule:
    """Plan a module and copy its sources.

    Args:
        tree: the AITER tree.
        config: the module's entry, as the manifest changes it.
        drop_srcs: names of source files the manifest leaves out.
        output: existing directory; gets <module>/sources.
        place: the module's name in the manifest, for findings.

    Raises:
        PlanError: the entry asks for what a plan does not follow, or leaves no source.
    """
    files = tuple(sources(tree, config, drop_srcs))
    names = {path: Path(path).stem for path in files}
    doubtful = {
        "generators": ", ".join(call.script for call in config.generators),
        "no sources": "" if files else "none left",
        "two sources of one name": ""
        if len(set(names.values())) == len(files)
        else ", ".join(files),
        "an executable": "is_standalone" if config.is_standalone else "",
        "not a Python module": "" if config.is_python_module else "is_python_module is False",
    }
    if any(doubtful.values()):
        raise PlanError(
            Finding(
                place,
                f"{config.name}: {what} ({found})",
                "a Python module of C++ sources, which is all that can be planned beside attention",
                "remove it from the manifest",
            )
            for what, found in doubtful.items()
            if found
        )
    texts = {path: (tree.root / path).read_text(encoding="utf-8") for path in files}
    planned = []
    for path, text in texts.items():
        # cc_library takes no .cu file.
        file = f"{config.name}/sources/{names[path]}.cpp"
        write_if_changed(output / file, text)
        planned.append(PythonSource(names[path], file, sha256_of_text(text)))
    dirs = include_dirs(tree, config)
    roots = sorted({name for text in texts.values() for name, _ in includes(text)})
    headers = closure(tree.root, dirs, roots)
    module = config.md_name or config.name
    return PythonModule(
        name=config.name,
        library=f"{module}.so",
        symbol=f"PyInit_{module}",
        copts=config.flags_hip,
        sources=tuple(planned),
        include_dirs=tuple(d for d in dirs if any(h.startswith(f"{d}/") for h in headers)),
        headers=headers,
        inputs=tuple(sorted({*files, *headers})),
    )


def export_list(symbol: str) -> str:
    """Linker version script that lets one C symbol out, and nothing else."""
    return f"{{\n  global:\n    {symbol};\n  local:\n    *;\n}};\n"
