"""Attention problems in the terms of flash-attention, AITER and Composable Kernel."""

from qola_lab.problems.fields import from_fields, make_problem, parse_lines, parse_words
from qola_lab.problems.problem import (
    DTYPES,
    STANDARD_NORMAL,
    AttentionProblem,
    Device,
    Layout,
    ProblemError,
    TestData,
    formats,
)

__all__ = [
    "DTYPES",
    "STANDARD_NORMAL",
    "AttentionProblem",
    "Device",
    "Layout",
    "ProblemError",
    "TestData",
    "formats",
    "from_fields",
    "make_problem",
    "parse_lines",
    "parse_words",
]
