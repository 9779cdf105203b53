"""Findings and errors: users see all collected findings."""

from __future__ import annotations

import json
import pickle

import pytest

from qola_base.errors import (
    AiterError,
    CodegenError,
    ExitCode,
    Finding,
    ManifestError,
    PlanError,
    QolaError,
    unseen,
    visible,
)

ERROR = Finding("m.toml:3 [build].mode", '"cpp"', "pybind or cpp_itfs", 'mode = "cpp_itfs"')
WARNING = Finding("m.toml:9 [[modules]]", "twice", "once", severity="warning")


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (
            ERROR,
            "error: m.toml:3 [build].mode\n"
            '  found     "cpp"\n'
            "  expected  pybind or cpp_itfs\n"
            '  fix       mode = "cpp_itfs"',
        ),
        (WARNING, "warning: m.toml:9 [[modules]]\n  found     twice\n  expected  once"),
        (Finding("x", "first\nsecond", ""), "error: x\n  found     first\n            second"),
    ],
)
def test_finding_shows_place_found_expected_fix(finding: Finding, text: str) -> None:
    """Prevents: a message without place, value or fix, or with labels that have no text."""
    assert finding.render() == text


def test_error_shows_all_findings_with_counts() -> None:
    """Prevents: an exception that shows only its first finding, or contains no error."""
    error = ManifestError([ERROR, WARNING, ERROR], "m.toml is not a valid manifest")
    text = str(error)
    assert text.startswith("m.toml is not a valid manifest (2 errors, 1 warning)\n")
    assert text.count(ERROR.render()) == 2
    assert text.count(WARNING.render()) == 1
    assert AiterError(ERROR).findings == (ERROR,)
    with pytest.raises(ValueError, match="PlanError needs at least one"):
        PlanError([WARNING])


def test_exit_codes_are_stable() -> None:
    """Prevents: scripts that confuse an invalid manifest with a missing ROCm after an update."""
    assert [int(code) for code in ExitCode] == [*range(14), 130, 141, 143]
    assert all(code.meaning for code in ExitCode)
    assert [cls.exit_code for cls in (ManifestError, AiterError, PlanError)] == [2, 3, 6]


def test_error_survives_a_process_boundary() -> None:
    """Prevents: findings lost when a worker process raises."""
    error = pickle.loads(pickle.dumps(CodegenError([ERROR, WARNING], "title")))
    assert type(error) is CodegenError
    assert (error.findings, error.title) == ((ERROR, WARNING), "title")


def test_messages_have_no_control_characters() -> None:
    """Prevents: a file name or tool output that clears the screen, or forges another message."""
    odd = "a\x1b[2J\x07\x7f\x9b\r\u2028\u202e\ud800\udcff"
    finding = Finding(f"{odd}\nerror: forged", f"{odd}\n\tkept", odd, odd)
    text = str(ManifestError(finding, f"{odd}\nerror: forged"))
    text.encode("utf-8")
    assert unseen(text.replace("\n", "").replace("\t", "")) == ""
    assert [line for line in text.split("\n") if line.startswith("error: ")] == [
        f"error: {visible(odd)}\\u000aerror: forged"
    ]
    assert "\\u001b[2J\\u0007\\u007f\\u009b\\u000d\\u2028\\u202e\\ud800\\udcff" in text
    assert "\n            \tkept" in text


def test_number_of_findings_is_bounded() -> None:
    """Prevents: an error of a megabyte that hides its first line, or an error behind warnings."""
    warnings = [Finding(f"w{n}", "x", "y", severity="warning") for n in range(5000)]
    error = QolaError([*warnings, Finding("the error", "x", "y")])
    text, values = str(error), json.loads(error.to_json())["error"]
    assert "(1 error, 5000 warnings)\nerror: the error\n" in text
    assert text.endswith("\nand 4901 more, which are not shown")
    assert text.count("warning: ") == 99
    assert (len(values["findings"]), values["not_shown"]) == (100, 4901)
    few = QolaError([*warnings[:99], Finding("the error", "x", "y")])
    assert "not shown" not in str(few)
    assert "not_shown" not in few.to_json()
