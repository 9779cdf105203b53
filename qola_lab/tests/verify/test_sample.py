"""Sampled problems: each launches its kernel, and together they cover the edge cases."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from qola.codegen.types import FieldValue
from qola.plan.model import KernelInstance
from qola_lab.problems import AttentionProblem, parse_lines, parse_words
from qola_lab.reference.masks import TOP_LEFT
from qola_lab.tests.verify import predict
from qola_lab.tests.verify.libraries import Library, libraries
from qola_lab.tests.verify.predict import ConsumerCall
from qola_lab.verify.propose import MODEL_HEADS, Fields, propose, tile_of
from qola_lab.verify.run import (
    CALLS,
    MAX_WORK,
    KernelSamples,
    VerifyRequest,
    draw,
    proposals_of,
    search,
)
from qola_lab.verify.tensors import dispatch_arguments
from tests.support import plans


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, aiter_tree: Path) -> list[Library]:
    return libraries(tmp_path_factory.mktemp("library"), aiter_tree, keep=True)


def samples_of(
    library: Library, kernel: KernelInstance, samples: int, seed: int = 0
) -> KernelSamples:
    """Return problems of a kernel on the first of its archs."""
    request = VerifyRequest(kernel.archs[0], samples=samples, seed=seed)
    return draw(kernel, library.kernels, library.dispatch, request)


def edges(problem: AttentionProblem, fields: Fields) -> list[int]:
    """Return the numbers of the edge cases that a problem covers."""
    lengths = problem.seqlen_q, problem.seqlen_k
    partial_q, partial_k = (
        any(length % tile for length in lengths_)
        for lengths_, tile in zip(lengths, tile_of(fields), strict=True)
    )
    cases = (
        not partial_q and not partial_k,
        partial_q,
        partial_k,
        (problem.nhead_q, problem.nhead_k) in MODEL_HEADS,
        problem.nhead_q > problem.nhead_k,
        problem.hdim_q < int(fields.get("hdim_q") or 0),
        0 in (*problem.seqlen_q, *problem.seqlen_k),
        len(set(problem.seqlen_q)) > 1,
        problem.mask_type != "no" and problem.window_size_left >= 0,
        any(
            not problem.mask.allowed(*pair).any(axis=1).all() for pair in zip(*lengths, strict=True)
        ),
    )
    return [number for number, covered in enumerate(cases) if covered]


def test_problems_of_a_kernel(found: list[Library]) -> None:
    """Prevents: a kernel verified by another kernel's problems, or silently by none."""
    reasons: Counter[str] = Counter()
    tried: Counter[int] = Counter()
    heads: Counter[tuple[int, int]] = Counter()
    for library in found:
        seen: set[tuple[str, object]] = set()
        for kernel in library.kernels:
            # Skip kernels whose field values have all been seen.
            if seen >= kernel.fields.items():
                continue
            seen |= kernel.fields.items()
            device = kernel.archs[0]
            kernel_samples = samples_of(library, kernel, 4)
            assert bool(kernel_samples.missing) == (len(kernel_samples.samples) < 4)
            reasons[kernel_samples.missing.partition(":")[0]] += 1
            problems = [one.problem for one in kernel_samples.samples]
            for problem in problems:
                assert kernel.name in library.dispatch.taken(problem, device)
                assert problem.work <= MAX_WORK
            tried.update(edge for problem in problems for edge in edges(problem, kernel.fields))
            if not kernel_samples.missing:
                # The third problem: three is the default number.
                third = problems[2]
                heads[third.nhead_q, third.nhead_k] += 1
    # Only unreachable kernels lack problems.
    assert set(reasons) == {"", "unreachable"}
    assert set(tried) == set(range(10))
    # Also prevents: a wrong division of head numbers that only later heads show.
    many = [heads[counts] for counts in MODEL_HEADS]
    assert all(many)
    assert sum(many) > 0.9 * sum(heads.values())


