"""A page for people: which kernels passed, which did not and why, and how near the limits were."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from qola.attention import AttentionProblem
from qola.report.document import Section, document, note
from qola.report.markup import (
    Cell,
    Table,
    grouped,
    number_cell,
    text_cell,
    to_html,
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
        yield Section("failed", "Failed", to_html(_faults_table(outcomes)))
    if any(outcome.missing for outcome in outcomes):
        title = "Not tried, or with fewer problems than requested"
        yield Section("missing", title, to_html(_missing_table(outcomes)))
    yield Section("kernels", "Kernels", to_html(_kernels_table(outcomes)))
    yield Section("problems", "Problems", to_html(_problems_table(outcomes)))
    yield Section("unseen", "Limits of emulation", note(_UNSEEN))


def _share(trials: Iterable[Trial]) -> float:
    """Return the largest error, as a share of its limit."""
    return max((v.share for trial in trials for v in trial.verdicts), default=0.0)


def _share_cell(share: float) -> Cell:
    text = f"{share:.2f}" if share < _LARGEST else "infinite"
    value = min(round(share, 4), _LARGEST)
    return warning_cell(text, value) if share > 1 else Cell(text, value)


def _faults_table(outcomes: Sequence[Outcome]) -> Table:
    """Return the errors, each with its problem."""
    rows = [
        (text_cell(outcome.kernel), text_cell(outcome.arch), text_cell(problem), warning_cell(said))
        for outcome in outcomes
        for problem, said in outcome.wrong()
    ]
    columns = ("kernel", "arch", "problem", "error")
    caption = (
        "The element with the largest error of each result, and forbidden accesses. "
        "The JSON has problems in full."
    )
    return Table("failed-table", caption, columns, rows, ("kernel", "problem", "error"))


def _missing_table(outcomes: Sequence[Outcome]) -> Table:
    rows = [
        (
            text_cell(outcome.kernel),
            text_cell(outcome.arch),
            number_cell(len(outcome.trials)),
            text_cell(outcome.missing),
        )
        for outcome in outcomes
        if outcome.missing
    ]
    caption = "A kernel without a problem has neither passed nor failed."
    columns = ("kernel", "arch", "# problems", "why")
    return Table("missing-table", caption, columns, rows, ("kernel", "why"), filtered=True)


def _kernels_table(outcomes: Sequence[Outcome]) -> Table:
    rows = [
        (
            text_cell(outcome.kernel),
            text_cell(outcome.arch),
            _state_cell(outcome),
            number_cell(len(outcome.trials)),
            number_cell(sum(trial.compared for trial in outcome.trials)),
            _share_cell(_share(outcome.trials)) if outcome.trials else Cell(""),
            number_cell(len(outcome.wrong())),
        )
        for outcome in outcomes
    ]
    columns = (
        *("kernel", "arch", "state", "# problems", "# elements", "# largest error"),
        "# faults",
    )
    caption = "The largest error is a share of its limit, which no rounding exceeds: 1 is at it."
    return Table("kernels-table", caption, columns, rows, ("kernel",), filtered=True)


def _state_cell(outcome: Outcome) -> Cell:
    state = outcome.state
    return warning_cell(state) if state == "failed" else text_cell(state)


def _problems_table(outcomes: Sequence[Outcome]) -> Table:
    rows = [
        (
            text_cell(outcome.kernel),
            text_cell(outcome.arch),
            text_cell(str(trial.problem)),
            text_cell(_layout(trial.problem)),
            text_cell(", ".join(f"{v.name} {_share_cell(v.share).text}" for v in trial.verdicts)),
            _share_cell(_share([trial])),
            number_cell(trial.compared),
            number_cell(len(trial.faults())),
        )
        for outcome in outcomes
        for trial in outcome.trials
    ]
    columns = (
        *("kernel", "arch", "problem", "in memory", "errors", "# largest error", "# elements"),
        "# faults",
    )
    caption = (
        "Lengths of Q and of K; heads of Q and of K; masks with their windows. Errors are shares "
        "of their limits."
    )
    return Table("problems-table", caption, columns, rows, ("kernel", "problem"), filtered=True)


def _layout(problem: AttentionProblem) -> str:
    padding = (
        f", {problem.layout.row_padding} more elements per row"
        if problem.layout.row_padding
        else ""
    )
    return problem.layout.order + padding
