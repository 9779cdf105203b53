"""Execution logs of two builds: which action differed first, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import log_entries as entries
from tests.support.log_entries import file, spawns, text_of
from tools.execution_log import first_difference as execlog


def entry(
    target: str, inputs: dict[str, str], outputs: dict[str, str], **changed: Any
) -> dict[str, Any]:
    """An action whose files have these digests."""
    read, written = ([file(*item) for item in files.items()] for files in (inputs, outputs))
    return entries.entry(target, read, written, **changed)


def chain(**changes: str) -> list[dict[str, Any]]:
    """Two compiles and a link, in an order in which no build could run them."""
    digest = {"a.c": "1", "b.c": "2", "a.o": "3", "b.o": "4", "lib.so": "5", **changes}
    return [
        entry("//:lib", {n: digest[n] for n in ("a.o", "b.o")}, {"lib.so": digest["lib.so"]}),
        entry("//:a", {"a.c": digest["a.c"]}, {"a.o": digest["a.o"]}),
        entry("//:b", {"b.c": digest["b.c"]}, {"b.o": digest["b.o"]}),
    ]


def report(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> str:
    difference = execlog.first_difference(spawns(*one), spawns(*other))
    return execlog.render(difference) if difference else ""


def test_the_same() -> None:
    """Prevents: a difference reported where none is, for the order of a log or where it ran."""
    cached = [{**e, "runner": "disk cache hit", "cacheHit": True} for e in reversed(chain())]
    assert execlog.first_difference(spawns(*chain()), spawns(*cached)) is None


def test_an_action_that_is_not_deterministic() -> None:
    """Prevents: blaming the link for the object it was given."""
    text = report(chain(), chain(**{"b.o": "40", "lib.so": "50"}))
    assert text.splitlines() == [
        "2 of 3 actions differ; first:",
        "  target    //:b",
        "  mnemonic  CppCompile",
        "  outputs   b.o",
        "  outputs that differ:",
        "    b.o: '4' != '40'",
        "  meaning   equal command, environment and inputs, different outputs: not deterministic",
    ]


def test_a_path_on_the_command_line() -> None:
    """Prevents: a value of the machine that cannot be found among 200 arguments."""
    flags = tuple(f"-f{i}" for i in range(200))
    one = entry("//:a", {}, {"a.o": "1"}, commandArgs=["cc", *flags, "-I/home/one"])
    other = entry("//:a", {}, {"a.o": "1"}, commandArgs=["cc", *flags, "-I/home/other"])
    text = report([one], [other])
    assert "    - -I/home/one\n    + -I/home/other\n" in text
    assert "-f1" not in text
    assert "meaning   the commands differ" in text


def tree(**digests: str) -> dict[str, Any]:
    """An action whose output is a directory."""
    files = {f"out/tree/{name}": digest for name, digest in digests.items()}
    return {**entry("//:tree", {}, files), "listedOutputs": ["out/tree"]}


def with_header() -> list[dict[str, Any]]:
    """The chain, with a header that one compile reads."""
    more = chain()
    more[2]["inputs"].append({"path": "b.h", "digest": {"hash": "6"}})
    return more


PATH, LANG = {"name": "PATH", "value": "/bin"}, {"name": "LANG", "value": "C"}
PLAIN = entry("//:a", {}, {"a.o": "1", "a.d": "2"}, environmentVariables=[PATH])
UNWRITTEN = {**PLAIN, "actualOutputs": PLAIN["actualOutputs"][:1]}
LEAKING = entry("//:a", {}, {"a.o": "1", "a.d": "2"}, environmentVariables=[PATH, LANG])


@pytest.mark.parametrize(
    ("one", "other", "parts"),
    [
        # A compiler called nondeterministic that was given another source.
        (
            chain(),
            chain(**{"a.c": "10", "a.o": "30", "lib.so": "50"}),
            ["  target    //:a\n", "    a.c: '1' != '10'\n", "no action of the logs writes a.c:"],
        ),
        # An input missed because the other build does not know it.
        (chain(), with_header(), ["b.h: (none) != '6'\n", "no action of the logs writes b.h:"]),
        # A variable of the user in an action, unseen while the outputs agree.
        ([LEAKING], [PLAIN], ["  environment that differ:\n    LANG: 'C' != (none)\n"]),
        # Logs of different targets that count as the same.
        (chain(), chain()[:2], ["  target    //:b\n", "  found     only in the first log"]),
        # An optional output (a .d file) that one build wrote and the other did not.
        ([PLAIN], [UNWRITTEN], ["    a.d: '2' != ''\n"]),
        # A directory that hides which of its files differs.
        (
            [tree(x="1", y="2")],
            [tree(x="1", y="3")],
            ["  outputs that differ:\n    out/tree/y: '2' != '3'\n  meaning"],
        ),
    ],
)
def test_what_differs_first(
    one: list[dict[str, Any]], other: list[dict[str, Any]], parts: list[str]
) -> None:
    """Prevents: a difference that is blamed on another action, file or variable, or not seen."""
    text = report(one, other)
    for part in parts:
        assert part in text


def test_the_last_try_counts() -> None:
    """Prevents: an action that was retried compared by its failure."""
    failed = entry("//:a", {"a.c": "1"}, {"a.o": ""})
    assert execlog.first_difference(spawns(failed, *chain()), spawns(*chain())) is None
    assert execlog.first_difference(spawns(*chain(), failed), spawns(*chain())) is not None


def test_a_circle_is_an_error() -> None:
    """Prevents: an endless loop, or a traceback, over logs that do not belong together."""
    one = spawns(entry("//:a", {"b": "1"}, {"a": "1"}))
    other = spawns(entry("//:b", {"a": "1"}, {"b": "1"}))
    with pytest.raises(execlog.ExecutionLogError, match="need each other's outputs"):
        execlog.first_difference(one, other)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: an exit code that does not show the result."""
    first, second, broken = (tmp_path / name for name in ("first", "second", "broken"))
    first.write_text(text_of(*chain()), encoding="utf-8")
    second.write_text(text_of(*chain(**{"b.o": "7"})), encoding="utf-8")
    broken.write_text(text_of({"mnemonic": "Compile"}), encoding="utf-8")
    assert execlog.main([str(first), str(first)]) == 0
    assert execlog.main([str(first), str(second)]) == 1
    assert "target    //:b" in capsys.readouterr().out
    for unreadable in (broken, tmp_path / "absent"):
        assert execlog.main([str(first), str(unreadable)]) == 2
        text = capsys.readouterr().err
        assert str(unreadable) in text
        assert "--execution_log_json_file" in text
