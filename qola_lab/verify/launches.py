"""The launch test: each entry point of a library launches kernels, on every arch it has code for.

A device that runs nothing sees the launches of the C functions. Each call happens in a process that
may crash without ending the test.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

from qola.aiter.attention import ATTENTION, ENTRIES, MAIN_ROLE
from qola.codegen.types import FieldValue
from qola.plan.model import Plan, PlannedModule
from qola_base.rule_main import run_main
from qola_lab.problems import AttentionProblem, Device, make_problem
from qola_lab.reference.masks import BOTTOM_RIGHT, NO_MASK
from qola_lab.verify.case import Call
from qola_lab.verify.host import Built, call_apart

#: Data types and head dimensions of AITER's assembly kernels, on one arch or another.
_ASM_DTYPES = ("bf16", "fp16")
_ASM_HDIMS = ((128, 128), (64, 64), (192, 128), (192, 192), (256, 256))
#: Problems of a failed proof that are printed.
_SHOWN = 5


@dataclass(frozen=True)
class Proof:
    """Whether an entry point of a library launches kernels on an arch.

    Attributes:
        kind: of the kernels: ``kernel instances`` or ``assembly kernels``.
        tried: number of problems.
        launching: calls that launched such kernels.
        failed: the first other calls.
    """

    arch: str
    entry: str
    kind: str
    tried: int
    launching: tuple[Call, ...]
    failed: tuple[Call, ...]

    def lines(self) -> Iterator[str]:
        """Yield the proof as text."""
        head = f"{self.arch} {self.entry}:"
        if self.launching:
            count, problem = len(self.launching), self.launching[0].problem
            yield f"{head} {count} of {self.tried} problems launch {self.kind}, such as {problem}"
            return
        yield f"{head} none of {self.tried} problems launches {self.kind}"
        for call in self.failed:
            launched = f"launched {len(call.launches)} other kernels" if call.launches else ""
            yield f"    {call.problem}: {call.error or launched or 'launched nothing'}"


def prove(built: Built, archs: Sequence[str]) -> list[Proof]:
    """Call a library with problems of its kernels on a device of each arch it has code for."""
    found: list[Proof] = []
    for arch in archs:
        proofs = [p for direction in ENTRIES for p in _prove_direction(built, direction, arch)]
        # A library without kernels for an arch is as useless there as one that fails.
        main = ENTRIES[ATTENTION[built.module].direction]
        found += proofs or [Proof(arch, main, "kernels: none is planned", 0, (), ())]
    return found


def _prove_direction(built: Built, direction: str, arch: str) -> Iterator[Proof]:
    """Yield a proof for each kind of kernels that a direction has for an arch."""
    digests = {code.sha256 for code in built.planned.code_objects if code.arch == arch}
    kinds = {}
    if any(arch in kernel.archs for kernel in built.of_direction(direction)):
        kinds["kernel instances"] = False
    if built.has_assembly(direction, arch):
        kinds["assembly kernels"] = True
    if not kinds:
        return
    problems = make_problems(built.plan, built.planned, direction)
    calls = list(call_apart(built, Device(arch), problems))
    for kind, wanted in kinds.items():
        launching = tuple(
            call
            for call in calls
            if not call.error
            and call.launches
            and any(launch.code in digests for launch in call.launches) is wanted
        )
        # Those that should have launched, first.
        others = [call for call in calls if call not in launching]
        others.sort(key=lambda call: call.problem.use_asm is not wanted)
        failed = tuple(others[:_SHOWN])
        yield Proof(arch, ENTRIES[direction], kind, len(calls), launching, failed)


def make_problems(
    plan: Plan, module: PlannedModule, direction: str
) -> tuple[AttentionProblem, ...]:
    """Return problems for the entry point of a direction, each once.

    One for the fields of each kernel instance; and for kernels whose fields are unknown, which are
    assembly kernels and those of directions that are not filtered, problems of usual sizes.
    """
    own = [k.fields for k in plan.kernels_of(module) if k.role == MAIN_ROLE[direction]]
    found = dict.fromkeys([*_of_kernels(direction, own)] or _usual(direction))
    if direction == ATTENTION[module.name].direction and module.code_objects:
        more = [*found, *_usual(direction)]
        found |= dict.fromkeys(replace(problem, use_asm=True) for problem in more)
    return tuple(found)


def _of_kernels(
    direction: str, kernels: Iterable[Mapping[str, FieldValue]]
) -> Iterator[AttentionProblem]:
    for kernel in kernels:
        hdim_q, hdim_v = kernel.get("hdim_q"), kernel.get("hdim_v") or kernel.get("hdim_q")
        # Kernels that append have no mode.
        if "dtype" not in kernel or not {"mode", "rope"} & set(kernel):
            return
        if not isinstance(hdim_q, int) or not isinstance(hdim_v, int):
            return
        rope = str(kernel.get("rope") or "no")
        mask = BOTTOM_RIGHT if kernel.get("mask", False) not in (False, "no") else NO_MASK
        problem = replace(
            _problem(direction, str(kernel["dtype"]), hdim_q, hdim_v),
            **asdict(mask),
            mode="group" if kernel.get("mode") == "group" else "batch",
            bias_type=str(kernel.get("bias") or "no"),
            return_lse=bool(kernel.get("lse")) or direction == "bwd",
            dropout_p=0.5 if kernel.get("dropout") else 0.0,
            has_dbias=bool(kernel.get("dbias")),
            deterministic=bool(kernel.get("deterministic")),
            logits_soft_cap=30.0 if kernel.get("logits") else 0.0,
            min_seqlen_q=1 if kernel.get("skip") else 0,
            has_sink=bool(kernel.get("sink")),
            rope_type=rope,
            rotary_dim=0 if rope == "no" else hdim_q,
        )
        if direction == "batch_prefill":
            # Composable Kernel of the pinned tree has pages of one row only, later trees others.
            yield problem.with_layout(page_block_size=1)
        paged = kernel.get("pagedkv") or direction in ("batch_prefill", "pagedkv_prefill")
        yield problem.with_layout(page_block_size=128 if paged else 0)


def _usual(direction: str) -> Iterator[AttentionProblem]:
    # AITER's assembly kernels have this mask for every length.
    for dtype, hdims, mode, mask in product(
        _ASM_DTYPES, _ASM_HDIMS, ("batch", "group"), (BOTTOM_RIGHT, NO_MASK)
    ):
        plain = replace(_problem(direction, dtype, *hdims), mode=mode, **asdict(mask))
        if direction == "batch_prefill":
            plain = plain.with_layout(page_block_size=1)
        yield plain
        yield replace(plain, return_lse=True)
        if direction != "fwd_appendkv":
            yield replace(plain, return_lse=True, has_sink=True)


def _problem(direction: str, dtype: str, hdim_q: int, hdim_v: int) -> AttentionProblem:
    """Return a problem of two sequences: no kernel runs, so it may be small."""
    return make_problem(
        direction,
        dtype,
        hdim=(hdim_q, hdim_v),
        seqlen_q=256,
        batch=2,
        nhead_q=4,
        nhead_k=2,
        num_splits=2 if direction == "fwd_splitkv" else 1,
        seqlen_knew=128 if direction == "fwd_appendkv" else 0,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of the rule launch_test."""
    parser = argparse.ArgumentParser(prog="qola_lab.verify.launches", description=__doc__)
    parser.add_argument("--runtime", required=True, type=Path, help="the fake HIP runtime")
    parser.add_argument("--library", required=True, type=Path, help="the library")
    parser.add_argument("--archs", required=True, nargs="+", help="archs of its code")
    parser.add_argument("--plan", required=True, type=Path, help="plan.json")
    parser.add_argument("--module", required=True, help="the library's module in the plan")
    args = parser.parse_args(argv)

    def run() -> None:
        built = Built(args.module, args.plan.parent, args.library, None, args.runtime)
        proofs = prove(built, args.archs)
        for proof in proofs:
            print("\n".join(proof.lines()))
        if not (proofs and all(proof.launching for proof in proofs)):
            sys.exit(1)

    return run_main(run)


if __name__ == "__main__":
    sys.exit(main())
