"""The type of a rule, and helpers of rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from qola.errors import ExitCode, Finding, QolaError, Severity
from qola.kernel.archs import Archs
from qola.kernel.config import KernelConfig

#: Pairs of the found and the expected value.
Wrong = Iterator[tuple[str, str]]
Check = Callable[[KernelConfig, Archs], Wrong]

OPS = "example/ck_tile/01_fmha/codegen/ops"
PIPELINE = "include/ck_tile/ops/fmha/pipeline"
"""Directories of Composable Kernel with the sources of rules."""


class InvalidError(QolaError):
    """A config that breaks rules."""

    exit_code = ExitCode.CODEGEN
    default_title = "the config is not a valid kernel"


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        reason: the reason for the rule.
        source: a file of CK, and text in it.
        severity: a warning if CK merely has few such kernels.
    """

    name: str
    reason: str
    source: tuple[str, str]
    check: Check
    severity: Severity = "error"


@dataclass(frozen=True)
class Broken:
    """A rule that a config breaks, with the finding."""

    rule: Rule
    finding: Finding


def rule(
    name: str, reason: str, source: tuple[str, str], severity: Severity = "error"
) -> Callable[[Check], Rule]:
    """Turn a check function into a rule."""
    return lambda check: Rule(name, reason, source, check, severity)


def by_trload(config: KernelConfig) -> bool:
    """Whether a forward kernel uses the pipeline with transposing loads."""
    return config.pipeline == "qr_async_trload"


def is_v3(config: KernelConfig) -> bool:
    """Whether a kernel uses the third version of the forward."""
    return config.pipeline in ("v3", "qr_async_trload_v3")
