"""Execution logs of two builds: the first action that differs, and the reason."""

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
    """Return an action whose files have the given digests."""
    read, written = ([file(*item) for item in files.items()] for files in (inputs, outputs))
    return entries.entry(target, read, written, **changed)


def chain(**changes: str) -> list[dict[str, Any]]:
    """Return two compiles and a link, in reverse order of their dependencies."""
    digest = {"a.c": "1", "b.c": "2", "a.o": "3", "b.o": "4", "lib.so": "5", **changes}
    return [
        entry("//:lib", {n: digest[n] for n in ("a.o", "b.o")}, {"lib.so": digest["lib.so"]}),
        entry("//:a", {"a.c": digest["a.c"]}, {"a.o": digest["a.o"]}),
        entry("//:b", {"b.c": digest["b.c"]}, {"b.o": digest["b.o"]}),
    ]


def report_difference(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> str:
    difference = execlog.first_difference(spawns(*first), spawns(*second))
    return execlog.render(difference) if difference else ""


def test_equal_logs_have_no_difference() -> None:
    """Prevents: a difference reported because of the order of a log, or because of a cache hit."""
    cached = [{**e, "runner": "disk cache hit", "cacheHit": True} for e in reversed(chain())]
    assert execlog.first_difference(spawns(*chain()), spawns(*cached)) is None


def test_nondeterministic_action() -> None:
    """Prevents: the link reported as the cause although its input differs."""
    text = report_difference(chain(), chain(**{"b.o": "40", "lib.so": "50"}))
    assert text.splitlines() == [
        "2 of 3 actions differ; first:",
        "  target    //:b",
        "  mnemonic  CppCompile",
        "  outputs   b.o",
        "  outputs that differ:",
        "    b.o: '4' != '40'",
        "  meaning   equal command, environment and inputs, different outputs: not deterministic",
    ]


def test_path_on_the_command_line() -> None:
    """Prevents: a path of the machine that users cannot find among 200 arguments."""
    flags = tuple(f"-f{i}" for i in range(200))
    first = entry("//:a", {}, {"a.o": "1"}, commandArgs=["cc", *flags, "-I/home/one"])
    second = entry("//:a", {}, {"a.o": "1"}, commandArgs=["cc", *flags, "-I/home/other"])
    text = report_difference([first], [second])
    assert "    - -I/home/one\n    + -I/home/other\n" in text
    assert "-f1" not in text
    assert "meaning   the commands differ" in text


def tree_action(**digests: str) -> dict[str, Any]:
    """Return an action whose output is a directory."""
    files = {f"out/tree/{name}": digest for name, digest in digests.items()}
    return {**entry("//:tree", {}, files), "listedOutputs": ["out/tree"]}


def chain_with_header() -> list[dict[str, Any]]:
    """Return the chain, with a header that one compile reads."""
    more = chain()
    more[2]["inputs"].append({"path": "b.h", "digest": {"hash": "6"}})
    return more


PATH, LANG = {"name": "PATH", "value": "/bin"}, {"name": "LANG", "value": "C"}
PLAIN = entry("//:a", {}, {"a.o": "1", "a.d": "2"}, environmentVariables=[PATH])
UNWRITTEN = {**PLAIN, "actualOutputs": PLAIN["actualOutputs"][:1]}
LEAKING = entry("//:a", {}, {"a.o": "1", "a.d": "2"}, environmentVariables=[PATH, LANG])


@pytest.mark.parametrize(
    ("first", "second", "parts"),
    [
        # The source differs, so that the compiler is not reported as nondeterministic.
        (
            chain(),
            chain(**{"a.c": "10", "a.o": "30", "lib.so": "50"}),
            ["  target    //:a\n", "    a.c: '1' != '10'\n", "no action of the logs writes a.c:"],
        ),
        # Only one build has the input.
        (
            chain(),
            chain_with_header(),
            ["b.h: (none) != '6'\n", "no action of the logs writes b.h:"],
        ),
        # A user's variable in an action, whose outputs are equal.
        ([LEAKING], [PLAIN], ["  environment that differ:\n    LANG: 'C' != (none)\n"]),
        # The logs contain different targets.
        (chain(), chain()[:2], ["  target    //:b\n", "  found     only in the first log"]),
        # Only one build wrote an optional output (a .d file).
        ([PLAIN], [UNWRITTEN], ["    a.d: '2' != ''\n"]),
        # A file in an output directory differs.
        (
            [tree_action(x="1", y="2")],
            [tree_action(x="1", y="3")],
            ["  outputs that differ:\n    out/tree/y: '2' != '3'\n  meaning"],
        ),
    ],
)
def test_first_difference(
    first: list[dict[str, Any]], second: list[dict[str, Any]], parts: list[str]
) -> None:
    """Prevents: a difference attributed to another action, file or variable, or not reported."""
    text = report_difference(first, second)
    for part in parts:
        assert part in text


def test_last_attempt_is_compared() -> None:
    """Prevents: the failed attempt of a retried action used for the comparison."""
    failed = entry("//:a", {"a.c": "1"}, {"a.o": ""})
    assert execlog.first_difference(spawns(failed, *chain()), spawns(*chain())) is None
    assert execlog.first_difference(spawns(*chain(), failed), spawns(*chain())) is not None


def test_cycle_is_an_error() -> None:
    """Prevents: an endless loop, or a traceback, for logs that do not belong together."""
    first = spawns(entry("//:a", {"b": "1"}, {"a": "1"}))
    second = spawns(entry("//:b", {"a": "1"}, {"b": "1"}))
    with pytest.raises(execlog.ExecutionLogError, match="need each other's outputs"):
        execlog.first_difference(first, second)


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