def test_the_second_problem_has_the_smallest_sizes(found: list[Library]) -> None:
    """Prevents: a head dimension that no problem has, or a column whose mask none shows."""
    smallest: dict[int, set[int]] = {}
    lengths: Counter[bool] = Counter()
    batch: Counter[str] = Counter()
    for library in found:
        for kernel in library.kernels[::9]:
            device = kernel.archs[0]
            samples = samples_of(library, kernel, 2).samples
            if len(samples) < 2:
                continue
            problem = samples[1].problem
            for size in range(8, problem.hdim_q, 8):
                smaller = replace(problem, hdim_q=size, hdim_v=min(size, problem.hdim_v))
                assert kernel.name not in library.dispatch.taken(smaller, device), str(smaller)
            if bucket := int(kernel.fields.get("hdim_q") or 0):
                smallest.setdefault(bucket, set()).add(problem.hdim_q)
            if problem.is_group_mode:
                lengths[set(problem.seqlen_k) >= set(range(1, 65))] += 1
            elif problem.mask_type == "no" and kernel.fields.get("skpad"):
                # Whole tiles may go to another kernel.
                others = {one.problem.seqlen_k for one in samples[2:]}
                assert others >= {(length,) for length in range(1, 64)}
                batch[kernel.direction] += 1
            # The first problem, whose verdicts are recorded, is as before.
            (first,) = samples_of(library, kernel, 1).samples
            assert first == samples[0]
    assert 8 in smallest[min(smallest)]
    # Not where the shortest lengths, such as whole tiles, are too large beside them.
    assert lengths[True] > 0.8 * lengths.total() > 0
    assert batch["fwd"]


def test_the_same_seed_gives_the_same_problems(found: list[Library]) -> None:
    """Prevents: a failure that a seed does not reproduce, or a seed without effect."""
    library = found[0]
    kernel = library.kernels[-1]
    first, again, more, other = (
        samples_of(library, kernel, samples, seed).samples
        for samples, seed in ((5, 1), (5, 1), (8, 1), (5, 2))
    )
    assert first == again == more[:5]
    assert not set(first) & set(other)
    assert len({one.data.seed for one in more}) == 8


def test_problems_survive_json_and_text(found: list[Library]) -> None:
    """Prevents: a report whose problem differs from the failing problem."""
    for library in found:
        for kernel in library.kernels[::11]:
            for problem in (one.problem for one in samples_of(library, kernel, 3).samples):
                assert parse_lines(problem.to_json(), "lines") == [problem]
                assert parse_words(str(problem).split(), "fwd") == problem


def test_every_kernel_is_in_a_dispatch_row(found: list[Library]) -> None:
    """Prevents: kernels that can never get a problem."""
    for library in found:
        in_rows = {name for row in library.dispatch.rows for name in row}
        assert in_rows == {kernel.name for kernel in library.kernels}


def consumer_call(problem: AttentionProblem) -> ConsumerCall | None:
    """Return the call for a problem, or None if the program cannot express the problem."""
    if problem.is_group_mode and len(set(problem.seqlen_q)) + len(set(problem.seqlen_k)) > 2:
        return None
    mask = "no" if problem.mask_type == "no" else "window"
    return ConsumerCall(
        problem.direction,
        problem.dtype,
        problem.hdim_q,
        problem.hdim_v,
        problem.mode,
        mask,
        problem.bias_type,
        problem.return_lse,
        problem.has_dbias,
        problem.dropout_p,
        deterministic=problem.deterministic,
        batch=problem.batch,
        nhead_q=problem.nhead_q,
        nhead_k=problem.nhead_k,
        seqlen_q=problem.seqlen_q[0],
        seqlen_k=problem.seqlen_k[0],
        soft_cap=problem.logits_soft_cap,
        min_seqlen_q=problem.min_seqlen_q,
    )


def test_the_dispatch_agrees_with_the_prediction(found: list[Library]) -> None:
    """Prevents: parsed dispatch conditions that differ from an independent prediction."""
    compared = 0
    for library in found:
        plan = {
            "archs": library.plan.archs,
            "kernels": [asdict(kernel) for kernel in library.kernels],
            "modules": [],
        }
        for kernel in library.kernels[::7]:
            device = kernel.archs[0]
            for problem in (one.problem for one in samples_of(library, kernel, 4).samples):
                # Add a mask or dropout, change lengths, LSE or head dimensions.
                changed = [
                    problem,
                    replace(problem, **asdict(TOP_LEFT)),
                    replace(problem, dropout_p=0.5),
                    replace(problem, seqlen_q=(17,) * problem.batch),
                    replace(
                        problem, seqlen_k=(64,) * problem.batch, return_lse=not problem.return_lse
                    ),
                    replace(problem, hdim_q=8, hdim_v=16),
                ]
                for variant in changed:
                    row = consumer_call(variant)
                    if row is None:
                        continue
                    expected = predict.predict(plan, row, device, 304)
                    names = tuple(str(launched["name"]) for launched in expected.launches)
                    assert library.dispatch.taken(variant, device) == names, str(variant)
                    compared += 1
    assert compared > 300


