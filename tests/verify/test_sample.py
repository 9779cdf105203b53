"""Problems that are drawn: each goes to its kernel, and together they try its edges."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from qola.attention import AttentionProblem, parse_lines, parse_words
from qola.codegen.types import FieldValue
from qola.reference.masks import TOP_LEFT
from qola.verify.propose import MODEL_HEADS, Fields, propose, tile_of
from qola.verify.sample import CALLS, MAX_WORK, draw, proposals_of, search
from qola.verify.values import dispatch_arguments
from tests.support import plans
from tests.verify import predict
from tests.verify.consumers import consumer_problem
from tests.verify.libraries import Library, libraries


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, aiter_tree: Path) -> list[Library]:
    return libraries(tmp_path_factory.mktemp("library"), aiter_tree, keep=True)


def edges(problem: AttentionProblem, fields: Fields) -> list[int]:
    """Return the numbers of the edge cases that a problem of a kernel is."""
    lengths = problem.seqlen_q, problem.seqlen_k
    partial_q, partial_k = (
        any(length % tile for length in own)
        for own, tile in zip(lengths, tile_of(fields), strict=True)
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
    return [number for number, there in enumerate(cases) if there]


def test_problems_of_a_kernel(found: list[Library]) -> None:
    """Prevents: a kernel that is verified by problems of another, or by none in silence."""
    reasons: Counter[str] = Counter()
    tried: Counter[int] = Counter()
    heads: Counter[tuple[int, int]] = Counter()
    for library in found:
        seen: set[tuple[str, object]] = set()
        for kernel in library.kernels:
            # Of many, some: each value of a field is among these.
            if seen >= kernel.fields.items():
                continue
            seen |= kernel.fields.items()
            device = kernel.archs[0]
            drawn = draw(kernel, library.kernels, library.dispatch, device, 4)
            assert bool(drawn.missing) == (len(drawn.samples) < 4)
            reasons[drawn.missing.partition(":")[0]] += 1
            problems = [sample.problem for sample in drawn.samples]
            for problem in problems:
                assert kernel.name in library.dispatch.taken(problem, device)
                assert problem.work <= MAX_WORK
            tried.update(edge for one in problems for edge in edges(one, kernel.fields))
            if not drawn.missing:
                # With the default of three problems, too.
                third = problems[2]
                heads[third.nhead_q, third.nhead_k] += 1
    # Nothing but kernels that no problem reaches is left out.
    assert set(reasons) == {"", "unreachable"}
    assert set(tried) == set(range(10))
    # Prevents, too: kernels that divide the number of a head right for the first heads alone.
    many = [heads[counts] for counts in MODEL_HEADS]
    assert all(many)
    assert sum(many) > 0.9 * sum(heads.values())


def test_the_same_seed_gives_the_same_problems(found: list[Library]) -> None:
    """Prevents: a failure that cannot be repeated, and a seed that changes nothing."""
    library = found[0]
    kernel = library.kernels[-1]
    device = kernel.archs[0]
    first, again, more, other = (
        draw(kernel, library.kernels, library.dispatch, device, samples, seed).samples
        for samples, seed in ((5, 1), (5, 1), (8, 1), (5, 2))
    )
    assert first == again == more[:5]
    assert not set(first) & set(other)
    assert len({sample.data.seed for sample in more}) == 8


def test_problems_survive_json_and_text(found: list[Library]) -> None:
    """Prevents: a report whose problem differs from the one that failed."""
    for library in found:
        for kernel in library.kernels[::11]:
            drawn = draw(kernel, library.kernels, library.dispatch, kernel.archs[0], 3)
            for problem in (sample.problem for sample in drawn.samples):
                assert parse_lines(problem.to_json(), "lines") == [problem]
                assert parse_words(str(problem).split(), "fwd") == problem


def test_every_kernel_is_in_a_row(found: list[Library]) -> None:
    """Prevents: kernels that no problem is ever drawn for."""
    for library in found:
        named = {name for row in library.dispatch.rows for name in row}
        assert named == {kernel.name for kernel in library.kernels}


def test_as_the_plan_predicts(found: list[Library]) -> None:
    """Prevents: conditions read in another way than a second reader of the plan has them."""
    compared = 0
    for library in found:
        plan = {
            "archs": library.plan.archs,
            "kernels": [asdict(kernel) for kernel in library.kernels],
            "modules": [],
        }
        for kernel in library.kernels[::7]:
            device = kernel.archs[0]
            problems = draw(kernel, library.kernels, library.dispatch, device, 4).samples
            for problem in (sample.problem for sample in problems):
                # A mask, dropout or bias more, and lengths that are others.
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
                for one in changed:
                    row = consumer_problem(one)
                    if row is None:
                        continue
                    expected = predict.predict(plan, row, device, 304)
                    names = tuple(str(launched["name"]) for launched in expected.launches)
                    assert library.dispatch.taken(one, device) == names, str(one)
                    compared += 1
    assert compared > 300


def test_names_of_fields_that_problems_follow(found: list[Library]) -> None:
    """Prevents: a field of kernels that problems are drawn without, and so by chance alone."""
    followed = {
        *("dtype", "hdim_q", "hdim_v", "mode", "mask", "bias", "lse", "dropout", "dbias", "skip"),
        *("deterministic", "logits", "tile", "max_seqlen_q"),
    }
    # What follows from lengths, head dimensions and the device, and what is the same for all.
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
    """Prevents: edges of tiles that are those of another number in the name."""
    assert tile_of({"tile": "b128x64x16x32x32x32_r4x1x1"}) == (128, 64)
    assert tile_of({"tile": "b64x0"}) == (64, 64)
    assert tile_of({}) == (64, 64)


def test_what_is_too_large_is_not_proposed() -> None:
    """Prevents: a problem that an emulator works on for an hour."""
    chosen = np.random.default_rng(1)
    fields: Fields = {"tile": "b128x128x1", "dtype": "bf16", "hdim_q": 64, "hdim_v": 64}
    assert propose("fwd", fields, 0, chosen, 128 * 128 - 1) is None
    sample = propose("fwd", fields, 0, chosen, 128 * 128)
    assert sample is not None
    problem = sample.problem
    assert (problem.seqlen_q, problem.seqlen_k, problem.nhead_q) == ((128,), (128,), 1)


def test_without_a_dispatch_the_library_is_called() -> None:
    """Prevents: batch prefill untried, whose dispatch asks how many compute units there are."""
    shape: Fields = {"dtype": "fp16", "hdim_q": 64, "hdim_v": 64, "mode": "group"}
    of = {"direction": "batch_prefill", "role": "batch_prefill", "fields": shape}
    kernels = [plans.kernel("large", **of), plans.kernel("small", **of)]
    asked: list[AttentionProblem] = []

    def launched(problem: AttentionProblem) -> list[str]:
        asked.append(problem)
        return ["large" if sum(problem.seqlen_q) > 100 else "small"]

    proposals = proposals_of(kernels[0], kernels)
    drawn = search("large", proposals, launched, 3, 0, MAX_WORK, CALLS, cu_count=20)
    assert not drawn.missing
    assert drawn.cu_count == 20
    assert all(sum(sample.problem.seqlen_q) > 100 for sample in drawn.samples)
    assert all(problem.layout.page_block_size == 1 for problem in asked)
    none = search("large", proposals, lambda _: [], 2, 0, MAX_WORK, CALLS)
    assert none.missing == "2 of 2 problems not found among 100 each"
    unknown = plans.kernel("k", role="unknown", fields={})
    found = search("k", proposals_of(unknown, [unknown]), launched, 2, 0, MAX_WORK, CALLS)
    assert found.missing == "its problems are unknown"


def test_kernels_for_pages_get_them() -> None:
    """Prevents: split-KV by a table of pages untried."""
    fields: Fields = {"dtype": "fp16", "hdim_q": 32, "hdim_v": 32, "mode": "group"}
    pages = {}
    for paged in (False, True):
        shape = {**fields, "pagedkv": paged}
        sample = propose("fwd_splitkv", shape, 0, np.random.default_rng(1), MAX_WORK)
        assert sample is not None
        assert bool(dispatch_arguments(sample.problem)["block_table_ptr"]) == paged
        pages[paged] = sample.problem.layout.page_block_size
    assert pages == {False: 0, True: 128}
