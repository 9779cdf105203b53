"""The simulation of workers: small builds whose schedule can be worked out by hand."""

from __future__ import annotations

import random
from functools import partial

import pytest

from bench.workers import Network, Task, bound, simulate, tasks_of
from qola.inspect.costs import Cost
from qola.inspect.estimate import Compile

INSTANT = Network(float("inf"), float("inf"))


def wall(tasks: list[Task], workers: int, network: Network = INSTANT, **sizes: float) -> float:
    return simulate(tasks, workers, network, sizes).wall_seconds


@pytest.mark.parametrize(("workers", "seconds"), [(1, 10), (2, 7), (3, 5), (9, 4)])
def test_a_free_worker_takes_the_next_task(workers: int, seconds: float) -> None:
    """Prevents: workers that idle while tasks wait, or that take tasks in another order."""
    tasks = [Task("a", 1), Task("b", 3), Task("c", 2), Task("d", 4)]
    assert wall(tasks, workers) == seconds


def test_a_task_waits_for_what_it_reads() -> None:
    """Prevents: tasks that run before what they read is made."""
    tasks = [Task("kernel", 2, after=("header",)), Task("other", 1), Task("header", 5)]
    assert wall(tasks, 2) == 7
    assert wall(tasks, 1) == 8


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([Task("a", 1, after=("nothing",))], "no task nothing"),
        ([Task("a", 1, after=("b",)), Task("b", 1, after=("a",))], "(a|b) waits for itself"),
    ],
)
def test_tasks_that_never_run_are_refused(tasks: list[Task], message: str) -> None:
    """Prevents: a simulation that ends early and calls it fast."""
    with pytest.raises(ValueError, match=message):
        wall(tasks, 1)


def test_a_worker_fetches_shared_inputs_once() -> None:
    """Prevents: a compiler that is charged per kernel, or never."""
    network = Network(worker_rate=10, client_rate=float("inf"))
    tasks = [Task(name, 1, shared=("sdk",), input_bytes=10, output_bytes=20) for name in "abc"]
    # Per task 3 s for its own bytes and 1 s of work; 10 s per worker for the compiler.
    assert wall(tasks, 1, network, sdk=100) == 10 + 3 * 4
    assert wall(tasks, 3, network, sdk=100) == 10 + 4
    # Another task's result is fetched too.
    chain = [Task("header", 1, output_bytes=50), Task("kernel", 1, after=("header",))]
    assert wall(chain, 1, network) == 1 + 5 + 5 + 1


def test_the_client_uploads_first_and_downloads_last() -> None:
    """Prevents: a slow line to the server that the figures do not show."""
    network = Network(worker_rate=float("inf"), client_rate=10)
    tasks = [Task("a", 1, shared=("sdk",), input_bytes=20, output_bytes=30), Task("b", 1)]
    found = simulate(tasks, 2, network, {"sdk": 100, "unused": 1e9}, download=["a"])
    assert found.wall_seconds == 12 + 1 + 3
    assert found.client_bytes == 150
    assert found.busy_seconds == 2


def test_the_client_sends_actions_one_at_a_time() -> None:
    """Prevents: a thousand workers fed by a client that can send off a hundred."""
    network = Network(float("inf"), float("inf"), client_seconds=1)
    assert wall([Task(str(n), 2) for n in range(10)], 100, network) == 10 + 2


@pytest.mark.parametrize("seed", range(40))
def test_within_the_bounds_of_list_scheduling(seed: int) -> None:
    """Prevents: a simulation better than perfect, or worse than Graham's bound."""
    drawn = random.Random(seed)
    workers = drawn.randint(1, 8)
    tasks = []
    for n in range(drawn.randint(1, 30)):
        back = drawn.randint(0, min(n, 3))
        tasks.append(Task(str(n), drawn.randint(1, 50), after=(str(n - back),) if back else ()))
    found = simulate(tasks, workers, INSTANT, {})
    assert found.wall_seconds >= bound(tasks, workers) - 1e-9
    assert found.wall_seconds <= bound(tasks, workers) + bound(tasks, len(tasks)) + 1e-9
    assert found.busy_seconds == sum(task.seconds for task in tasks)
    assert 0 < found.use <= 1 + 1e-9
    assert simulate(tasks, workers, INSTANT, {}) == found


def test_what_a_task_makes_is_fetched_once() -> None:
    """Prevents: a result that is free, or that every task that reads it fetches anew."""
    network = Network(worker_rate=10, client_rate=float("inf"))
    tasks = [Task("header", 5, output_bytes=100), *(Task(k, 1, shared=("header",)) for k in "abc")]
    # Making and storing it, then one fetch and three kernels.
    assert wall(tasks, 1, network) == 5 + 10 + 10 + 3
    assert bound(tasks, 9) == 6


def test_links_come_last() -> None:
    """Prevents: a build that ends before its libraries are linked."""
    cost = Cost(30, 4, 9, 1000, 800)
    compiles = [
        Compile("fwd:a", "libmha_fwd", 1, "fwd", "fwd", cost, True),
        Compile("fwd:api", "libmha_fwd", 0, "all", "dispatch, entry", cost, True),
        Compile("bwd:b", "libmha_bwd", 1, "bwd", "dq_dk_dv", cost.for_archs(2), True),
    ]
    build = partial(tasks_of, compiles, shared=["sdk"], source_bytes=5, link_rate=100)
    tasks = build()
    names = [task.name for task in tasks]
    assert names == ["fwd:api", "fwd:a", "bwd:b", "link libmha_fwd", "link libmha_bwd"]
    assert [task.seconds for task in tasks] == [30, 30, 56, 20, 20]
    assert set(tasks[3].after) == {"fwd:api", "fwd:a"}
    assert tasks[4].output_bytes == 1600
    assert wall(tasks, 2, INSTANT, sdk=0) == 30 + 56 + 20
