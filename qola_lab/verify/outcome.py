"""Outcomes of a library's kernels, as JSON, JUnit, text and a file of verdicts."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Literal, get_args
from xml.etree import ElementTree

from gfxemu.coverage import BlockSize
from qola.common.version import docs_url
from qola_base.files import sha256_of_text
from qola_base.json_types import JsonObject, json_fields
from qola_lab.problems import AttentionProblem
from qola_lab.verify.case import Sample
from qola_lab.verify.expected import Verdict

#: Raised with every change that an existing reader of the JSON would misread.
SCHEMA_VERSION = 1
#: Counts of a `Coverage`.
_COUNTED = ("instructions", "barriers", "waits")
#: Ranges of code that a line lists.
_SHOWN = 5
#: Digits of a digest in a file of verdicts: two of 4,000 kernels have the same ones with a
#: probability of 1/500.
_DIGITS = 8
_HEADER = "# Written by qola verify --verdicts (docs/internals/emulation.md#recorded-verdicts)"

State = Literal["passed", "failed", "untried"]
STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True)
class KernelFault:
    """A fault of one of the kernels of a call, such as an access out of range.

    Attributes:
        names: the plan's names of the kernel; several for equal code objects.
        kind: faults of one kind in a kernel have one cause, and are reported as one.
    """

    names: tuple[str, ...]
    kind: str
    text: str

    def __str__(self) -> str:
        """Return the text."""
        return self.text


@dataclass(frozen=True)
class Trial:
    """One problem, as the kernels of its call were tried with it.

    Attributes:
        launched: kernel instances and code objects that were launched.
        findings: faults during the run.
        error: why there are no results, empty where there are.
        stopped: the kernel with the error; empty for an error of the call.
        judged: by result, the kernels that it is evidence for, or, if it is wrong, against; by
            default all that were launched.
    """

    sample: Sample
    launched: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    findings: tuple[KernelFault, ...] = ()
    error: str = ""
    stopped: tuple[str, ...] = ()
    judged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def problem(self) -> AttentionProblem:
        """The problem of the sample."""
        return self.sample.problem

    @property
    def compared(self) -> int:
        """How many elements were compared: none of sequences that a kernel skips."""
        return sum(verdict.compared for verdict in self.verdicts)

    def verdicts_of(self, kernel: str) -> list[Verdict]:
        """Return the verdicts of the results that show whether a kernel is right."""
        return [v for v in self.verdicts if kernel in self.judged.get(v.name, self.launched)]

    def faults(self) -> list[str]:
        """Return the errors of all kernels as text."""
        wrong = [str(verdict) for verdict in self.verdicts if not verdict.passed]
        return [*filter(None, [self.error]), *wrong, *map(str, self.findings)]

    def faults_of(self, kernel: str) -> list[tuple[str, str]]:
        """Return the errors of a kernel: the cause, and the text of the first with it."""
        found = []
        if self.error and (not self.stopped or kernel in self.stopped):
            found.append((self.error, self.error))
        found += [(v.name, str(v)) for v in self.verdicts_of(kernel) if not v.passed]
        own: dict[str, list[str]] = {}
        for fault in self.findings:
            if kernel in fault.names:
                own.setdefault(fault.kind, []).append(fault.text)
        for kind, (first, *more) in own.items():
            others = f" (and {len(more)} more instructions)" if more else ""
            found.append((kind, first + others))
        return found

    def is_judged(self, kernel: str) -> bool:
        """Whether the trial shows that a kernel is right or wrong.

        False if only another kernel of the call failed.
        """
        return bool(self.faults_of(kernel)) or any(v.compared for v in self.verdicts_of(kernel))


@dataclass(frozen=True)
class Coverage:
    """The reachable code of a kernel, and the part that no problem executed.

    Attributes:
        blocks: number of blocks in all of it.
        instructions, barriers, waits: in all of it; barriers and waits are instructions, too.
        missing: blocks that no wave ran.
    """

    blocks: int
    instructions: int
    barriers: int
    waits: int
    missing: tuple[BlockSize, ...] = ()

    @classmethod
    def from_blocks(cls, blocks: Sequence[BlockSize], executed: Collection[int]) -> Coverage:
        """Return the coverage of a kernel's blocks of which some, by their start, ran."""
        counts = {name: sum(getattr(one, name) for one in blocks) for name in _COUNTED}
        missing = tuple(one for one in blocks if one.start not in executed)
        return cls(len(blocks), **counts, missing=missing)

    def joined(self, other: Coverage | None) -> Coverage:
        """Return the coverage by the problems of both, for the same kernel."""
        if other is None:
            return self
        return replace(self, missing=tuple(one for one in self.missing if one in other.missing))

    def executed(self, name: str) -> int:
        """Return how many instructions, barriers or waits ran."""
        total: int = getattr(self, name)
        missing: int = sum(getattr(one, name) for one in self.missing)
        return total - missing

    def __str__(self) -> str:
        """Return the numbers that ran."""
        parts = [f"{self.executed(name)} of {getattr(self, name)} {name}" for name in _COUNTED]
        return ", ".join(parts)

    def to_json(self) -> JsonObject:
        """Return the numbers that ran, and all of them; and the blocks that did not, by offsets."""
        counts = {name: [self.executed(name), getattr(self, name)] for name in _COUNTED}
        return {**counts, "not_executed": [[one.start, one.end] for one in self.missing]}

    def places(self) -> str:
        """Return the code that did not run, by offsets from the first instruction."""
        ranges: list[list[int]] = []
        for one in self.missing:
            if ranges and ranges[-1][1] == one.start:
                ranges[-1][1] = one.end
            else:
                ranges.append([one.start, one.end])
        shown = [f"+{start:#x} to +{end:#x}" for start, end in ranges[:_SHOWN]]
        return ", ".join([*shown, *(["..."] if len(ranges) > _SHOWN else [])])


