"""Rules of kernels: what `qola.kernel.rules` has."""

from __future__ import annotations

from qola.kernel.rules.check import RULES, check, validate
from qola.kernel.rules.model import Broken, InvalidError, Rule

__all__ = ["RULES", "Broken", "InvalidError", "Rule", "check", "validate"]
