"""How long workers take for a build: a simulation of list scheduling, with what the network takes.

A worker is one core that compiles one thing at a time and keeps what several compiles read.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from qola.inspect.costs import ALL
from qola.inspect.estimate import Compile

#: The final task of each library; reads every object.
LINK = "link"


@dataclass(frozen=True)
class Task:
    """One action.

    Attributes:
        seconds: of one core.
        after: names of tasks whose results it reads.
        shared: names of inputs that a worker fetches once, for all tasks that read them; one that
            a task makes is waited for.
    """

    name: str
    seconds: float
    after: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    input_bytes: float = 0.0
    output_bytes: float = 0.0


@dataclass(frozen=True)
class Network:
    """What moves bytes.

    Attributes:
        worker_rate: bytes a second between the store and one worker.
        client_rate: bytes a second between the client and the store.
        client_seconds: seconds the client spends on sending off one action; it sends one at a time.
    """

    worker_rate: float
    client_rate: float
    client_seconds: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What a simulation gives.

    Attributes:
        wall_seconds: from the client's first byte to its last.
        busy_seconds: seconds of one core spent on tasks.
        fetch_seconds: seconds that workers waited for bytes.
        client_bytes: bytes the client uploaded and downloaded.
    """

    workers: int
    wall_seconds: float
    busy_seconds: float
    fetch_seconds: float
    client_bytes: float

    @property
    def use(self) -> float:
        """The share of the workers' time that tasks took."""
        return self.busy_seconds / (self.wall_seconds * self.workers)


def bound(tasks: Sequence[Task], workers: int) -> float:
    """Return the seconds below which no schedule gets, the network left out.

    All work spread evenly, or the longest chain of tasks that read each other's results.
    """
    chains: dict[str, float] = {}
    waits = _predecessors(tasks)
    for task in _in_order(tasks):
        chains[task.name] = task.seconds + max((chains[a] for a in waits[task.name]), default=0.0)
    total = sum(task.seconds for task in tasks)
    return max(total / workers, max(chains.values(), default=0.0))


def simulate(
    tasks: Sequence[Task],
    workers: int,
    network: Network,
    shared_bytes: Mapping[str, float],
    download: Iterable[str] = (),
) -> Outcome:
    """Run tasks on workers: whoever is free takes the first task whose predecessors are done.

    Before anything runs the client uploads the inputs that no task makes. Afterwards it downloads
    the results of the tasks named in `download`.

    Args:
        tasks: in the order in which they are offered.
        network: rates.
        shared_bytes: size of each shared input that is not a task's result.

    Raises:
        ValueError: a task reads the result of none, or tasks wait for each other.
    """
    outputs = {task.name: task.output_bytes for task in tasks}
    waits = _predecessors(tasks)
    waiting = {name: len(names) for name, names in waits.items()}
    readers: dict[str, list[Task]] = {}
    for task in _in_order(tasks):
        for name in waits[task.name]:
            readers.setdefault(name, []).append(task)
    used = sorted({name for task in tasks for name in task.shared} - outputs.keys())
    sent = sum(shared_bytes[name] for name in used) + sum(task.input_bytes for task in tasks)

    sizes = {**outputs, **shared_bytes}
    offered = start = sent / network.client_rate
    ready = deque(task for task in tasks if not waiting[task.name])
    idle = list(range(workers))
    running: list[tuple[float, int, str]] = []
    kept: list[set[str]] = [set() for _ in range(workers)]
    busy = fetched = 0.0
    now = start
    while ready or running:
        while ready and idle:
            task, worker = ready.popleft(), heapq.heappop(idle)
            offered = max(offered, now) + network.client_seconds
            reads = [name for name in (*task.shared, *task.after) if name not in kept[worker]]
            kept[worker].update(task.shared)
            moved = task.input_bytes + task.output_bytes + sum(sizes[name] for name in reads)
            fetched += moved / network.worker_rate
            busy += task.seconds
            end = offered + moved / network.worker_rate + task.seconds
            heapq.heappush(running, (end, worker, task.name))
        now, worker, name = heapq.heappop(running)
        heapq.heappush(idle, worker)
        for task in readers.get(name, ()):
            waiting[task.name] -= 1
            if not waiting[task.name]:
                ready.append(task)
    received = sum(outputs[name] for name in download)
    wall = now + received / network.client_rate
    return Outcome(workers, wall, busy, fetched, sent + received)


def _predecessors(tasks: Sequence[Task]) -> dict[str, tuple[str, ...]]:
    """Return the tasks that each task waits for, by name."""
    names = {task.name for task in tasks}
    return {
        task.name: (*task.after, *(name for name in task.shared if name in names)) for task in tasks
    }


def _in_order(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks such that each stands after those it reads.

    Raises:
        ValueError: a task reads the result of none, or tasks wait for each other.
    """
    by_name = {task.name: task for task in tasks}
    waits = _predecessors(tasks)
    missing = sorted({name for names in waits.values() for name in names} - by_name.keys())
    if missing:
        raise ValueError(f"no task {missing[0]}")
    try:
        return [by_name[name] for name in TopologicalSorter(waits).static_order()]
    except CycleError as error:
        raise ValueError(f"{error.args[1][0]} waits for itself") from None


def tasks_of(
    listed: Sequence[Compile],
    *,
    shared: Sequence[str],
    source_bytes: float,
    link_rate: float,
) -> list[Task]:
    """Return a plan's compiles and the links after them as tasks, in Bazel's order.

    Args:
        shared: names of what every compile reads: compiler, headers.
        link_rate: bytes of objects a linker reads in a second.
    """
    made: dict[str, list[Compile]] = {}
    for one in listed:
        made.setdefault(one.module, []).append(one)
    tasks: list[Task] = []
    for own_compiles in made.values():
        # A library names its own sources before its kernel instances.
        tasks += [
            Task(
                one.name,
                one.cost.cpu_seconds,
                (),
                tuple(shared),
                source_bytes,
                one.cost.object_bytes,
            )
            for one in sorted(own_compiles, key=lambda c: c.direction != ALL)
        ]
    for module, own_compiles in made.items():
        tasks.append(
            Task(
                f"{LINK} {module}",
                sum(one.cost.object_bytes for one in own_compiles) / link_rate,
                tuple(one.name for one in own_compiles),
                tuple(shared),
                0.0,
                sum(one.cost.linked_bytes for one in own_compiles),
            )
        )
    return tasks
