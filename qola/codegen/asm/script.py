"""Runs AITER's generator scripts, each in a clean folder, and reads the files that they write."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.aiter.tree import ARCH_TOKEN, TREE_TOKEN, AiterTree, GeneratorCall, ModuleConfig
from qola.codegen.asm.merged_tables import merge_tables
from qola.codegen.asm.run_script import ONE_ARCH
from qola.codegen.process import run_module
from qola.codegen.types import GeneratedSource
from qola.common.folder import Folder
from qola_base.errors import CodegenError, Finding

_MAX_BYTES = 1 << 30
_TABLE = re.compile(r"static CFG (cfg_\w+) = \{(.*?)\};\n?", re.DOTALL)
"""A table of assembly kernels in a header: its name and entries."""

_SUFFIXES = (".cpp", ".cu", ".hpp", ".h", ".cuh")


def run_script(
    script: Path, args: Sequence[str], place: str, archs: Sequence[str] = ()
) -> dict[str, bytes]:
    """Run one generator script and return the sources it writes, all in one folder.

    Args:
        args: its arguments; ``{}`` and ``{0}`` stand for the output folder.
        archs: the result of `chip_info.get_gfx_list`.

    Returns:
        Contents by file name, sorted.

    Raises:
        CodegenError: the script fails, writes nothing, or writes a file that is not a C++ source or
            is outside of its output folder.
    """
    files, _ = _run_deep_script(script, args, place, archs)
    if deeper := [name for name in files if "/" in name]:
        raise _unexpected(place, [f"out/{name}" for name in deeper])
    return files


def _run_deep_script(
    script: Path, args: Sequence[str], place: str, archs: Sequence[str]
) -> tuple[dict[str, bytes], list[str]]:
    """Do as `run_script`, with files also below the output folder.

    Returns:
        Contents by path, and the absolute names of the files that the script opened.
    """
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        # Some scripts write files for their own later runs next to or above their output folder.
        cwd, folder, seen = root / "cwd", root / "build/module/out", root / "seen"
        cwd.mkdir()
        folder.mkdir(parents=True)
        # As str.format, with which AITER puts it in.
        arguments = [arg.replace("{}", str(folder)).replace("{0}", str(folder)) for arg in args]
        command = [str(seen), f"--archs={','.join(archs)}", str(script.absolute()), *arguments]
        run_module("qola.codegen.asm.run_script", command, cwd=cwd, place=place)
        opened = json.loads(seen.read_text(encoding="utf-8")) if seen.is_file() else []
        seen.unlink(missing_ok=True)
        named = {os.path.normpath(option.rpartition("=")[2]) for option in arguments}
        written = sorted(path for path in root.rglob("*") if path.is_file())
        files = [path for path in written if str(path) not in named]
        unexpected = [p for p in files if folder not in p.parents or p.suffix not in _SUFFIXES]
        size = sum(path.stat().st_size for path in files)
        if size > _MAX_BYTES:
            most = f"at most {_MAX_BYTES >> 20} MiB"
            raise CodegenError(Finding(place, f"{size} bytes of files", most))
        if unexpected or not files:
            raise _unexpected(place, [p.relative_to(root).as_posix() for p in unexpected])
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}, opened


def _unexpected(place: str, names: Sequence[str]) -> CodegenError:
    found = f"unexpected files: {', '.join(names)}" if names else "no file"
    expected = f"files ending in {', '.join(_SUFFIXES)} in its output folder"
    return CodegenError(Finding(place, found, expected))


def write_source(
    out_dir: Folder, file: str, data: bytes, direction: str, role: str
) -> GeneratedSource:
    """Write a generated source, unless it is unchanged, and describe it."""
    digest = out_dir.write(file, data)
    return GeneratedSource(Path(file).name, file, digest, direction, role)


def generate_entry(
    tree: AiterTree,
    call: GeneratorCall,
    out_dir: Folder,
    direction: str,
    asm_archs: Sequence[str] = (),
    *,
    folder: str = "dispatch",
) -> list[GeneratedSource]:
    """Run the generator of an entry point, and write its sources.

    Args:
        asm_archs: the architectures for which the entry point calls a v3 (assembly) dispatch. For a
            single one it calls it on every device.
        folder: path below `out_dir`.
    """
    place = f"{call.script} {' '.join(call.args)}"
    files = run_script(tree.root / call.script, call.args, place, asm_archs)
    return [
        write_source(out_dir, f"{folder}/{name}", data, direction, "entry")
        for name, data in files.items()
    ]


@dataclass(frozen=True)
class Generated:
    """The generated files of a module.

    Attributes:
        files: contents by path below their folder, sorted; "" for files that are the same for all
            archs, otherwise the files of each arch.
        inputs: files of the tree from which they were generated.
    """

    files: Mapping[str, Mapping[str, bytes]]
    inputs: tuple[str, ...]


def generated_files(
    tree: AiterTree, config: ModuleConfig, archs: Sequence[str], *, per_arch: bool
) -> Generated:
    """Run a module's generators.

    Args:
        per_arch: whether a module for several archs may have different files for each of them.
            AITER compiles a module for one arch.

    Raises:
        CodegenError: one fails, writes a file that is not a C++ source, or writes different files
            for different archs without `per_arch`.
    """
    files: dict[str, bytes] = {}
    files_of: dict[str, dict[str, bytes]] = {arch: {} for arch in archs}
    differing: list[str] = []
    inputs: set[str] = set()
    with tempfile.TemporaryDirectory() as name:
        paths = dict(_write_merged(tree, config, Path(name), inputs))
        paths[TREE_TOKEN] = str(tree.root.absolute())
        for call in config.generators:
            args = [_replace(arg, paths) for arg in call.args]
            runs: list[tuple[Sequence[str], Mapping[str, bytes | None]]] = []
            for script, script_archs in _runs(call, archs):
                if not (tree.root / script).is_file():
                    expected = "a generator for each arch of the manifest"
                    raise CodegenError(Finding(script, "is not in the tree", expected))
                place = f"{script} {' '.join(call.args)}"
                for own_archs, new, opened in _run_for(
                    tree.root / script, args, place, script_archs
                ):
                    inputs.update(_inputs(tree, script, opened))
                    runs.append((own_archs, new))
            for own_archs, new in runs:
                for arch in own_archs:
                    files_of[arch] |= {n: data for n, data in new.items() if data is not None}
            merged, changed = _merge_runs(runs)
            changed += [n for n in merged if files.get(n, merged[n]) != merged[n]]
            if changed and not per_arch:
                raise CodegenError(
                    Finding(
                        f"module {config.name}, {call.script}",
                        f"{_few(changed)} is another for each of {', '.join(archs)}",
                        "files that are the same for all archs, or headers that differ in tables "
                        "of assembly kernels only",
                        "a manifest for each arch",
                    )
                )
            differing += changed
            files.update(merged)
    found = files_of if differing else {"": files}
    return Generated(
        {arch: dict(sorted(own.items())) for arch, own in found.items()}, tuple(sorted(inputs))
    )


def _few(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more files" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _run_for(
    script: Path, args: Sequence[str], place: str, archs: Sequence[str]
) -> list[tuple[Sequence[str], Mapping[str, bytes | None], Sequence[str]]]:
    """Run a script for archs together, or for each if it only runs for one.

    Returns:
        Archs, contents by path, and opened files of each run. The content is None for a file that
        only other runs write.
    """
    try:
        return [(archs, *_run_deep_script(script, args, place, archs))]
    except CodegenError as error:
        if len(archs) < 2 or ONE_ARCH not in str(error):
            raise
    runs = [([arch], *_run_deep_script(script, args, place, [arch])) for arch in archs]
    names = sorted({name for _, files, _ in runs for name in files})
    return [(own, {name: files.get(name) for name in names}, opened) for own, files, opened in runs]


def _merge_runs(
    runs: Sequence[tuple[Sequence[str], Mapping[str, bytes | None]]],
) -> tuple[dict[str, bytes], list[str]]:
    """Merge the files of a generator's runs; return them, and names of those that differ.

    Args:
        runs: archs and files of each.
    """
    files: dict[str, bytes] = {}
    changed = []
    for name in dict.fromkeys(name for _, own in runs for name in own):
        texts = {", ".join(archs): own[name] for archs, own in runs if name in own}
        read = {arch: (data or b"").decode("utf-8") for arch, data in texts.items()}
        merged = next(iter(read.values()))
        if len({*texts.values()}) > 1:
            merged = merge_headers(read)
            changed += [] if merged else [name]
        files[name] = merged.encode("utf-8")
    return files, changed


def merge_headers(headers: Mapping[str, str]) -> str:
    """Return a header with the tables of all archs; "" if the headers differ in anything else.

    AITER compiles a module for one arch. In a module for several, each table's name is an
    expression: the table of the current device's arch.

    Args:
        headers: text of the header by arch.
    """
    rests = {" ".join(_TABLE.sub("", text).split()) for text in headers.values()}
    tables = {arch: dict(_TABLE.findall(text)) for arch, text in headers.items()}
    if len(rests) != 1 or not all(tables.values()):
        return ""
    first = next(iter(headers.values()))
    lines = [first[: first.index("static CFG ")]]
    for name in dict.fromkeys(name for own in tables.values() for name in own):
        archs = [arch for arch, own in tables.items() if name in own]
        lines += [f"static CFG qola_{arch}_{name} = {{{tables[arch][name]}}};" for arch in archs]
        choices = ", ".join(f'{{"{arch}", &qola_{arch}_{name}}}' for arch in archs)
        lines += [f"#define {name} (::qola_asm::table_of_arch<CFG>({{{choices}}}))", ""]
    return "\n".join(lines)


def _write_merged(
    tree: AiterTree, config: ModuleConfig, folder: Path, inputs: set[str]
) -> Iterator[tuple[str, str]]:
    """Write the merged tuning tables that arguments name; yield path and file of each."""
    named = " ".join(arg for call in config.generators for arg in call.args)
    for path, table in tree.merged_tables.items():
        if path in named:
            file = folder / path.rpartition("/")[2]
            file.write_text(merge_tables(tree.root, table), encoding="utf-8")
            inputs.update(filter(None, (*table.files, table.untuned)))
            yield path, str(file)


def _replace(text: str, paths: Mapping[str, str]) -> str:
    for path, file in paths.items():
        text = text.replace(path, file)
    return text


def _runs(call: GeneratorCall, archs: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    if not call.per_arch:
        yield call.script, archs
        return
    yield from ((call.script.replace(ARCH_TOKEN, arch), [arch]) for arch in archs)


def _inputs(tree: AiterTree, script: str, opened: Sequence[str]) -> Iterator[str]:
    """Return the Python and CSV files next to a script, and files of the tree that it opened."""
    siblings = (tree.root / script).parent.iterdir()
    scripts = (path for path in siblings if path.suffix in (".py", ".csv"))
    return tree.files_among([*scripts, *opened])
