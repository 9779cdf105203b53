"""Outcomes of a library's kernels, as JSON, JUnit and text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal
from xml.etree import ElementTree

from qola.attention import AttentionProblem, TestData, from_fields
from qola.verify.case import Sample
from qola.verify.expected import Verdict

#: Raised with every change that an existing reader of the JSON would misread.
SCHEMA_VERSION = 1
#: Numbers that JSON has no words for.
_ODD = ("inf", "-inf", "nan")


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
        said = [str(verdict) for verdict in self.verdicts if not verdict.passed]
        return [*([self.error] if self.error else []), *said, *self.findings]


@dataclass(frozen=True)
class Outcome:
    """A kernel instance on an arch.

    Attributes:
        missing: why it was tried with fewer problems than requested.
    """

    kernel: str
    arch: str
    trials: tuple[Trial, ...]
    missing: str = ""

    @property
    def state(self) -> Literal["passed", "failed", "untried"]:
        """The result; a kernel without trials has not passed."""
        if not self.trials:
            return "untried"
        wrong = any(
            trial.faults() or self.kernel not in trial.launched or not trial.compared
            for trial in self.trials
        )
        return "failed" if wrong else "passed"

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
    lines = [json.dumps(_values(outcome), sort_keys=True) for outcome in outcomes]
    head = {"schema": SCHEMA_VERSION, "counts": count(outcomes)}
    texts = [f"  {json.dumps(key)}: {json.dumps(head[key])}" for key in sorted(head)]
    kernels = ",\n".join(f"    {line}" for line in lines)
    texts.append('  "kernels": [\n' + kernels + "\n  ]" if lines else '  "kernels": []')
    return "{\n" + ",\n".join(texts) + "\n}\n"


def _values(outcome: Outcome) -> dict[str, Any]:
    trials = [
        {
            "problem": trial.problem.to_fields(),
            "data": asdict(trial.sample.data),
            "launched": trial.launched,
            "verdicts": [_finite(asdict(verdict)) for verdict in trial.verdicts],
            "findings": trial.findings,
            "error": trial.error,
        }
        for trial in outcome.trials
    ]
    of = {"kernel": outcome.kernel, "arch": outcome.arch, "missing": outcome.missing}
    return {**of, "state": outcome.state, "trials": trials}


def from_json(text: str) -> list[Outcome]:
    """Return the outcomes of a text of `to_json`."""
    return [
        Outcome(of["kernel"], of["arch"], tuple(map(_trial, of["trials"])), of["missing"])
        for of in json.loads(text)["kernels"]
    ]


def _trial(values: Mapping[str, Any]) -> Trial:
    return Trial(
        Sample(from_fields(values["problem"]), TestData(**values["data"])),
        tuple(values["launched"]),
        tuple(map(_verdict, values["verdicts"])),
        tuple(values["findings"]),
        values["error"],
    )


def _verdict(of: Mapping[str, Any]) -> Verdict:
    values: dict[str, Any] = {k: float(v) if v in _ODD else v for k, v in of.items()}
    return Verdict(**values | {"place": tuple(values["place"])})


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Return values with infinities and NaN as text: JSON has no words for them."""
    texts = {key: repr(value) for key, value in values.items() if isinstance(value, float)}
    odd = {key: text for key, text in texts.items() if text in _ODD}
    return {**values, **odd}


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
