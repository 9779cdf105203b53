"""A page for people: which kernels passed, which did not and why, and how near the limits were."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from qola.attention import AttentionProblem
from qola.report.document import Section, document, note
from qola.report.markup import (
    Cell,
    Columns,
    grouped,
    number_cell,
    table_html,
    text_cell,
    warning_cell,
)
from qola.verify.outcome import Outcome, Trial, count

#: Sorts behind every number.
_LARGEST = 1e300
_UNSEEN = (
    "Instructions were executed one by one on a CPU, not on a GPU. Missing waits, races between "
    "waves, the last bits of a result and time cannot be seen this way."
)


def render(name: str, facts: Iterable[str], outcomes: Sequence[Outcome]) -> str:
    """Return the page.

    Args:
        name: of the manifest or test.
        facts: lines below the title.
    """
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
    if any(outcome.missing for outcome in outcomes):
        title = "Not tried, or with fewer problems than requested"
        yield Section("missing", title, _missing_table(outcomes))
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
    """Return the errors, each with its problem."""
    rows = [(outcome, problem, fault) for outcome in outcomes for problem, fault in outcome.wrong()]
    columns: Columns = {
        "kernel": lambda row: text_cell(row[0].kernel),
        "arch": lambda row: text_cell(row[0].arch),
        "problem": lambda row: text_cell(row[1]),
        "error": lambda row: warning_cell(row[2]),
    }
    caption = (
        "The element with the largest error of each result, and the faults of each kernel. The "
        "JSON has problems in full."
    )
    return table_html("failed-table", caption, rows, columns, wide=("kernel", "problem", "error"))


def _missing_table(outcomes: Sequence[Outcome]) -> str:
    columns: Columns = {
        "kernel": lambda outcome: text_cell(outcome.kernel),
        "arch": lambda outcome: text_cell(outcome.arch),
        "# problems": lambda outcome: number_cell(len(outcome.trials)),
        "why": lambda outcome: text_cell(outcome.missing),
    }
    caption = "A kernel without a problem has neither passed nor failed."
    missing = [outcome for outcome in outcomes if outcome.missing]
    wide = ("kernel", "why")
    return table_html("missing-table", caption, missing, columns, wide=wide, filtered=True)


def _kernels_table(outcomes: Sequence[Outcome]) -> str:
    columns: Columns = {
        "kernel": lambda outcome: text_cell(outcome.kernel),
        "arch": lambda outcome: text_cell(outcome.arch),
        "state": _state_cell,
        "# problems": lambda outcome: number_cell(len(outcome.trials)),
        "# elements": lambda outcome: number_cell(sum(t.compared for t in outcome.trials)),
        "# largest error": lambda outcome: (
            _share_cell(_share(outcome.trials)) if outcome.trials else Cell("")
        ),
        "# faults": lambda outcome: number_cell(len(outcome.wrong())),
    }
    caption = "The largest error is a share of its limit, which no rounding exceeds: 1 is at it."
    return table_html("kernels-table", caption, outcomes, columns, wide=("kernel",), filtered=True)


def _state_cell(outcome: Outcome) -> Cell:
    state = outcome.state
    return warning_cell(state) if state == "failed" else text_cell(state)


def _problems_table(outcomes: Sequence[Outcome]) -> str:
    trials = [(outcome, trial) for outcome in outcomes for trial in outcome.trials]
    columns: Columns = {
        "kernel": lambda row: text_cell(row[0].kernel),
        "arch": lambda row: text_cell(row[0].arch),
        "problem": lambda row: text_cell(str(row[1].problem)),
        "in memory": lambda row: text_cell(_layout(row[1].problem)),
        "errors": lambda row: text_cell(
            ", ".join(f"{v.name} {_share_cell(v.share).text}" for v in row[1].verdicts)
        ),
        "# largest error": lambda row: _share_cell(_share([row[1]])),
        "# elements": lambda row: number_cell(row[1].compared),
        "# faults": lambda row: number_cell(len(row[1].faults())),
    }
    caption = (
        "Lengths of Q and of K; heads of Q and of K; masks with their windows. Errors are shares "
        "of their limits."
    )
    wide = ("kernel", "problem")
    return table_html("problems-table", caption, trials, columns, wide=wide, filtered=True)


def _layout(problem: AttentionProblem) -> str:
    padding = (
        f", {problem.layout.row_padding} more elements per row"
        if problem.layout.row_padding
        else ""
    )
    return problem.layout.order + padding
