"""Compares launches of libraries with their parsed dispatch and `find`, also for a sweep."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from qola.aiter.attention import MAIN_ROLE
from qola.plan.model import KernelInstance
from qola_base.errors import ExitCode, Finding, QolaError
from qola_base.files import UnfitFileError, bounded_bytes
from qola_lab.fmha.registry import Registry, RegistryError
from qola_lab.problems import AttentionProblem, Device, ProblemError, parse_lines
from qola_lab.reference.masks import BOTTOM_RIGHT, NO_MASK, TOP_LEFT, Mask
from qola_lab.verify.c_api import Found
from qola_lab.verify.case import REFUSED, Call, Dim, Sample
from qola_lab.verify.command import built_libraries, report_error
from qola_lab.verify.host import Built, Host, on_device
from qola_lab.verify.propose import propose
from qola_lab.verify.run import MAX_WORK, generator

_DTYPES = ("fp32", "fp16", "bf16", "fp8")
_HDIMS = (8, 16, 32, 40, 64, 72, 96, 104, 128, 160, 192, 256, 264)
_MASKS = (NO_MASK, TOP_LEFT, BOTTOM_RIGHT, Mask("top_left", 17, 5), Mask("bottom_right", 0, 3))


def sweep(
    kernels: Sequence[KernelInstance], count: int, seed: int = 0
) -> Iterator[AttentionProblem]:
    """Yield problems that kernels serve, and similar ones; equal for equal seeds.

    About half are a kernel's problem with one property changed, which perhaps no kernel serves.

    Args:
        kernels: of one arch.
    """
    mains = [
        k for k in kernels if k.role == MAIN_ROLE.get(k.direction) and not k.fields.get("pagedkv")
    ]
    made = attempt = 0
    while mains and made < count:
        attempt += 1
        chosen = generator("sweep", seed, made, attempt)
        kernel = mains[int(chosen.integers(len(mains)))]
        edge = int(chosen.integers(1 << 30))
        sample = propose(kernel.direction, kernel.fields, edge, chosen, MAX_WORK)
        if sample is not None:
            made += 1
            problem = sample.problem
            yield _changed(problem, chosen) if chosen.random() < 0.5 else problem


def _changed(problem: AttentionProblem, chosen: np.random.Generator) -> AttentionProblem:
    """Return a problem with another value of one property."""
    hdim = int(chosen.choice(_HDIMS))
    backward = problem.direction == "bwd"
    changes: list[dict[str, Any]] = [
        {"dtype": str(chosen.choice(_DTYPES))},
        {"hdim_q": hdim},
        {"hdim_v": hdim},
        {"hdim_q": hdim, "hdim_v": hdim},
        asdict(_MASKS[int(chosen.integers(len(_MASKS)))]),
        {"bias_type": str(chosen.choice(["no", "bias", "alibi"]))},
        {"dropout_p": 0.0 if problem.dropout_p else 0.25, "drop_seed": 7, "drop_offset": 11},
    ]
    if backward:
        changes.append({"deterministic": not problem.deterministic})
        changes.append({"has_dbias": not problem.has_dbias})
    else:
        changes.append({"return_lse": not problem.return_lse})
        changes.append({"logits_soft_cap": 0.0 if problem.logits_soft_cap else 10.0})
    change = changes[int(chosen.integers(len(changes)))]
    if problem.direction == "fwd_splitkv" and "dropout_p" in change:
        change = {}  # Its arguments have none.
    return replace(problem, **change)


_MAX_BYTES = 64 << 20
_SWEEP = "sweep"
"""Stands for problems near those that the kernels serve."""

#: The launches for a problem, the answer of `find`, and the names in it.
_Answer = tuple[Call, Found, tuple[str, ...]]


@dataclass(frozen=True)
class Compared:
    """A problem, with the kernels it was launched with and those it should be.

    Attributes:
        selected: kernels that the registry selects.
        launched: kernels that the library's host code launched.
        grids: of these launches, in workgroups.
        found: kernels that the library's C function `find` names.
        error: why nothing was launched, from the entry point.
        unread: why the dispatch names no comparable kernels, else empty.
        unfound: error of `find`.
        unasked: why `find` does not take the problem, else empty.
    """

    problem: AttentionProblem
    arch: str
    selected: tuple[str, ...] = ()
    launched: tuple[str, ...] = ()
    grids: tuple[Dim, ...] = ()
    found: tuple[str, ...] = ()
    error: str = ""
    unread: str = ""
    unfound: str = ""
    unasked: str = ""

    @property
    def as_selected(self) -> bool | None:
        """Whether launches and dispatch agree; None if the dispatch is unknown."""
        return None if self.unread else self._served and self.selected == self.launched

    @property
    def as_found(self) -> bool | None:
        """Whether launches and `find` agree; None if `find` does not take the problem."""
        if self.unasked:
            return None
        return self._served and not self.unfound and self.found == self.launched

    @property
    def agrees(self) -> bool | None:
        """Whether launches agree with both; None if compared with neither."""
        known = [agrees for agrees in (self.as_selected, self.as_found) if agrees is not None]
        return all(known) if known else None

    @property
    def _served(self) -> bool:
        """Whether kernels were launched, or the library has none for the problem."""
        return bool(self.launched) or self.error.endswith(REFUSED)

    def line(self) -> str:
        """Return the problem with its kernels and grids, or the differences."""
        if self.agrees is False:
            sides = [("launched", self.launched, self.error)]
            if self.as_selected is False:
                sides.append(("selected", self.selected, ""))
            if self.as_found is False:
                sides.append(("find names", self.found, self.unfound))
            parts = (
                f"{side} {', '.join(names) or 'none'}" + (f" ({error})" if error else "")
                for side, names, error in sides
            )
            return f"{self.problem}: {'; '.join(parts)}"
        if not self.launched:
            return f"{self.problem} -> none: {self.error or self.unread}"
        grids = ("x".join(map(str, grid)) for grid in self.grids)
        pairs = (f"{name} {grid}" for name, grid in zip(self.launched, grids, strict=True))
        return f"{self.problem} -> {', '.join(pairs)}"

    def to_json(self) -> str:
        """Return all fields as a line."""
        values = {**vars(self), "problem": self.problem.to_fields()}
        return json.dumps({**values, "agrees": self.agrees}, sort_keys=True)


def compared(built: Built, arch: str, problems: Sequence[AttentionProblem]) -> list[Compared]:
    """Call a library with problems on a device that runs nothing, and compare the launches.

    If the dispatch of a direction is not understood, or assembly kernels serve a problem, the
    result has the launches, why no kernel is selected, and whether `find` agrees.

    Raises:
        VerifyError: the process that called the library died.
    """
    registry = Registry.of(built.module, built.repository)
    answers = on_device(built, Device(arch), _answers, problems)
    return list(_compared(registry, arch, answers))


def _answers(host: Host, problems: Sequence[AttentionProblem]) -> list[_Answer]:
    answers = []
    for problem in problems:
        call, found = host.call(Sample(problem)), host.find(problem)
        answers.append((call, found, host.named(found, call.launches)))
    return answers


def _compared(registry: Registry, arch: str, answers: Sequence[_Answer]) -> Iterator[Compared]:
    known = {entry.name for entry in registry}
    for call, found, names in answers:
        selected: tuple[str, ...] = ()
        unread = ""
        if call.problem.use_asm and not known.issuperset(call.names):
            unread = "assembly kernels serve it, which AITER's host code chooses"
        else:
            # CK's dispatch serves a problem that assembly kernels refuse.
            plain = replace(call.problem, use_asm=False)
            try:
                selected = tuple(entry.name for entry in registry.select(plain, arch))
            except RegistryError as error:
                unread = "; ".join(finding.found for finding in error.findings)
        yield Compared(
            call.problem,
            arch,
            selected,
            call.names,
            tuple(launch.grid for launch in call.launches),
            names,
            error=call.error,
            unread=unread,
            unfound="" if found.answers or found.refuses else found.error,
            # If the C++ function has no kernel either, both agree.
            unasked=found.error if found.refuses and not call.error.endswith(REFUSED) else "",
        )


def compare_all(args: argparse.Namespace) -> int:
    """Compare; return the exit code: WRONG if a library launches other kernels, or none."""
    try:
        found = _all(args)
    except QolaError as error:
        return report_error(args, error)
    if args.json:
        print("\n".join(one.to_json() for one in found))
    else:
        _report(found, everything=args.problems != _SWEEP)
    differ = any(one.agrees is False for one in found)
    return ExitCode.WRONG if differ or not any(one.launched for one in found) else ExitCode.DONE


def _report(found: Sequence[Compared], *, everything: bool) -> None:
    """Print the results of all problems, or of differing ones."""
    for one in found:
        if everything or one.agrees is False:
            print(f"{one.arch} {one.line()}")
    for text, neither, reason in (
        ("not compared", True, "unread"),
        ("compared with find only", False, "unread"),
        ("compared with select only", False, "unasked"),
    ):
        of = [one for one in found if (one.agrees is None) == neither and getattr(one, reason)]
        counts = Counter((one.arch, one.problem.direction, getattr(one, reason)) for one in of)
        for (arch, direction, why), count in counts.items():
            print(f"{arch} {direction}: {count} problems {text}: {why}")
    differing = sum(one.agrees is False for one in found)
    none = sum(not one.launched for one in found)
    neither_count = sum(one.agrees is None for one in found)
    more = f", {neither_count} are not compared" if neither_count else ""
    print(f"{len(found)} problems: {differing} differ, {none} have no kernel{more}")


def _all(args: argparse.Namespace) -> list[Compared]:
    """Return the results of all problems, including those of directions without a library.

    Raises:
        QolaError: the file has no problems, or none for a library; a library ended the process.
    """
    given = None if args.problems == _SWEEP else read_problems(Path(args.problems))
    found: list[Compared] = []
    served: dict[str, set[str]] = {}
    for built in built_libraries(args):
        for arch in args.arch or built.plan.archs:
            kernels = [k for k in built.kernels if arch in k.archs]
            directions = {k.direction for k in kernels} & set(MAIN_ROLE)
            served.setdefault(arch, set()).update(directions)
            swept = sweep(kernels, args.count, args.seed) if given is None else given
            if own := [problem for problem in swept if problem.direction in directions]:
                found += compared(built, arch, own)
    if not found:
        known = ", ".join(sorted(set().union(*served.values()))) or "none"
        why = "no problem for a direction of the libraries"
        raise ProblemError(Finding(args.problems, why, f"one of {known}"))
    why = "no library has kernels of the direction for the arch"
    return found + [
        Compared(problem, arch, unread=why, unasked=why)
        for arch, directions in served.items()
        for problem in given or ()
        if problem.direction not in directions
    ]


def read_problems(path: Path) -> list[AttentionProblem]:
    """Return the problems of a file.

    Raises:
        ProblemError: it cannot be read, or has lines that are not problems.
    """
    try:
        return parse_lines(bounded_bytes(path, _MAX_BYTES).decode("utf-8"), str(path))
    except (OSError, UnfitFileError, UnicodeDecodeError) as error:
        found = (isinstance(error, OSError) and error.strerror) or str(error)
        raise ProblemError(Finding(str(path), found, "a file of problems")) from None
