"""Outcomes of a library's kernels, as JSON, JUnit and text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal
from xml.etree import ElementTree

from qola.attention import AttentionProblem
from qola.json_types import JsonObject, json_fields
from qola.verify.case import Sample
from qola.verify.expected import Verdict

#: Raised with every change that an existing reader of the JSON would misread.
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Trial:
    """One problem, as a kernel was tried with it.

    Attributes:
        launched: kernel instances and code objects that were launched.
        findings: faults during the run, such as an access out of range.
        error: why there are no results, empty where there are.
    """

    sample: Sample
    launched: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    findings: tuple[str, ...] = ()
    error: str = ""

    @property
    def problem(self) -> AttentionProblem:
        """The problem of the sample."""
        return self.sample.problem

    @property
    def compared(self) -> int:
        """How many elements were compared: none of sequences that a kernel skips."""
        return sum(verdict.compared for verdict in self.verdicts)

    def faults(self) -> list[str]:
        """Return the errors as text."""
        wrong = [str(verdict) for verdict in self.verdicts if not verdict.passed]
        return [*filter(None, [self.error]), *wrong, *self.findings]


@dataclass(frozen=True)
class Outcome:
    """A kernel instance on an arch.

    Attributes:
        missing: why it was tried with fewer problems than requested.
        digest: of the kernels and problems (`Case.digest`).
    """

    kernel: str
    arch: str
    trials: tuple[Trial, ...]
    missing: str = ""
    digest: str = ""

    @property
    def state(self) -> Literal["passed", "failed", "untried"]:
        """The result; a kernel without trials has not passed."""
        return "failed" if self.wrong() else "passed" if self.trials else "untried"

    def wrong(self) -> list[tuple[str, str]]:
        """Return the errors, each with its problem as text."""
        found = []
        for trial in self.trials:
            said = trial.faults()
            if not said and self.kernel not in trial.launched:
                said = [f"launched {', '.join(trial.launched) or 'nothing'}"]
            if not said and not trial.compared:
                said = ["nothing was compared"]
            found += [(str(trial.problem), text) for text in said]
        return found

    def faults(self) -> list[str]:
        """Return the errors, each behind its problem."""
        return [f"{problem}: {text}" for problem, text in self.wrong()]


def count(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Return how many kernels passed, failed, and were not tried."""
    states = [outcome.state for outcome in outcomes]
    return {state: states.count(state) for state in ("passed", "failed", "untried")}


def to_json(outcomes: Sequence[Outcome]) -> str:
    """Return all of it, a kernel a line, so that a difference of two shows kernels."""
    kernels = ",\n".join(json.dumps(_values(outcome), sort_keys=True) for outcome in outcomes)
    head = json.dumps({"schema": SCHEMA_VERSION, "counts": count(outcomes)})
    return f'{head[:-1]}, "kernels": [\n{kernels}\n]}}\n'


def _values(outcome: Outcome) -> JsonObject:
    trials = [
        {
            "problem": trial.problem.to_fields(),
            "data": json_fields(trial.sample.data),
            "launched": trial.launched,
            "verdicts": [_finite(verdict) for verdict in trial.verdicts],
            "findings": trial.findings,
            "error": trial.error,
        }
        for trial in outcome.trials
    ]
    found = {"state": outcome.state, "faults": outcome.faults(), "trials": trials}
    return {**json_fields(outcome), **found}


def _finite(verdict: Verdict) -> JsonObject:
    """Return the fields, infinities and NaN as text: JSON has no numbers for them."""
    values = json_fields(verdict)
    odd = {k: repr(v) for k, v in values.items() if isinstance(v, float) and not isfinite(v)}
    return values | odd


def to_junit(outcomes: Sequence[Outcome], name: str) -> str:
    """Return a test suite with a case for each kernel and arch, as CI systems show them."""
    counts = count(outcomes)
    suite = ElementTree.Element(
        "testsuite",
        name=name,
        tests=str(len(outcomes)),
        failures=str(counts["failed"]),
        skipped=str(counts["untried"]),
    )
    for outcome in outcomes:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"{name}.{outcome.arch}", name=outcome.kernel
        )
        if outcome.state == "failed":
            faults = outcome.faults()
            failure = ElementTree.SubElement(case, "failure", message=faults[0])
            failure.text = "\n".join(faults)
        elif outcome.state == "untried":
            ElementTree.SubElement(case, "skipped", message=outcome.missing)
    ElementTree.indent(suite)
    text: str = ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)
    return text + "\n"


def lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a summary: failed kernels, untried ones, and counts."""
    said = []
    for outcome in outcomes:
        if outcome.state == "failed":
            said.append(f"failed: {outcome.kernel} ({outcome.arch})")
            said += [f"  {fault}" for fault in outcome.faults()]
    for outcome in outcomes:
        if outcome.state == "untried":
            said.append(f"untried: {outcome.kernel} ({outcome.arch}): {outcome.missing}")
        elif outcome.missing:
            said.append(f"fewer: {outcome.kernel} ({outcome.arch}): {outcome.missing}")
    counts = count(outcomes)
    trials = sum(len(outcome.trials) for outcome in outcomes)
    return [*said, f"{', '.join(f'{n} {s}' for s, n in counts.items())}; {trials} problems"]
