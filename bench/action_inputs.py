"""Prints the number and size of files that the actions of a build read, by mnemonic and group.

    ./bazelw build --execution_log_json_file=/tmp/log.json //:quickstart_libmha_fwd
    ./bazelw --in-tree python3 bench/action_inputs.py /tmp/log.json

With a clean output base, the log has every action, including cache hits.
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

#: Group of a path, by the first pattern that matches.
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
    """The inputs of one group, of all actions with one mnemonic.

    Attributes:
        files: files per action, on average.
        bytes: bytes per action, on average.
        distinct_bytes: bytes of distinct files over all actions: a client uploads these.
    """

    mnemonic: str
    name: str
    files: float
    bytes: float
    distinct_bytes: int


def group_of(path: str) -> str:
    """Return the name of a path's group."""
    return next((name for name, pattern in GROUPS if pattern.search(path)), OTHER)


def summarize(spawns: Iterable[Spawn]) -> list[Group]:
    """Return the inputs of actions, by mnemonic and in the order of GROUPS."""
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
    """Return a table of groups, with a total for each mnemonic."""
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
    parser.add_argument("log", type=Path, help="file of --execution_log_json_file")
    log = parser.parse_args().log
    print(to_text(to_table(summarize(read_spawns(log)))))


if __name__ == "__main__":
    main()
