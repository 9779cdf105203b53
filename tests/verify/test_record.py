"""Files of verdicts."""

from __future__ import annotations

from dataclasses import replace

from qola.verify.record import key_of, to_text
from tests.verify.toys import PASSED, TRIAL, WRONG


def test_states_and_reasons() -> None:
    """Prevents: a failed kernel recorded as another, or without the problem to look into."""
    failed = replace(
        PASSED, kernel="f", digest="d" * 64, trials=(replace(TRIAL, verdicts=(WRONG,)),)
    )
    untried = replace(PASSED, kernel="u", trials=(), missing="no problem", digest="e" * 64)
    text = to_text({"seed": 0}, [untried, failed, replace(PASSED, digest="a" * 64)])
    head, fact, *lines = text.splitlines()
    assert (head[0], fact) == ("#", "seed 0")
    arch = PASSED.arch
    assert lines == [
        *(f"passed {arch} 1", f"{key_of(PASSED.kernel)} aaaaaaaa"),
        *(f"failed {arch} 1", f"{key_of('f')} dddddddd f", f"  {failed.faults()[0]}"),
        *(f"untried {arch} 1", f"{key_of('u')} eeeeeeee u", "  no problem"),
    ]