@dataclass(frozen=True)
class Outcome:
    """A kernel instance on an arch.

    Attributes:
        missing: why it was tried with fewer problems than requested.
        digest: of the kernels and problems (`Case.digest`).
        others: trials of other kernels that launched this one, and in which it failed.
        known: by kernel of the calls, names of its proven faults (docs/guide/health.md).
        coverage: the code that `trials` executed; None if none was.
    """

    kernel: str
    arch: str
    trials: tuple[Trial, ...]
    missing: str = ""
    digest: str = ""
    others: tuple[Trial, ...] = ()
    known: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    coverage: Coverage | None = None

    @property
    def state(self) -> State:
        """The result; a kernel whose trials show nothing about it has not passed."""
        if self.wrong():
            return "failed"
        return "passed" if any(t.is_judged(self.kernel) for t in self.trials) else "untried"

    def extended(self, other: Outcome) -> Outcome:
        """Return the outcome with the trials of further problems; the digest stays."""
        coverage = other.coverage.joined(self.coverage) if other.coverage else self.coverage
        return replace(self, trials=self.trials + other.trials, coverage=coverage)

    @property
    def reason(self) -> str:
        """Why it was tried with fewer problems than requested, or not judged by some."""
        unjudged = [trial for trial in self.trials if not trial.is_judged(self.kernel)]
        if not unjudged or self.wrong():
            return self.missing
        failed = sorted({name for trial in unjudged for name in _failed_in(trial)})
        others = f"{', '.join(failed[:2])} failed in {len(unjudged)} of {len(self.trials)} problems"
        return "; ".join(filter(None, [self.missing, others]))

    def wrong(self) -> list[tuple[str, str]]:
        """Return the errors, each with the first problem that shows it as text.

        An error that several problems show has one line.
        """
        found: dict[str, list[tuple[str, str]]] = {}
        for trial in (*self.trials, *self.others):
            said = trial.faults_of(self.kernel)
            if not said and self.kernel not in trial.launched:
                text = f"launched {', '.join(trial.launched) or 'nothing'}"
                said = [("launched", text)]
            if not said and not trial.compared and not trial.faults():
                said = [("nothing was compared",) * 2]
            for cause, text in said:
                found.setdefault(cause, []).append((str(trial.problem), text))
        return [
            (problem, text + (f"; also in {len(more)} other problems" if more else ""))
            for (problem, text), *more in found.values()
        ]

    def faults(self) -> list[str]:
        """Return the errors, each behind its problem, then the page of each known fault."""
        found = [f"{problem}: {text}" for problem, text in self.wrong()]
        return found + self.pages() if found else []

    def pages(self) -> list[str]:
        """Return where the known faults of the kernel are described."""
        names = self.known.get(self.kernel, ())
        return [f"known fault: {docs_url(f'guide/health.md#{name}')}" for name in names]


def _failed_in(trial: Trial) -> list[str]:
    """Return the kernels of a call that failed."""
    return [name for name in dict.fromkeys(trial.launched) if trial.faults_of(name)]


