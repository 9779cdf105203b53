"""Kill bazelw at random moments while it builds its tree: the next call builds a complete tree."""

from __future__ import annotations

import random
import shutil
import time

from tests.servers.http_files import Files
from tests.setup.machines import PACKAGES, Machine, mirror
from tests.support.folders import read

MAKE = "tree_finish() { sleep 0.05; }; TREES=$HOME/roots TREE=$TREES/tree; make_tree"
TIMES = 15


def test_at_random_moments(machine: Machine, server: Files) -> None:
    """Prevents: a tree with a partial package, a tree that is never finished, or leftovers."""
    server.content = mirror("snapshot/20261030T140801Z", *PACKAGES)
    roots = machine.directory / "roots"
    start = time.monotonic()
    result = machine.run(MAKE)
    duration = time.monotonic() - start
    assert result.returncode == 0, result.stderr
    whole = read(roots / "tree")
    assert set(PACKAGES) <= {name.rpartition("/")[2] for name in whole}
    rng = random.Random(1)
    seen = set()
    for _ in range(TIMES):
        shutil.rmtree(roots)
        machine.run_and_kill(MAKE, rng.uniform(0, 1.1 * duration))
        left = {path.name for path in roots.iterdir()} if roots.is_dir() else set()
        seen.add(frozenset(left))
        assert "tree" not in left or read(roots / "tree") == whole
        result = machine.run(MAKE)
        assert result.returncode == 0, result.stderr
        assert read(roots / "tree") == whole
        assert {path.name for path in roots.iterdir()} == {"tree", "tree.lock"}
    # Some runs were killed with a partial tree.
    assert frozenset({"tree.partial", "tree.lock"}) in seen