def test_all_fields_of_kernels_are_known(found: list[Library]) -> None:
    """Prevents: a new kernel field that sampled problems match only by chance."""
    followed = {
        *("dtype", "hdim_q", "hdim_v", "mode", "mask", "bias", "lse", "dropout", "dbias", "skip"),
        *("deterministic", "logits", "tile", "max_seqlen_q"),
    }
    # Fields that follow from lengths, head dimensions and the device, or that never differ.
    others = {
        *("arch", "dpad", "dvpad", "spad", "skpad", "pipeline", "trload", "vlayout", "squant"),
        *("dropout_kind", "randval"),
    }
    fields: dict[str, set[FieldValue]] = {}
    for library in found:
        for kernel in library.kernels:
            for name, value in kernel.fields.items():
                fields.setdefault(name, set()).add(value)
    assert set(fields) <= followed | others
    assert fields["squant"] == {False}
    assert fields["vlayout"] == {"row"}


def test_tiles() -> None:
    """Prevents: tile edges computed from the wrong numbers of a kernel's name."""
    assert tile_of({"tile": "b128x64x16x32x32x32_r4x1x1"}) == (128, 64)
    assert tile_of({"tile": "b64x0"}) == (64, 64)
    assert tile_of({}) == (64, 64)


def test_large_problems_are_not_proposed() -> None:
    """Prevents: a problem whose emulation takes hours."""
    rng = np.random.default_rng(1)
    fields: Fields = {"tile": "b128x128x1", "dtype": "bf16", "hdim_q": 64, "hdim_v": 64}
    assert propose("fwd", fields, 0, rng, 128 * 128 - 1) is None
    sample = propose("fwd", fields, 0, rng, 128 * 128)
    assert sample is not None
    problem = sample.problem
    assert (problem.seqlen_q, problem.seqlen_k, problem.nhead_q) == ((128,), (128,), 1)


def test_without_a_dispatch_the_library_is_called() -> None:
    """Prevents: batch prefill without problems, because its dispatch depends on cu_count."""
    shape: Fields = {"dtype": "fp16", "hdim_q": 64, "hdim_v": 64, "mode": "group"}
    kernel_fields = {"direction": "batch_prefill", "role": "batch_prefill", "fields": shape}
    kernels = [plans.kernel("large", **kernel_fields), plans.kernel("small", **kernel_fields)]
    problems: list[AttentionProblem] = []

    def launched(problem: AttentionProblem) -> list[str]:
        problems.append(problem)
        return ["large" if sum(problem.seqlen_q) > 100 else "small"]

    proposals = proposals_of(kernels[0], kernels)
    request = VerifyRequest("gfx950", samples=3)
    kernel_samples = search("large", proposals, launched, request, CALLS)
    assert not kernel_samples.missing
    assert all(sum(one.problem.seqlen_q) > 100 for one in kernel_samples.samples)
    assert all(problem.layout.page_block_size == 1 for problem in problems)
    none = search("large", proposals, lambda _: [], request, CALLS)
    assert none.missing == "3 of 3 problems not found among 100 each"
    unknown = plans.kernel("k", role="unknown", fields={})
    found = search("k", proposals_of(unknown, [unknown]), launched, request, CALLS)
    assert found.missing == "its problems are unknown"


def test_paged_kernels_get_pages() -> None:
    """Prevents: split-KV kernels for pages verified without a block table."""
    fields: Fields = {"dtype": "fp16", "hdim_q": 32, "hdim_v": 32, "mode": "group"}
    pages = {}
    for paged in (False, True):
        shape = {**fields, "pagedkv": paged}
        sample = propose("fwd_splitkv", shape, 0, np.random.default_rng(1), MAX_WORK)
        assert sample is not None
        assert bool(dispatch_arguments(sample.problem)["block_table_ptr"]) == paged
        pages[paged] = sample.problem.layout.page_block_size
    assert pages == {False: 0, True: 128}
