"""The program of the rule lazy_sources: ``index`` writes index and table, ``root`` the files."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict

from qola.lazy.index import FILE, Headers, Index, Kernel, render_index, render_table
from qola.plan.model import Plan
from qola_base.errors import Finding, PlanError
from qola_base.files import sha256_of, write_if_changed, writing
from qola_base.rule_main import run_main

_INCLUDE = "include"
"""Directory of headers in the root, with the paths of the tree."""

_ABI_DIR = f"{_INCLUDE}/qola"
"""Directory of qola_kernel.h in the root."""


def identity_line(text: str) -> str:
    """Parse the compiler's identity from its output for runtime/lazy/identity.hip.

    The runtime parses it in the same way.

    Raises:
        PlanError: the output has no identity.
    """
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "qola_identity":
            return " ".join(rest.replace('"', " ").split())
    raise PlanError(Finding("the compiler's answer", text[-200:], "a line of qola_identity"))


class Settings(TypedDict):
    """The settings that rules/private/lazy.bzl writes; paths are those of the action's inputs."""

    abi_header: str
    arch_flags: dict[str, list[str]]
    entries: dict[str, str]
    flags: list[str]
    identity: str
    link_flags: list[str]
    link_script: str
    module: str
    place: str
    plan: str
    sources: dict[str, str]
    tree: str


def make_index(settings: Settings, plan: Plan) -> Index:
    """Return the index of a module's kernels, from the settings of rules/private/lazy.bzl.

    Raises:
        PlanError: the compiler printed no identity.
        OSError: a file cannot be read.
    """
    module = plan.module(settings["module"])
    kernels = plan.kernels_of(module)
    tree = Path(settings["tree"])
    abi = Path(settings["abi_header"])
    units = plan.unit_by_kernel(module)
    used = [s for s in plan.header_sets if any(unit.headers == s.name for unit in units.values())]
    digests = {file: sha256_of(tree / file) for file in {f for s in used for f in s.files}}
    entries = {source.name: source.sha256 for source in module.entry_sources}
    return Index(
        module=module.name,
        root=f"../{settings['place']}",
        identity=identity_line(Path(settings["identity"]).read_text(encoding="utf-8")),
        flags=tuple(settings["flags"]),
        arch_flags={
            arch: tuple(settings["arch_flags"].get(arch, ()))
            for arch in sorted({arch for kernel in kernels for arch in kernel.archs})
        },
        package_flags={unit.kernel_group: unit.copts for unit in plan.units_of(module)},
        headers={
            found.name: Headers(
                (*(f"{_INCLUDE}/{d}" for d in found.include_dirs), _ABI_DIR),
                {f"{_INCLUDE}/{file}": digests[file] for file in found.files}
                | {f"{_ABI_DIR}/{abi.name}": sha256_of(abi)},
            )
            for found in used
        },
        link_flags=tuple(settings["link_flags"]),
        link_script=sha256_of(Path(settings["link_script"])),
        entries=entries,
        kernels=tuple(
            Kernel(k.name, arch, unit.kernel_group, unit.headers, k.entry, k.sha256)
            for k, unit in zip(kernels, map(units.__getitem__, module.kernels), strict=True)
            for arch in k.archs
        ),
    )


def layout(settings: Settings, index: str) -> Iterator[tuple[str, str]]:
    """Yield the files of a root: relative path and source file."""
    rows = [line.split("\t") for line in index.splitlines()]
    abi = Path(settings["abi_header"])
    seen: set[str] = set()
    for row in rows:
        match row:
            case ["header", _, path, _] if path not in seen:
                seen.add(path)
                below = path.removeprefix(_INCLUDE + "/")
                own = path == f"{_ABI_DIR}/{abi.name}"
                yield path, str(abi) if own else f"{settings['tree']}/{below}"
            case ["link-script", path, _]:
                yield path, settings["link_script"]
            case ["entry", name, _]:
                yield f"entries/{name}.cpp", settings["entries"][name]
            case ["kernel", name, _, package, *_] if f"src/{package}/{name}.cpp" not in seen:
                seen.add(f"src/{package}/{name}.cpp")
                yield f"src/{package}/{name}.cpp", settings["sources"][f"{package}/{name}"]


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of the rule lazy_sources."""
    parser = argparse.ArgumentParser(prog="qola.lazy", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    index = commands.add_parser("index", help="write the index and the library's table")
    index.add_argument("--table", required=True, type=Path, help="C++ source to write")
    root = commands.add_parser("root", help="lay out what compiles read")
    root.add_argument("--output", required=True, type=Path, help="directory to write to")
    for command in (index, root):
        command.add_argument("--settings", required=True, type=Path, help="JSON of the rule")
        command.add_argument("--index", required=True, type=Path, help=FILE)
    args = parser.parse_args(argv)
    settings = json.loads(args.settings.read_text(encoding="utf-8"))
    return run_main(lambda: (_root if args.command == "root" else _index)(args, settings))


def _index(args: argparse.Namespace, settings: Settings) -> None:
    made = make_index(settings, Plan.from_json(Path(settings["plan"]).read_text("utf-8")))
    write_if_changed(args.index, render_index(made))
    write_if_changed(args.table, render_table(made))


def _root(args: argparse.Namespace, settings: Settings) -> None:
    text = args.index.read_text(encoding="utf-8")
    args.output.mkdir(parents=True, exist_ok=True)
    write_if_changed(args.output / FILE, text)
    for path, source in layout(settings, text):
        target = args.output / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with writing(target):
            shutil.copyfile(source, target)


if __name__ == "__main__":
    sys.exit(main())
