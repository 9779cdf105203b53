"""Problems that are drawn: each goes to its kernel, and together they try its edges."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qola.verify.problem import Problem
from qola.verify.sample import MAX_WORK, Fields, coverage, draw, propose, tile_of
from tests.python.verify.libraries import Library, libraries


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, aiter_tree: Path) -> list[Library]:
    return libraries(tmp_path_factory.mktemp("library"), aiter_tree, keep=True)


def test_problems_of_a_kernel(found: list[Library]) -> None:
    """Prevents: a kernel that is verified by problems of another, or by none in silence."""
    reasons: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for library in found:
        # Of many, some: each value of a field is among these.
        chosen = library.kernels[:: len(library.kernels) // 100]
        every, tried_of = (
            {item for kernel in kernels for item in kernel.fields.items()}
            for kernels in (library.kernels, chosen)
        )
        assert tried_of == every
        for kernel in chosen:
            device = kernel.archs[0]
            drawn = draw(kernel, library.kernels, library.dispatch, device, 4)
            assert bool(drawn.missing) == (len(drawn.problems) < 4)
            reasons[drawn.missing.partition(":")[0]] += 1
            for problem in drawn.problems:
                assert kernel.name in library.dispatch.taken(problem, device)
                assert problem.work <= MAX_WORK
            tried.update(coverage(drawn.problems, kernel.fields))
    # Nothing but kernels that no problem reaches is left out.
    assert set(reasons) == {"", "unreachable"}
    assert set(tried) == {
        "whole tiles",
        "rows beside a tile",
        "columns beside a tile",
        "shared heads",
        "a smaller head",
        "an empty sequence",
        "uneven sequences",
        "a window",
        "rows without keys",
    }


def test_the_same_seed_gives_the_same_problems(found: list[Library]) -> None:
    """Prevents: a failure that cannot be repeated, and a seed that changes nothing."""
    library = found[0]
    kernel = library.kernels[-1]
    device = kernel.archs[0]
    first, again, more, other = (
        draw(kernel, library.kernels, library.dispatch, device, samples, seed).problems
        for samples, seed in ((5, 1), (5, 1), (8, 1), (5, 2))
    )
    assert first == again == more[:5]
    assert not set(first) & set(other)
    assert len({problem.data_seed for problem in more}) == 8


def test_problems_survive_json(found: list[Library]) -> None:
    """Prevents: a report whose problem is another than the one that failed."""
    for library in found:
        for kernel in library.kernels[::11]:
            drawn = draw(kernel, library.kernels, library.dispatch, kernel.archs[0], 3)
            for problem in drawn.problems:
                assert Problem.from_json(problem.to_json()) == problem


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
    problem = propose("fwd", fields, 0, chosen, 128 * 128)
    assert problem is not None
    assert (problem.rows, problem.columns, problem.nhead_q) == ((128,), (128,), 1)
    assert "128x128" in str(replace(problem, group=True))
