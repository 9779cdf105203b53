"""Prints the CPU seconds of a test run by kind of action, from a profile of Bazel.

    ./bazelw test --profile=/tmp/tests.gz //... && python3 -m bench.test_costs /tmp/tests.gz

Bazel records when an action ran, not its CPU time. At each moment the running actions share the
cores equally, so the seconds of all kinds sum up to the CPU seconds in use, if actions have one
thread.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Kinds in the order in which they are tried, by an action's mnemonic and progress message.
KINDS: Sequence[tuple[str, str]] = (
    ("linters", r"TestRunner .*//tests/tools:(buildifier|dockerfile|mypy|ruff|ruff_format|shell)$"),
    ("nested Bazels", r"TestRunner .*//tests/e2e:"),
    ("HIP tests", r"\S+ .*(//|tests/)hip[:/]"),
    ("tests on the emulator", r"TestRunner .*//(gfxemu/tests|qola_lab/tests|tests/triton)"),
    (
        "tests of libraries",
        r"TestRunner .*(//tests/(library|bundle|split|report)|//runtime/tests|@)",
    ),
    ("tests of Starlark", r"TestRunner .*//tests/starlark"),
    ("tests of Python", r"TestRunner"),
    ("kernels", r"Qola(Compile|Compress) "),
    ("kernels in Triton", r"QolaTriton"),
    ("dispatch and entry points", r"CppCompile .*lib\w+/(dispatch\w*|entry|stubs)/"),
    ("engines of the emulator", r"\S+ .*engine"),
    ("other C++", r"CppCompile|CppArchive"),
    ("links, symbols, bundles", r""),
)


@dataclass(frozen=True)
class Span:
    """A piece of work of one thread; times in microseconds."""

    start: int
    end: int
    kind: str
    name: str


def kind_of(mnemonic: str, name: str) -> str:
    """Return the first kind whose pattern matches."""
    return next(kind for kind, pattern in KINDS if re.match(pattern, f"{mnemonic} {name}"))


def read_spans(events: Iterable[Mapping[str, Any]]) -> Iterator[Span]:
    """Yield fetches, and actions without the time in which they waited for a core."""
    threads: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    waits: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        category, thread = event.get("cat"), event.get("tid", 0)
        if category in ("action processing", "Fetching repository"):
            threads[thread].append(event)
        elif category == "action resource lock":
            waits[thread].append((event["ts"], event["ts"] + event["dur"]))
    for thread, actions in threads.items():
        locks = sorted(waits[thread])
        for event in actions:
            start, end = event["ts"], event["ts"] + event["dur"]
            name, mnemonic = event["name"], event.get("args", {}).get("mnemonic", "")
            if event["cat"] == "Fetching repository":
                planned = re.search(r"qola~qola_(?!pip|rocm|python|torch)", name)
                yield Span(start, end, "plans" if planned else "fetches", name)
                continue
            # A test waits twice: its log is written by a process of its own.
            for lock in (lock for lock in locks if start <= lock[0] < end):
                yield Span(start, lock[0], kind_of(mnemonic, name), name)
                start = min(lock[1], end)
            yield Span(start, end, kind_of(mnemonic, name), name)


def share_cores(spans: Sequence[Span], cores: int) -> dict[Span, float]:
    """Return the seconds of CPU of each span, if running spans share the cores equally."""
    # The end of a span without length would sort before its start.
    lasting = [(index, span) for index, span in enumerate(spans) if span.start < span.end]
    changes = sorted(
        [(span.start, 1, index) for index, span in lasting]
        + [(span.end, 0, index) for index, span in lasting]
    )
    seconds = [0.0] * len(spans)
    running: set[int] = set()
    before = 0
    for time, starts, index in changes:
        if running:
            share = min(1.0, cores / len(running)) * (time - before) / 1e6
            for other in running:
                seconds[other] += share
        before = time
        (running.add if starts else running.discard)(index)
    return dict(zip(spans, seconds, strict=True))


def profile_seconds(profile: Path) -> dict[Span, float]:
    """Return the seconds of CPU of each span of a file of --profile."""
    with gzip.open(profile, "rt", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    return share_cores(list(read_spans(events)), os.cpu_count() or 1)


def main() -> None:
    """Print the table, and the actions that took longest."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("profile", type=Path, help="file of --profile")
    parser.add_argument("--longest", type=int, default=0, help="how many actions to list, too")
    args = parser.parse_args()
    costs = profile_seconds(args.profile)
    kinds: dict[str, float] = defaultdict(float)
    for span, seconds in costs.items():
        kinds[span.kind] += seconds
    print("| Kind | CPU seconds |\n| --- | ---: |")
    for kind, seconds in sorted(kinds.items(), key=lambda item: -item[1]):
        print(f"| {kind} | {seconds:.0f} |")
    print(f"| sum | {sum(costs.values()):.0f} |")
    for span, seconds in sorted(costs.items(), key=lambda item: -item[1])[: args.longest]:
        print(f"{seconds:7.1f} s  {span.kind}: {span.name}")


if __name__ == "__main__":
    main()
