"""Checks of an AITER tree and their report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from qola.errors import Finding, QolaError

Status = Literal["ok", "degraded", "broken"]
STATUSES: tuple[Status, ...] = ("ok", "degraded", "broken")
SCHEMA = 1
"""Version of the JSON form, docs/guide/compat.md."""


@dataclass(frozen=True)
class Check:
    """The result of a check, a line of the report.

    Attributes:
        name: name of the check, such as ``includes``.
        of: part of the tree: a module, a direction, a patch; "" for all of it.
        said: the result in a few words.
        findings: errors and warnings with fixes.
        facts: the result as JSON values.
    """

    name: str
    of: str
    said: str = ""
    findings: tuple[Finding, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        """Broken with an error, degraded with a warning."""
        severities = {finding.severity for finding in self.findings}
        return "broken" if "error" in severities else "degraded" if severities else "ok"

    def to_dict(self) -> dict[str, Any]:
        """Return the check as JSON values."""
        return {
            "check": self.name,
            "of": self.of,
            "status": self.status,
            "said": self.said,
            "findings": [vars(finding) for finding in self.findings],
            "facts": dict(self.facts),
        }


@dataclass(frozen=True)
class Report:
    """All checks of a tree."""

    checks: tuple[Check, ...]

    @property
    def counts(self) -> dict[Status, int]:
        """Number of checks by status."""
        return {s: sum(check.status == s for check in self.checks) for s in STATUSES}

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        checks = [check.to_dict() for check in self.checks]
        return {"schema": SCHEMA, "counts": self.counts, "checks": checks}


def guarded(name: str, of: str, run: Callable[[], Check]) -> Check:
    """Run a check; an exception becomes a broken check."""
    try:
        return run()
    except QolaError as error:
        return Check(name, of, error.title, error.findings)
    except Exception as error:  # no tree may end the other checks
        place = f"{name} {of}".strip()
        found = f"{type(error).__name__}: {error}"
        fix = "report it with the tree's commit: a tree like this was not met yet"
        expected = "a tree that can be read"
        return Check(name, of, "cannot be checked", (Finding(place, found, expected, fix),))
