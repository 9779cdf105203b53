"""Checks and their report; checks of a tree as a whole, before any generator runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from qola.aiter.attention import ATTENTION
from qola.aiter.tree import AiterTree
from qola.fetch.git import read_checkout, read_head
from qola.fetch.patches import try_patches
from qola.fetch.pins import patch_files, pinned_id, recorded_patches
from qola.plan.checks import unknown_keys
from qola_base.errors import AiterError, Finding, QolaError, Severity
from qola_base.files import lossy_text
from qola_base.json_types import JsonObject

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
    def result(self) -> str:
        """The result in a few words: that of a check that raised is in its findings."""
        return self.said or "; ".join(finding.found for finding in self.findings)

    @property
    def status(self) -> Status:
        """Broken with an error, degraded with a warning."""
        severities = {finding.severity for finding in self.findings}
        return "broken" if "error" in severities else "degraded" if severities else "ok"

    def to_dict(self) -> JsonObject:
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

    def to_dict(self) -> JsonObject:
        """Return the report as JSON values."""
        checks = [check.to_dict() for check in self.checks]
        return {
            "schema": SCHEMA,
            "counts": dict(self.counts.items()),
            "checks": checks,
        }


@contextmanager
def guarded(checks: list[Check], name: str, of: str) -> Iterator[None]:
    """Append a broken check if the block raises, because no tree may end the other checks."""
    try:
        yield
    except QolaError as error:
        checks.append(Check(name, of, error.title, error.findings))
    except Exception as error:
        place = f"{name} {of}".strip()
        found = f"{type(error).__name__}: {error}"
        fix = "report it with the tree's commit: a tree like this was not met yet"
        finding = Finding(place, found, "a tree that can be read", fix)
        checks.append(Check(name, of, "cannot be checked", (finding,)))


_CK_ARCH = re.compile(r"""["'](gfx\w+)["']""")
INIT = "git submodule update --init --recursive, in the AITER tree"


def check_tree(tree: AiterTree, without_ck: bool) -> Check:
    """Identify the AITER, and check that its Composable Kernel exists.

    Args:
        without_ck: the tree's sources can do without.
    """
    head = read_head(tree.root)
    commit = head.commit or _pinned_commit(tree)
    ck_named = _named_commit(tree) if head.commit else ""
    ck = read_head(tree.root / tree.ck_dir) if head.commit else head
    patches = [patch.name for patch in recorded_patches(tree.root)]
    facts = {
        "generation": tree.generation,
        "version": tree.version,
        "commit": commit,
        "patches": patches,
        "composable_kernel": {
            "directory": tree.ck_dir,
            "there": tree.has_ck,
            "commit": ck.commit,
            "named": ck_named,
        },
    }
    findings = []
    if head.problem:
        expected = "a checkout whose commit git can read"
        findings.append(Finding(str(tree.root), head.problem, expected, "", "warning"))
    if not tree.has_ck:
        rest = "assembly kernels alone" if without_ck else "nothing, as its sources include it"
        found = f"no Composable Kernel; without it can be built: {rest}"
        expected = "the submodule" + (f" at {ck_named}" if ck_named else "")
        severity: Severity = "warning" if without_ck else "error"
        findings.append(Finding(tree.ck_dir, found, expected, INIT, severity))
    elif ck.commit != ck_named:
        found = f"commit {ck.commit}" if ck.commit else ck.problem or "a copy of an unknown commit"
        findings.append(Finding(tree.ck_dir, found, ck_named or "no submodule", INIT, "warning"))
    of = f"of kind {tree.generation}"
    words = ("AITER", tree.version, commit, of, *(f"with {name}" for name in patches))
    return Check("tree", "", " ".join(filter(None, words)), tuple(findings), facts)


def _pinned_commit(tree: AiterTree) -> str:
    """Return the full commit in a tree's AITER.json, "" if there is none."""
    pinned = pinned_id(tree.root)
    return pinned if re.fullmatch("[0-9a-f]{40}", pinned) else ""


def _named_commit(tree: AiterTree) -> str:
    """Return the commit of Composable Kernel that a checkout pins as a submodule, "" for none."""
    try:
        lines = read_checkout(tree.root, "ls-tree", "HEAD", tree.ck_dir)
    except AiterError:
        # A partial clone may lack its trees.
        return ""
    for line in lines:
        # "160000 commit ID<tab>path" of a submodule.
        kind, _, named = line.partition("\t")[0].split()
        return named if kind == "160000" else ""
    return ""


def check_config(tree: AiterTree) -> Check:
    """Check optCompilerConfig.json for missing modules and unknown keys."""
    names = tree.module_names()
    file, fix = "aiter/jit/optCompilerConfig.json", "use an AITER that builds it without PyTorch"
    missing = [
        Finding(file, f"no module {name}", " and ".join(ATTENTION), fix)
        for name in ATTENTION
        if name not in names
    ]
    facts = {"modules": len(names), "unknown_keys": dict(tree.unknown_keys())}
    return Check("config", "", f"{len(names)} modules", (*missing, *unknown_keys(tree)), facts)


def assembly_archs(tree: AiterTree) -> dict[str, list[str]]:
    """Return the folders of attention's assembly kernels for each arch."""
    found: dict[str, list[str]] = {}
    for folder in sorted((tree.root / tree.hsa_dir).glob("gfx*/fmha_*")):
        if any(folder.rglob("*.co")):
            found.setdefault(folder.parent.name, []).append(folder.name)
    return found


def check_archs(tree: AiterTree) -> Check:
    """List the archs of the tree's kernels."""
    assembly = assembly_archs(tree)
    fmha = tree.root / tree.fmha_dir
    texts = map(lossy_text, fmha.rglob("*.py"))
    ck = sorted({arch for text in texts for arch in _CK_ARCH.findall(text)})
    said = f"assembly kernels for {', '.join(assembly) or 'none'}"
    said += f"; Composable Kernel's generator names {', '.join(ck)}" if ck else ""
    findings: tuple[Finding, ...] = ()
    if not assembly and not ck:
        place = f"{tree.hsa_dir}, {tree.ck_dir}"
        findings = (Finding(place, "no kernels for any arch", "kernels for one arch", INIT),)
    return Check("archs", "", said, findings, {"assembly": assembly, "composable_kernel": ck})


def check_patches(root: Path, folder: Path) -> Iterator[Check]:
    """Check that each patch of a folder fits.

    Raises:
        AiterError: the folder has no patch.
    """
    for patch, finding in try_patches(root, patch_files(folder)):
        fits = finding is None or finding.severity == "warning"
        said = ("fits" if finding is None else "fits in part") if fits else "does not fit"
        yield Check("patch", patch.name, said, (finding,) if finding else (), {"fits": fits})
