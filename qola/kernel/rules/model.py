"""A rule, and what is said where a config breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from qola.errors import ExitCode, Finding, QolaError, Severity
from qola.kernel.archs import Archs
from qola.kernel.config import KernelConfig

#: What is wrong, and what would be right.
Wrong = Iterator[tuple[str, str]]
Check = Callable[[KernelConfig, Archs], Wrong]

OPS = "example/ck_tile/01_fmha/codegen/ops"
PIPELINE = "include/ck_tile/ops/fmha/pipeline"
"""Where sources of rules are, in Composable Kernel."""


class InvalidError(QolaError):
    """A config that breaks rules."""

    exit_code = ExitCode.CODEGEN
    default_title = "no kernel can be made of the config"


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        reason: why there is one.
        source: where it is from: a file of CK, and words in it.
        severity: where it is a warning, CK is just said to have few such kernels.
    """

    name: str
    reason: str
    source: tuple[str, str]
    check: Check
    severity: Severity = "error"


@dataclass(frozen=True)
class Broken:
    """A rule that a config breaks, and how."""

    rule: Rule
    finding: Finding


def rule(
    name: str, reason: str, source: tuple[str, str], severity: Severity = "error"
) -> Callable[[Check], Rule]:
    """Make a rule of the function that checks it."""
    return lambda check: Rule(name, reason, source, check, severity)


def by_trload(config: KernelConfig) -> bool:
    """Whether a forward kernel's pipeline is that of transposing loads."""
    return config.pipeline == "qr_async_trload"


def is_v3(config: KernelConfig) -> bool:
    """Whether it is the third version of the forward."""
    return config.pipeline in ("v3", "qr_async_trload_v3")
