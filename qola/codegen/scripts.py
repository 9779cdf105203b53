"""Runs the generators of a module beside attention, as AITER does, and takes what they write."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.aiter.tree import ARCH_TOKEN, TREE_TOKEN, AiterTree, GeneratorCall, ModuleConfig
from qola.codegen.asm.script import Written, run_deep_script
from qola.errors import CodegenError, Finding


@dataclass(frozen=True)
class Generated:
    """What a module's generators made.

    Attributes:
        files: contents by path below their folder, sorted.
        inputs: files of the tree that decided them.
    """

    files: Mapping[str, bytes]
    inputs: tuple[str, ...]


def generated_files(tree: AiterTree, config: ModuleConfig, archs: Sequence[str]) -> Generated:
    """Run a module's generators.

    Raises:
        CodegenError: one fails, writes what is no C++ source, or what is another file for each
            arch, of which AITER compiles one.
    """
    files: dict[str, bytes] = {}
    inputs: set[str] = set()
    for call in config.generators:
        for script, told in _runs(call, archs):
            written = _run(tree, call, script, told)
            inputs.update(_inputs(tree, script, written))
            new = written.files
            if changed := [name for name in new if files.get(name, new[name]) != new[name]]:
                raise CodegenError(
                    Finding(
                        f"module {config.name}, {call.script}",
                        f"{', '.join(changed)} is another for each of {', '.join(archs)}",
                        "a generator whose files are the same for all archs, or one arch",
                        "a manifest for each arch",
                    )
                )
            files.update(new)
    return Generated(dict(sorted(files.items())), tuple(sorted(inputs)))


def _runs(call: GeneratorCall, archs: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each script of a call, with the archs that it is told of."""
    if not call.per_arch:
        yield call.script, archs
        return
    yield from ((call.script.replace(ARCH_TOKEN, arch), [arch]) for arch in archs)


def _run(tree: AiterTree, call: GeneratorCall, script: str, archs: Sequence[str]) -> Written:
    root = str(tree.root.absolute())
    args = [arg.replace(TREE_TOKEN, root) for arg in call.args]
    if not (tree.root / script).is_file():
        raise CodegenError(
            Finding(script, "is not in the tree", "a generator for each arch of the manifest")
        )
    return run_deep_script(tree.root / script, args, f"{script} {' '.join(call.args)}", archs)


def _inputs(tree: AiterTree, script: str, written: Written) -> Iterator[str]:
    """Yield the files beside a script, and those of the tree that it opened."""
    folder = (tree.root / script).parent
    beside = (path for path in folder.iterdir() if path.suffix in (".py", ".csv"))
    root = os.path.join(os.path.abspath(tree.root), "")
    opened = (Path(name) for name in written.opened if name.startswith(root))
    for path in (*beside, *opened):
        if path.is_file():
            yield os.path.relpath(path, tree.root)
