"""The rules that a config must satisfy so that Composable Kernel compiles for it."""

from __future__ import annotations

from qola.errors import Finding
from qola.kernel.archs import Archs, pinned
from qola.kernel.config import KernelConfig
from qola.kernel.rules import kinds, problems, tiles
from qola.kernel.rules.model import Broken, InvalidError, Rule

RULES: dict[str, Rule] = {
    one.name: one
    for one in (
        kinds.arch,
        kinds.family,
        kinds.dtype,
        kinds.pipeline,
        kinds.trload,
        kinds.v3,
        problems.hdim,
        problems.hdim_192_128,
        problems.logits_bias,
        problems.symmetric,
        tiles.arity,
        tiles.mfma,
        tiles.per_cu,
        tiles.waves,
        problems.group_padding,
        problems.async_padding,
        problems.paged,
        tiles.combine_tile,
        problems.dbias,
        problems.dropout,
        problems.trload_padding,
        problems.max_rows,
        tiles.warps,
        tiles.whole_tile,
        tiles.append_tile,
        tiles.head_tile,
        tiles.steps,
        tiles.backward_tile,
        tiles.lds,
    )
}
"""All rules by name: first the fifteen of CK's dispatcher, the last one split by family, then rules
for other tiles."""


def validate(config: KernelConfig, archs: Archs | None = None) -> tuple[Broken, ...]:
    """Return every rule that a config breaks, in the order of `RULES`.

    Args:
        archs: by default those of the pinned CK.
    """
    known = pinned() if archs is None else archs
    return tuple(
        Broken(rule, Finding(f"{config.family} {rule.name}", *wrong, rule.reason, rule.severity))
        for rule in RULES.values()
        for wrong in rule.check(config, known)
    )


def check(config: KernelConfig, archs: Archs | None = None) -> None:
    """Check that CK can be compiled for a config.

    Raises:
        InvalidError: with all findings.
    """
    findings = [broken.finding for broken in validate(config, archs)]
    if any(finding.severity == "error" for finding in findings):
        raise InvalidError(findings)
