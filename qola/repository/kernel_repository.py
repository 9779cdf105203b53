"""The kernel repository: the union of the kernel instances of several plans, on disk."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from qola.errors import Finding, PlanError, visible
from qola.files import sha256_of_text, write_if_changed
from qola.plan.model import Plan
from qola.repository.build_files import kernel_build_file
from qola.repository.merge import Copy, MergedPackage, merge


def kernel_repository(args: argparse.Namespace) -> None:
    """Write the union of the kernel instances of several plans.

    Raises:
        PlanError: two plans have different sources, headers or flags under one name.
    """
    plans = {path.parent: Plan.from_json(path.read_text("utf-8")) for path in args.plan}
    names = ", ".join(sorted(plan.name for plan in plans.values()))
    for package in merge(plans):
        directory = args.output / package.name
        origin = f"the plans of {names}"
        text = kernel_build_file(package, source=origin, aiter=args.aiter_repository)
        write_if_changed(directory / "BUILD.bazel", text)
        _write_sources(package, directory)
    write_if_changed(
        args.output / "BUILD.bazel",
        f"# Written by the qola repository rule from {visible(names)}.\n",
    )


def _write_sources(package: MergedPackage, directory: Path) -> None:
    _copy(package.sources, directory)
    _copy(package.batches, directory / "batches")
    _copy(package.entries, directory / "entries")


def _copy(copies: Iterable[Copy], directory: Path) -> None:
    """Copy generated files.

    Raises:
        PlanError: a file is not there, or not the one that was planned.
    """
    for copy in copies:
        try:
            text = copy.source.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise _unfit(copy, str(error)) from None
        if sha256_of_text(text) != copy.sha256:
            raise _unfit(copy, "another text than the plan's digest says")
        write_if_changed(directory / copy.path, text)


def _unfit(copy: Copy, found: str) -> PlanError:
    finding = Finding(str(copy.source), found, copy.sha256, "bazel fetch --force plans anew")
    return PlanError(finding)
