"""A page for people: which kernels passed, which did not and why, and how near the limits were."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from qola.report.markup import (
    Cell,
    Columns,
    Section,
    document,
    folded_cell,
    grouped,
    note,
    number_cell,
    table_html,
    text_cell,
    warning_cell,
)
from qola_lab.verify.outcome import Outcome, Trial, count

#: Sorts behind every number.
_LARGEST = 1e300
#: Columns of rows that begin with an outcome.
_KERNEL: dict[str, Callable[[Any], Cell]] = {
    "kernel": lambda row: text_cell(row[0].kernel),
    "arch": lambda row: text_cell(row[0].arch),
}
_STATE_CELLS = {"passed": text_cell, "failed": warning_cell, "untried": text_cell}
_UNSEEN = (
    "Instructions were executed one by one on a CPU, not on a GPU. Missing waits, races between "
    "waves, the last bits of a result and time cannot be seen this way."
)


def render(name: str, facts: Iterable[str], outcomes: Sequence[Outcome]) -> str:
    """Return the page of a manifest or test, with facts below its title."""
    counts = count(outcomes)
    trials = [trial for outcome in outcomes for trial in outcome.trials]
    worst = max((_share(outcome.trials) for outcome in outcomes), default=0.0)
    tiles = [
        *((state.capitalize(), grouped(number)) for state, number in counts.items()),
        ("Problems", grouped(len(trials))),
        ("Elements compared", grouped(sum(trial.compared for trial in trials))),
        ("Largest error, of its limit", _share_cell(worst).text),
    ]
    return document(f"Emulated kernels of {name}", facts, tiles, list(_sections(outcomes)))


def _sections(outcomes: Sequence[Outcome]) -> Iterator[Section]:
    if any(outcome.state == "failed" for outcome in outcomes):
        yield Section("failed", "Failed", _faults_table(outcomes))
    yield Section("kernels", "Kernels", _kernels_table(outcomes))
    yield Section("problems", "Problems", _problems_table(outcomes))
    yield Section("unseen", "Limits of emulation", note(_UNSEEN))


def _share(trials: Iterable[Trial]) -> float:
    """Return the largest error, as a share of its limit."""
    return max((v.share for trial in trials for v in trial.verdicts), default=0.0)


def _share_cell(share: float) -> Cell:
    text = f"{share:.2f}" if share < _LARGEST else "infinite"
    value = min(round(share, 4), _LARGEST)
    return warning_cell(text, value) if share > 1 else Cell(text, value)


def _faults_table(outcomes: Sequence[Outcome]) -> str:
    """Return the failed kernels: the first error of each, which unfolds to the others."""
    rows = [(outcome, wrong) for outcome in outcomes if (wrong := outcome.wrong())]
    columns: Columns = _KERNEL | {
        "problem": lambda row: text_cell(row[1][0][0]),
        "error": lambda row: folded_cell(
            [
                "; ".join([row[1][0][1], *row[0].pages()]),
                *(f"{error} ({problem})" for problem, error in row[1][1:]),
            ],
            warning=True,
        ),
    }
    caption = (
        "The element with the largest error of each result, and the faults of each kernel. The "
        "JSON has problems in full."
    )
    return table_html("failed-table", caption, rows, columns, wide=("kernel", "problem", "error"))


def _kernels_table(outcomes: Sequence[Outcome]) -> str:
    columns: Columns = _KERNEL | {
        "state": lambda row: _STATE_CELLS[row[0].state](row[0].state),
        "# problems": lambda row: number_cell(len(row[0].trials)),
        "# elements": lambda row: number_cell(sum(t.compared for t in row[0].trials)),
        "# largest error": lambda row: (
            _share_cell(_share(row[0].trials)) if row[0].trials else Cell("")
        ),
        "# faults": lambda row: number_cell(len(row[0].wrong())),
        "code executed": lambda row: text_cell(str(row[0].coverage or "")),
        "missing problems": lambda row: text_cell(row[0].reason),
    }
    caption = (
        "The largest error is a share of its limit, which no rounding exceeds: 1 is at it. A "
        "kernel without a problem has neither passed nor failed."
    )
    rows = [(outcome,) for outcome in outcomes]
    wide = ("kernel", "missing problems")
    return table_html("kernels-table", caption, rows, columns, wide=wide, filtered=True)


def _problems_table(outcomes: Sequence[Outcome]) -> str:
    rows = [(outcome, trial) for outcome in outcomes for trial in outcome.trials]
    columns: Columns = _KERNEL | {
        "problem": lambda row: text_cell(str(row[1].problem)),
        "errors": lambda row: text_cell(
            ", ".join(f"{v.name} {_share_cell(v.share).text}" for v in row[1].verdicts)
        ),
        "# largest error": lambda row: _share_cell(_share([row[1]])),
        "# elements": lambda row: number_cell(row[1].compared),
        "# faults": lambda row: number_cell(len(row[1].faults())),
    }
    caption = "Problems are as in `qola dispatch`. Errors are shares of their limits."
    wide = ("kernel", "problem")
    return table_html("problems-table", caption, rows, columns, wide=wide, filtered=True)
