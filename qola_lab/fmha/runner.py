"""Runs a library's kernels over arrays, on the emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gfxemu.launch import ARCHS, Options
from qola_base.errors import ExitCode, Finding, QolaError
from qola_base.formats import F64, FP16, FP32, Format, rounded
from qola_lab.fmha.reference import in_rows, tensors_of, with_appended
from qola_lab.problems import AttentionProblem, ProblemError, formats
from qola_lab.reference.attention import Forward
from qola_lab.verify.expected import (
    Verdict,
    by_sequence,
    cache_by_sequence,
    compare,
    expected,
    left_by_forward,
)
from qola_lab.verify.host import Built
from qola_lab.verify.replay import TILE, Emulator, contents
from qola_lab.verify.run import record_calls
from qola_lab.verify.tensors import Tensors, arithmetic, buffers

Array = NDArray[Any]

#: Results in the layout of Q, K, V and O.
_IN_ROWS = frozenset({"o", "dq", "dk", "dv", "q", "k", "v"})


class RunError(QolaError, title="the kernels did not run", exit_code=ExitCode.WRONG):
    """An arch without code or emulator, or a problem that the library did not run."""


@dataclass(frozen=True)
class Run:
    """Results of kernels, compared with the reference.

    Attributes:
        launched: names of the kernels, in order.
        results: o and lse, or dq, dk, dv and dbias, of the shapes of `AttentionProblem.shapes`;
            dk and dv have nhead_q heads. For fwd_appendkv k, v, and q if it is rotated. In float16
            if that is the format, else in float32.
        verdicts: of each result element by element, against limits that no rounding exceeds.
        findings: faults and forbidden writes.
        instructions: number of instructions of waves.
    """

    problem: AttentionProblem
    launched: tuple[str, ...]
    results: Mapping[str, Array]
    verdicts: tuple[Verdict, ...]
    findings: tuple[str, ...]
    instructions: int

    @property
    def passed(self) -> bool:
        """Whether all results are right, and nothing was found."""
        return all(verdict.passed for verdict in self.verdicts) and not self.findings


class Runner:
    """A library on an emulated device; its own host code chooses kernels and arguments."""

    def __init__(self, built: Built, arch: str, options: Options | None = None) -> None:
        """Take a library that `qola verify` could try.

        Args:
            arch: of the emulated device.
            options: of the emulator.

        Raises:
            RunError: the library has no code for the arch, or the arch is not emulated.
        """
        for known, found in ((built.plan.archs, "no code"), (sorted(ARCHS), "no emulator")):
            if arch not in known:
                have = f"one of {', '.join(known)}"
                raise RunError(Finding(str(built.library), f"{found} for {arch}", have))
        self._built, self._arch = built, arch
        self._emulator = Emulator(options or Options())

    def forward(
        self, problem: AttentionProblem, q: Array, k: Array, v: Array, **biases: Array | None
    ) -> Run:
        """Run the forward of a problem; arrays are rounded to its data type.

        K and V are arrays of sequences, which the runner puts into pages if the problem has pages.

        Args:
            problem: of direction fwd, fwd_splitkv or pagedkv_prefill.
            q, k, v, biases: see `tensors_of`.

        Raises:
            ProblemError: the arrays are not those of the problem, or it has no pages.
            RunError: the library has no kernel for it, or a kernel could not be run.
        """
        if problem.direction == "pagedkv_prefill":
            _must_be("pagedkv_prefill", problem, "pages", problem.layout.page_block_size)
        given = tensors_of(problem, q, k, v, **biases)
        return self._run(problem, self._rounded(problem, given))

    def append_kv(
        self, problem: AttentionProblem, q: Array, k: Array, v: Array, *new: Array, **angles: Array
    ) -> Run:
        """Append rows to K and V of a problem of direction fwd_appendkv, and rotate them and Q.

        Args:
            k, v: with room for the appended rows: their last seqlen_knew rows are not read.
            new, angles: k_new, v_new, cos and sin of `with_appended`.

        Raises:
            ProblemError: as `forward`, or the problem appends no rows.
            RunError: as `forward`.
        """
        _must_be("fwd_appendkv", problem, "new", problem.seqlen_knew)
        given = with_appended(problem, tensors_of(problem, q, k, v), *new, **angles)
        return self._run(problem, self._rounded(problem, given))

    def backward(
        self,
        problem: AttentionProblem,
        q: Array,
        k: Array,
        v: Array,
        do: Array,
        *,
        o: Array | None = None,
        lse: Array | None = None,
        **biases: Array | None,
    ) -> Run:
        """Run the backward of a problem of direction bwd; see `forward`.

        Args:
            do: gradient of O.
            o, lse: results of a forward; by default those of the reference, rounded.
        """
        given = self._rounded(problem, tensors_of(problem, q, k, v, do, **biases))
        return self._run(problem, given, self._left(problem, given, o, lse))

    def _left(
        self, problem: AttentionProblem, given: Tensors, o: Array | None, lse: Array | None
    ) -> list[Forward]:
        """Return O and LSE of each sequence as the kernel reads them."""
        left = left_by_forward(problem, given, arithmetic(problem, self._arch, TILE))
        shapes = problem.shapes()
        wrong = [
            Finding(name, f"shape {array.shape}", f"shape {shapes[name]}")
            for name, array in (("o", o), ("lse", lse))
            if array is not None and array.shape != shapes[name]
        ]
        if wrong:
            raise ProblemError(wrong)
        if o is not None:
            rows = in_rows(problem, np.asarray(o).astype(np.float64))
            values = rounded(rows, self._formats(problem)[1])
            parts = by_sequence(problem, replace(given, do=values))
            left = [replace(one, o=its) for one, its in zip(left, parts, strict=True)]
        if lse is not None:
            values = rounded(np.asarray(lse).astype(np.float64), FP32)
            parts = list(values)
            if problem.is_group_mode:
                parts = np.split(values, given.starts_q[1:-1], axis=1)
            left = [replace(one, lse=its) for one, its in zip(left, parts, strict=True)]
        return left

    def _formats(self, problem: AttentionProblem) -> tuple[Format, Format]:
        try:
            return formats(problem.dtype, self._arch)
        except KeyError:
            found, expected = f"dtype {problem.dtype}", "a data type with a known format"
            raise RunError(Finding(str(problem), found, expected)) from None

    def _rounded(self, problem: AttentionProblem, given: Tensors) -> Tensors:
        """Return tensors rounded to the formats of the kernel."""
        low, out = self._formats(problem)
        to = {"q": low, "k": low, "v": low, "do": out, "alibi_slopes": FP32}
        to["bias"] = FP32 if low.bits == 8 else low
        changed: dict[str, Any] = {
            name: rounded(array, format_)
            for name, format_ in to.items()
            if (array := getattr(given, name)) is not None
        }
        if new := given.appended:
            parts = {name: rounded(array, low) for name, array in vars(new).items()}
            changed["appended"] = replace(new, **parts)
        return replace(given, **changed)

    def _run(self, problem: AttentionProblem, given: Tensors, left: Sequence[Forward] = ()) -> Run:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            wanted = expected(problem, given, arithmetic(problem, self._arch, TILE), left)
        # The library's host code runs in a process of its own.
        case = record_calls(self._built, self._arch, [problem])
        (call,) = case.calls
        if call.error:
            raise RunError(Finding(str(problem), call.error, "a problem that the library serves"))
        values = contents(problem, given, self._arch, left)
        ran = self._emulator.run(call, self._arch, case.codes, values, tuple(wanted))
        if ran.error:
            raise RunError(Finding(str(problem), ran.error, "a kernel that can be emulated"))
        types = {name: buffer.format for name, buffer in buffers(problem, self._arch).items()}
        results = {
            name: _shown(problem, name, array, types[name]) for name, array in ran.results.items()
        }
        verdicts = tuple(compare(ran.results, wanted))
        return Run(problem, call.names, results, verdicts, ran.findings, ran.instructions)


def _must_be(direction: str, problem: AttentionProblem, rows: str, count: int) -> None:
    """Refuse a problem of another direction, or one without the direction's rows."""
    if problem.direction != direction or not count:
        found = f"direction {problem.direction}" + ("" if count else f", no {rows}")
        raise ProblemError(Finding(str(problem), found, f"direction {direction}, with {rows}"))


def _shown(problem: AttentionProblem, name: str, array: F64, of_type: Format) -> Array:
    """Return a result as NumPy has its format, or in float32, which has all its numbers."""
    if problem.seqlen_knew and name in ("k", "v"):
        array = cache_by_sequence(problem, array)
    laid = in_rows(problem, array) if name in _IN_ROWS else array
    return laid.astype(np.float16 if of_type is FP16 else np.float32)
