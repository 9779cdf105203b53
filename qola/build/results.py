"""Interprets the results of Bazel's targets, and why they failed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from qola.build.events import ANSI, EventReader, FailedAction, TargetResult
from qola.common.layout import KERNEL_COMPILE
from qola_base.errors import (
    AiterError,
    CodegenError,
    Finding,
    ManifestError,
    PlanError,
    QolaError,
    ToolchainError,
)

_SHOWN_FAILURES = 3
"""Number of distinct errors of a module that are shown; further failed targets are counted."""

_SHOWN_ERRORS = 2
_SHOWN_LINES = 10
"""Number of errors of a tool that are shown, or of its last lines if none is marked as an error."""

_NO_ROCM = "qola: ToolchainError: "
_CLASSES = {
    error.__name__: error
    for error in (AiterError, CodegenError, ManifestError, PlanError, ToolchainError)
}


def results_of(events: EventReader, labels: Mapping[str, str]) -> dict[str, TargetResult]:
    """Return the results of targets; raise QolaError if none was tried or no compiler was found."""
    results = {
        name: events.targets[label] for name, label in labels.items() if label in events.targets
    }
    tried = any(result.success or result.failures for result in results.values())
    if not tried and events.exit_code:
        raise _as_error(events.errors(), events)
    if not any(result.success for result in results.values()):
        # Without ROCm, a stand-in for the compiler fails each action with the same error.
        for text in map(messages_of, events.failed.values()):
            if _NO_ROCM in text:
                raise _as_error([text], events)
    untried = TargetResult(False, 0.0, {}, (), "not tried, because another module failed")
    return {name: results.get(name, untried) for name in labels}


def _as_error(messages: Sequence[str], events: EventReader) -> QolaError:
    """Restore the error of a repository rule or a BUILD file from its text."""
    text = "\n".join(messages).strip()
    kinds = [(m[1], m[2]) for m in _TITLE.finditer(text) if m[1] in _CLASSES]
    kind, title = (_CLASSES[kinds[0][0]], kinds[0][1]) if kinds else (QolaError, "")
    findings = read_findings(text)
    if not any(finding.severity == "error" for finding in findings):
        found = text or "\n".join(events.bazel_errors()[:_SHOWN_FAILURES]) or "an error"
        findings = (Finding("bazel build", found, "", f"see {events.output}"),)
        title = "nothing could be built"
    return kind(findings, title)


_TITLE = re.compile(r"qola: (\w+Error): (.*?)(?: \(\d+ \w+(?:, \d+ \w+)?\))?$", re.MULTILINE)
_FINDING = re.compile(r"^(error|warning): (.*)\n((?:  .*\n?|\n(?= {12}))*)", re.MULTILINE)
_FIELD = re.compile(r"^  (found|expected|fix) +(.*(?:\n {12}.*|\n(?=\n* {12}))*)", re.MULTILINE)


def read_findings(text: str) -> tuple[Finding, ...]:
    """Parse the distinct findings in a text of `Finding.render`."""
    found: dict[Finding, None] = {}
    for severity, place, rest in _FINDING.findall(text):
        fields = {name: text.replace("\n" + " " * 12, "\n") for name, text in _FIELD.findall(rest)}
        whole = {"found": "", "expected": "", **fields}
        found[Finding(place, **whole, severity=severity)] = None
    return tuple(found)


def describe_failure(result: TargetResult, events: EventReader) -> str:
    """Return why a module failed: targets by name with their tool's first errors, or a root cause.

    If several targets failed with the same message, the first one is named, the others counted.
    """
    by_words: dict[tuple[str, ...], list[FailedAction]] = {}
    failed = failed_below(result, events)
    # Kernel instances first, which the manifest selects; other sources fail for the same reasons.
    for label in sorted(
        failed, key=lambda label: (failed[label].mnemonic != KERNEL_COMPILE, label)
    ):
        action = failed[label]
        by_words.setdefault(first_errors(messages_of(action)), []).append(action)
    lines = []
    for words, (first, *same) in list(by_words.items())[:_SHOWN_FAILURES]:
        name, *others = failed_in(first)
        more = f" and {len(others)} more of {first.name}" if others else ""
        lines.append(f"{name}{more}: {first.mnemonic} failed with exit code {first.exit_code}")
        lines += [f"  {line}" for line in words]
        lines += [f"  {len(same)} more targets failed with the same message"] if same else []
    hidden = sum(len(actions) for actions in list(by_words.values())[_SHOWN_FAILURES:])
    lines += [f"... and {hidden} more targets failed"] if hidden else []
    lines += events.analysis_errors(result)
    return "\n".join(lines) or result.reason or f"failed; {events.output} says why"


def broken_below(result: TargetResult, events: EventReader) -> list[str]:
    """Return the sorted names of a module's kernel instances and targets that failed."""
    failed = failed_below(result, events)
    return sorted(name for action in failed.values() for name in failed_in(action))


def failed_below(result: TargetResult, events: EventReader) -> dict[str, FailedAction]:
    """Return the failed actions that a target depends on, by label."""
    return {label: events.failed[label] for label in result.failures if label in events.failed}


def failed_in(action: FailedAction) -> tuple[str, ...]:
    """Return the broken kernel instances of a batch (compile_batch.sh), else the target's name."""
    return tuple(_BROKEN.findall(messages_of(action))) or (action.name,)


_BROKEN = re.compile(r"^qola: kernel instance (\S+) does not compile$", re.MULTILINE)


def messages_of(action: FailedAction) -> str:
    """Return the messages of an action's tool."""
    if action.stderr is None or not action.stderr.is_file():
        return ""
    return action.stderr.read_text(encoding="utf-8", errors="replace")


_ERROR = re.compile(r"(\b(fatal )?error: |: undefined reference to |\bLLVM ERROR: )")
# A source line, or a field of a Finding.
_FOLLOWS = re.compile(r"^(\s*(\d+ )?\||  (found|expected|fix) | {12})")
_NO_ERROR = re.compile(r"(^failed to execute:|: note: |error generated|errors generated)")


def first_errors(output: str) -> tuple[str, ...]:
    """Return a tool's first errors with their source lines."""
    lines = [ANSI.sub("", line).rstrip() for line in output.splitlines()]
    found: list[str] = []
    errors, follows = 0, False
    for line in lines:
        is_error = bool(_ERROR.search(line) and not _NO_ERROR.search(line))
        if follows and _FOLLOWS.match(line):
            found.append(line)
            continue
        if follows := is_error:
            if errors == _SHOWN_ERRORS:
                break
            errors += 1
            found.append(line)
    # A crash is reported in the last lines; hipcc also repeats its command there.
    shown = [line for line in lines if line and not line.startswith("failed to execute")]
    return tuple(found or shown[-_SHOWN_LINES:])
