"""Findings, exit codes, and one exception class per edge, which raises all its findings at once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Literal

Severity = Literal["error", "warning"]

_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def unseen(text: str) -> str:
    """Return the first character of a text that must not reach a terminal or a file, "" for none.

    These are control characters, line separators, marks that change the direction of writing, and
    surrogates, which stand for bytes that are not UTF-8.
    """
    return found[0] if (found := _UNSEEN.search(text)) else ""


def visible(text: str, keep: str = "") -> str:
    """Escape a text's unseen characters as JSON and TOML do, except those in `keep`.

    All text of foreign files passes through it on its way to a terminal, a page, a manifest, or a
    comment of a generated file: it can neither end a line, nor move the cursor, nor fail to be
    printed. `unseen` is for text that is refused instead.
    """
    return _UNSEEN.sub(lambda m: m[0] if m[0] in keep else f"\\u{ord(m[0]):04x}", text)


@dataclass(frozen=True)
class Finding:
    """A wrong or doubtful value, and its correction.

    Attributes:
        place: location in a form that editors can open: ``file:line [[table]].key``.
        expected: the valid values.
        fix: the line to write or the command to run; empty if `expected` is enough.
        severity: an ``error`` stops the work, a ``warning`` is only reported.
    """

    place: str
    found: str
    expected: str
    fix: str = ""
    severity: Severity = "error"

    def render(self) -> str:
        """Return the finding as one compact block of text without a trailing newline."""
        lines = [f"{self.severity}: {visible(self.place)}"]
        for label, text in (("found", self.found), ("expected", self.expected), ("fix", self.fix)):
            if text:
                # Continuation lines (a generator's output, say) stay under their own text.
                shown = visible(text, keep="\n\t").replace("\n", "\n" + " " * 12)
                lines.append(f"  {label:<9} {shown}")
        return "\n".join(lines)


class ExitCode(IntEnum):
    """Exit codes of commands, from which help texts and docs/reference/exit-codes.md are made."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        """Create a member from its number and meaning."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    DONE = 0, "done"
    ERROR = 1, "any other error"
    USAGE = 2, "wrong usage, an invalid manifest, or a query without results"
    AITER = 3, "the AITER tree is missing, cannot be fetched, or a patch does not fit"
    CODEGEN = 4, "a kernel generator failed"
    TOOLCHAIN = 5, "no Bazel, no ROCm, or no GPU for the arch native"
    PLAN = 6, "the manifest and AITER do not match"
    NOT_BUILT = 7, "a module, the bundle or a pack did not build; other modules are installed"
    BUNDLE = 8, "a bundle cannot be made or published"
    NO_PREBUILT = 9, "no source has the prebuilt bundle"
    PREBUILT = 10, "a prebuilt bundle must not be used: wrong digest, signature or content"
    BROKEN = 11, "a check found something broken in the AITER tree"
    UNREACHABLE = 12, "a source of prebuilt bundles does not answer, and no other has the bundle"
    WRONG = (
        13,
        "verification failed: wrong results, no kernel ran, or an unexpected kernel launched",
    )
    INTERRUPTED = 130, "interrupted"
    PIPE = 141, "the reader of the output closed it"
    TERMINATED = 143, "terminated, or the terminal was closed"


def shell_code(returncode: int) -> int:
    """Return a shell's exit code of a program that ended: above 128 for a signal."""
    return returncode if returncode >= 0 else 128 - returncode


MAX_SHOWN = 100
"""Maximum number of findings in an error."""


class QolaError(Exception):
    """Base of all errors that a user can cause and correct.

    Attributes:
        exit_code: exit code of a command that ends with this error.
        default_title: a line that names the failure, used if the error has no title of its own.

    Raises:
        ValueError: `findings` contains no error: the failure would have no reason.
    """

    exit_code: ClassVar[int] = ExitCode.ERROR
    default_title: ClassVar[str] = "qola cannot go on"

    def __init_subclass__(cls, *, title: str = "", exit_code: ExitCode | None = None) -> None:
        """Set `default_title` and `exit_code` of a subclass; by default those of its base."""
        super().__init_subclass__()
        cls.default_title = title or cls.default_title
        cls.exit_code = cls.exit_code if exit_code is None else exit_code

    def __init__(self, findings: Finding | Iterable[Finding], title: str = "") -> None:
        self.findings = (findings,) if isinstance(findings, Finding) else tuple(findings)
        self.title = title or self.default_title
        if not any(f.severity == "error" for f in self.findings):
            raise ValueError(f"{type(self).__name__} needs at least one finding that is an error")
        super().__init__(self.findings, self.title)

    def __str__(self) -> str:
        """Return the title with the number of errors and warnings, then each finding."""
        counts = [
            f"{n} {word}{'s' if n > 1 else ''}"
            for word in ("error", "warning")
            if (n := sum(f.severity == word for f in self.findings))
        ]
        title = f"{visible(self.title)} ({', '.join(counts)})"
        return "\n".join([title, *map(Finding.render, self._shown()), *self._more()])

    def _shown(self) -> tuple[Finding, ...]:
        """Return the first findings, errors before warnings if not all are shown."""
        if len(self.findings) <= MAX_SHOWN:
            return self.findings
        return tuple(sorted(self.findings, key=lambda f: f.severity != "error")[:MAX_SHOWN])

    def _more(self) -> tuple[str, ...]:
        more = len(self.findings) - MAX_SHOWN
        return (f"and {more} more, which are not shown",) if more > 0 else ()

    def to_json(self) -> str:
        """Return the error as commands print it with --json."""
        findings = [vars(finding) for finding in self._shown()]
        values = {"exit_code": self.exit_code, "title": self.title, "findings": findings}
        if more := len(self.findings) - len(findings):
            values["not_shown"] = more
        return json.dumps({"error": values}, indent=2, sort_keys=True)


class ManifestError(QolaError, title="the manifest is not valid", exit_code=ExitCode.USAGE):
    """The manifest cannot be read, is not TOML, or has invalid keys or values."""


class AiterError(QolaError, title="the AITER source tree cannot be used", exit_code=ExitCode.AITER):
    """The AITER source tree is missing, incomplete, or not understood."""


class CodegenError(QolaError, title="kernel generation failed", exit_code=ExitCode.CODEGEN):
    """A kernel generator failed, or its output is wrong."""


class ToolchainError(
    QolaError, title="the ROCm toolchain cannot be used", exit_code=ExitCode.TOOLCHAIN
):
    """ROCm is missing, incomplete, or not the requested one."""


class PlanError(QolaError, title="the manifest cannot be planned", exit_code=ExitCode.PLAN):
    """Manifest, tree and toolchain are valid, but do not match."""


class BundleError(QolaError, title="the bundle cannot be made", exit_code=ExitCode.BUNDLE):
    """The bundle of the libraries cannot be made or published."""


class NoPrebuiltError(QolaError, title="no such prebuilt bundle", exit_code=ExitCode.NO_PREBUILT):
    """No source has the prebuilt bundle."""


class NoAnswerError(
    NoPrebuiltError,
    title="no prebuilt bundle, and a source does not answer",
    exit_code=ExitCode.UNREACHABLE,
):
    """No source that answers has the prebuilt bundle, and one did not answer."""


class PrebuiltError(
    QolaError, title="the prebuilt bundle must not be used", exit_code=ExitCode.PREBUILT
):
    """A prebuilt bundle has a wrong digest, signature or content."""
