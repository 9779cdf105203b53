"""Compares the execution logs of two builds and prints the first action that differs.

    bazel build --execution_log_json_file=A ...      # and B, elsewhere
    python -m tools.execution_log.first_difference A B

A log entry has the action's command line, its environment and the digests of inputs and outputs.
The first different action in the order of dependencies causes the difference; later ones only
propagate it. Exit codes: 0 equal, 1 different, 2 a log cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import ndiff
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import ClassVar

from qola.report.execution_log import Spawn, read_spawns
from qola_base.errors import Finding, QolaError

Outputs = tuple[str, ...]
"""The sorted output files of an action, which identify it in every build."""

_SHOWN = 20
"""Limit of listed files, arguments or variables of each kind."""


class ExecutionLogError(QolaError):
    """An execution log is missing or malformed."""

    exit_code: ClassVar[int] = 2
    default_title = "the execution logs cannot be compared"


@dataclass(frozen=True)
class Difference:
    """The first action that differs.

    Attributes:
        first: the action in the first log, None if it is missing there.
        second: the action in the second log, None if it is missing there.
        outputs: all outputs of actions in the logs.
        differing: number of different actions, including this one.
        actions: number of actions in both logs together.
    """

    first: Spawn | None
    second: Spawn | None
    outputs: frozenset[str]
    differing: int
    actions: int


def first_difference(one: Iterable[Spawn], other: Iterable[Spawn]) -> Difference | None:
    """Return the first different action in the order of dependencies; None if all are equal.

    Args:
        one: the actions of a build, in any order.
        other: the actions of another build of the same targets.

    Raises:
        ExecutionLogError: the actions of the two logs form a dependency cycle.
    """
    # The last attempt of a retried action counts.
    left, right = ({spawn.key: spawn for spawn in spawns} for spawns in (one, other))
    order = _topological({**left, **right}, [*left.values(), *right.values()])
    differing = [key for key in order if _facts(left.get(key)) != _facts(right.get(key))]
    if not differing:
        return None
    outputs = frozenset(path for key in order for path in key)
    key = differing[0]
    return Difference(left.get(key), right.get(key), outputs, len(differing), len(order))


def _topological(keys: Iterable[Outputs], spawns: Iterable[Spawn]) -> list[Outputs]:
    maker = {path: key for key in keys for path in key}
    graph: dict[Outputs, list[Outputs]] = {}
    for spawn in spawns:
        makers = {maker[path]: None for path in spawn.inputs if path in maker}
        graph.setdefault(spawn.key, []).extend(key for key in makers if key != spawn.key)
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise ExecutionLogError(
            Finding(
                "the two logs together",
                f"actions that need each other's outputs: {error.args[1][0][0]}",
                "logs of two builds of the same targets with the same options",
                "build both with --execution_log_json_file and compare those",
            )
        ) from None


def _facts(spawn: Spawn | None) -> object:
    # The place of execution does not matter: a cache hit is the same action.
    if spawn is None:
        return None
    return (
        spawn.label,
        spawn.mnemonic,
        spawn.arguments,
        spawn.environment,
        spawn.inputs,
        spawn.outputs,
    )


def render(difference: Difference) -> str:
    """Format a difference: the action, the differing values, and their meaning."""
    one, other = difference.first, difference.second
    spawn = one or other
    if spawn is None:
        raise ValueError("a difference has an action in at least one log")
    lines = [
        f"{difference.differing} of {difference.actions} actions differ; first:",
        f"  target    {spawn.label}",
        f"  mnemonic  {spawn.mnemonic}",
        f"  outputs   {', '.join(spawn.key) or 'none'}",
    ]
    if one is None or other is None:
        which = "first" if other is None else "second"
        lines.append(f"  found     only in the {which} log")
        lines.append(
            "  meaning   the builds had different targets, or one reused results of an earlier "
            "build: compare builds in new output bases"
        )
        return "\n".join(lines)
    changed = [line for line in ndiff(one.arguments, other.arguments) if line[0] in "-+"]
    lines += _part("arguments", changed)
    lines += _part("environment", _entries_that_differ(one.environment, other.environment))
    lines += _part("inputs", _entries_that_differ(one.inputs, other.inputs))
    lines += _part("outputs", _entries_that_differ(one.outputs, other.outputs))
    lines.append(f"  meaning   {_meaning(one, other, difference.outputs)}")
    return "\n".join(lines)


def _part(title: str, differing: Sequence[str]) -> Iterator[str]:
    if differing:
        yield f"  {title} that differ:"
        yield from (f"    {line}" for line in differing[:_SHOWN])
        if len(differing) > _SHOWN:
            yield f"    ... {len(differing) - _SHOWN} more"


def _entries_that_differ(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return [
        f"{name}: {_shown(one.get(name))} != {_shown(other.get(name))}"
        for name in sorted({*one, *other})
        if one.get(name) != other.get(name)
    ]


def _shown(value: str | None) -> str:
    return "(none)" if value is None else repr(value)


def _meaning(one: Spawn, other: Spawn, outputs: frozenset[str]) -> str:
    read, other_read = one.inputs, other.inputs
    names = sorted(path for path in {*read, *other_read} if read.get(path) != other_read.get(path))
    if names:
        # Outputs of actions in the logs were compared before.
        sources = [name for name in names if name not in outputs] or names
        return (
            f"no action of the logs writes {sources[0]}: a source, a fetched file or a file of "
            "Bazel itself differs"
        )
    if one.arguments != other.arguments or one.environment != other.environment:
        return "the commands differ: they contain a path, a user name or a variable"
    if one.outputs != other.outputs:
        return "equal command, environment and inputs, different outputs: not deterministic"
    return "the same action belongs to different targets"


def read(path: Path) -> tuple[Spawn, ...]:
    """Read an execution log from a file.

    Raises:
        ExecutionLogError: the file cannot be read, or is not an execution log.
    """
    try:
        return tuple(read_spawns(path))
    except (OSError, ValueError) as error:
        raise ExecutionLogError(
            Finding(
                str(path),
                str(error),
                "an execution log of Bazel in JSON",
                f"bazel build --execution_log_json_file={path} ...",
            )
        ) from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="first_difference",
        description="Print the first action that differs between two builds.",
    )
    parser.add_argument("first", type=Path, help="log of --execution_log_json_file")
    parser.add_argument("second", type=Path, help="log of another build of the same targets")
    args = parser.parse_args(argv)
    try:
        found = first_difference(read(args.first), read(args.second))
    except QolaError as error:
        print(f"qola: {type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    print(render(found) if found else "the builds are equal")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