def share_trials(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Judge each kernel by the problems of others, too, whose calls launched it.

    A kernel that only fails in problems of others, and was not requested, gets an outcome.
    """
    found = {(one.kernel, one.arch): one for one in outcomes}
    for one in list(found.values()):
        for trial in one.trials:
            for name in _failed_in(trial):
                key = name, one.arch
                if name == one.kernel or (not trial.stopped and trial.error):
                    continue
                other = found.get(key, Outcome(*key, (), known=one.known))
                found[key] = replace(other, others=(*other.others, trial))
    return list(found.values())


def count(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Return how many kernels passed, failed, and were not tried."""
    states = [outcome.state for outcome in outcomes]
    return {state: states.count(state) for state in STATES}


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
            "findings": [str(finding) for finding in trial.findings],
            "error": trial.error,
        }
        for trial in (*outcome.trials, *outcome.others)
    ]
    values = json_fields(outcome)
    del values["others"]
    found = {"state": outcome.state, "faults": outcome.faults(), "trials": trials}
    known = outcome.known.get(outcome.kernel, ())
    coverage = outcome.coverage.to_json() if outcome.coverage else None
    more = {"known": known, "missing": outcome.reason, "coverage": coverage}
    return {**values, **found, **more}


def _finite(verdict: Verdict) -> JsonObject:
    """Return the fields, infinities and NaN as text: JSON has no numbers for them."""
    values = json_fields(verdict)
    odd = {k: repr(v) for k, v in values.items() if isinstance(v, float) and not isfinite(v)}
    return values | odd


def to_junit(outcomes: Sequence[Outcome]) -> str:
    """Return a test suite with a case for each kernel and arch, as CI systems show them."""
    name, counts = "qola_lab.verify", count(outcomes)
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
            ElementTree.SubElement(case, "skipped", message=outcome.reason)
    ElementTree.indent(suite)
    text: str = ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)
    return text + "\n"


def lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a summary: failed kernels, untried ones, and counts."""
    said = []
    for outcome in outcomes:
        if outcome.state == "failed":
            said.append(f"failed: {outcome.kernel} ({outcome.arch})")
            shown = ""
            for problem, text in outcome.wrong():
                said += [f"  {problem}:"] if problem != shown else []
                said.append(f"    {text}")
                shown = problem
            said += [f"  {page}" for page in outcome.pages()]
    for outcome in outcomes:
        if outcome.state == "untried":
            said.append(f"untried: {outcome.kernel} ({outcome.arch}): {outcome.reason}")
        elif outcome.reason:
            said.append(f"fewer: {outcome.kernel} ({outcome.arch}): {outcome.reason}")
    for outcome in outcomes:
        if outcome.coverage and outcome.coverage.missing:
            head = f"not all code ran: {outcome.kernel} ({outcome.arch})"
            said.append(f"{head}: {outcome.coverage}; not {outcome.coverage.places()}")
    counts = count(outcomes)
    trials = sum(len(outcome.trials) for outcome in outcomes)
    covered = [outcome.coverage for outcome in outcomes if outcome.coverage]
    parts = [
        f"{sum(one.executed(name) for one in covered)} of "
        f"{sum(getattr(one, name) for one in covered)} {name}"
        for name in _COUNTED
    ]
    ran = f"; {', '.join(parts)} executed" if covered else ""
    states = ", ".join(f"{number} {state}" for state, number in counts.items())
    return [*said, f"{states}; {trials} problems{ran}"]


def key_of(kernel: str) -> str:
    """Return the key of a kernel, the first digits of the sha256 of its name."""
    return sha256_of_text(kernel)[:_DIGITS]


def to_verdicts(facts: Mapping[str, object], outcomes: Sequence[Outcome]) -> str:
    """Return the file of `qola verify --verdicts`: 18 bytes for each kernel that passed.

    The file for the 4,000 kernels of a manifest is small enough to be committed. A difference
    between two files shows kernels with other code, other problems or another verdict. A failed
    kernel has its first fault.

    Args:
        facts: versions and settings that verdicts depend on, by name.
    """
    lines = [_HEADER, *(f"{name} {value}" for name, value in facts.items())]
    for arch in sorted({one.arch for one in outcomes}):
        for state in STATES:
            own = [one for one in outcomes if (one.arch, one.state) == (arch, state)]
            lines.append(f"{state} {arch} {len(own)}")
            for one in sorted(own, key=lambda one: key_of(one.kernel)):
                lines.append(f"{key_of(one.kernel)} {one.digest[:_DIGITS]}")
                # Only kernels that somebody looks into have their names and reasons.
                if state != "passed":
                    lines[-1] += f" {one.kernel}"
                    lines.append(f"  {one.faults()[0] if state == 'failed' else one.reason}")
    return "\n".join([*lines, ""])
