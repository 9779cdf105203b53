"""Prints how many files and bytes the actions of a build read, by kind of action and of input.

    ./bazelw build --execution_log_json_file=/tmp/log.json //:quickstart_libmha_fwd
    ./bazelw --in-tree python3 bench/action_inputs.py /tmp/log.json

A clean output base logs every action, those that come from a cache too.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from qola.cli.console import Table, size, to_text  # noqa: E402
from qola.report.execution_log import LoggedFile, Spawn, read_spawns  # noqa: E402

#: What a path is, by the first pattern found in it.
GROUPS = (
    ("device libraries", re.compile(r"/amdgcn/")),
    ("HIP headers", re.compile(r"/(rocm|hip)/(include|share)/")),
    ("C and C++ headers", re.compile(r"/sysroot/usr/include/")),
    ("compiler's headers", re.compile(r"/resource/|/lib/clang/")),
    ("libraries of the sysroot", re.compile(r"/sysroot/")),
    ("compiler", re.compile(r"[~+]qola_rocm(_sdk)?/")),
    ("objects", re.compile(r"\.(o|a|hsaco|co|bc|hipfb)$")),
    ("AITER and CK headers", re.compile(r"\.(h|hpp|inc|inl)$")),
    ("source", re.compile(r"\.(cpp|cc|cu|c|s|S)$")),
)
OTHER = "other"


@dataclass(frozen=True)
class Group:
    """What the actions of one kind read of one group.

    Attributes:
        files: files per action, on average.
        bytes: bytes per action, on average.
        distinct_bytes: bytes over all actions, what several read counted once: what a client
            uploads and, in the end, each worker keeps.
    """

    mnemonic: str
    name: str
    files: float
    bytes: float
    distinct_bytes: int


def group_of(path: str) -> str:
    """Return the name of the group a path belongs to."""
    return next((name for name, pattern in GROUPS if pattern.search(path)), OTHER)


def summarize(spawns: Iterable[Spawn]) -> list[Group]:
    """Return what actions read, by mnemonic and in the order of GROUPS."""
    actions: dict[str, int] = {}
    read: dict[tuple[str, str], list[LoggedFile]] = {}
    for spawn in spawns:
        actions[spawn.mnemonic] = actions.get(spawn.mnemonic, 0) + 1
        for file in spawn.inputs:
            read.setdefault((spawn.mnemonic, group_of(file.path)), []).append(file)
    order = [*(name for name, _ in GROUPS), OTHER]
    return [
        Group(
            mnemonic,
            name,
            len(files) / actions[mnemonic],
            sum(file.size for file in files) / actions[mnemonic],
            sum({file.digest: file.size for file in files}.values()),
        )
        for mnemonic in sorted(actions)
        for name in order
        if (files := read.get((mnemonic, name)))
    ]


def to_table(groups: Iterable[Group]) -> Table:
    """Return the groups as a table, with a line for each mnemonic's sum."""
    rows = []
    listed = list(groups)
    for mnemonic in dict.fromkeys(group.mnemonic for group in listed):
        own = [group for group in listed if group.mnemonic == mnemonic]
        total = Group(
            mnemonic,
            "all",
            sum(group.files for group in own),
            sum(group.bytes for group in own),
            sum(group.distinct_bytes for group in own),
        )
        rows += [
            (g.mnemonic, g.name, f"{g.files:.0f}", size(g.bytes), size(g.distinct_bytes))
            for g in (*own, total)
        ]
    columns = ("action", "input", "files", "bytes", "distinct")
    return Table("Inputs per action", columns, rows, numbers=3)


def main() -> None:
    """Read a log and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("log", type=Path, help="what --execution_log_json_file wrote")
    log = parser.parse_args().log
    print(to_text(to_table(summarize(read_spawns(log)))))


if __name__ == "__main__":
    main()
