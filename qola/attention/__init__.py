"""Attention problems in the terms of flash-attention, AITER and Composable Kernel."""

from qola.attention.ck import DTYPES, formats
from qola.attention.fields import from_fields, make_problem, parse_lines, parse_words
from qola.attention.problem import (
    STANDARD_NORMAL,
    AttentionProblem,
    Device,
    Layout,
    ProblemError,
    TestData,
    default_scale,
)

__all__ = [
    "DTYPES",
    "STANDARD_NORMAL",
    "AttentionProblem",
    "Device",
    "Layout",
    "ProblemError",
    "TestData",
    "default_scale",
    "formats",
    "from_fields",
    "make_problem",
    "parse_lines",
    "parse_words",
]
