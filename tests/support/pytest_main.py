"""Runs pytest on the files of one Bazel test."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest


class FurtherCases:
    """Marks thorough what a test has beyond its first cases, by its marker quick."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark them before they are chosen by their markers."""
        seen: Counter[str] = Counter()
        for item in items:
            if marker := item.get_closest_marker("quick"):
                test = item.nodeid.partition("[")[0]
                seen[test] += 1
                if seen[test] > marker.args[0]:
                    item.add_marker("thorough")


def main() -> int:
    """Resolve the tree's label to its directory, then hand over to pytest."""
    label = os.environ.get("QOLA_TEST_AITER_TREE", "")
    if label.endswith("AITER.json"):
        os.environ["QOLA_TEST_AITER_TREE"] = str(Path(label).resolve().parent)
    sys.dont_write_bytecode = True
    files = os.environ["PYTEST_FILES"].split()
    xml = os.environ.get("XML_OUTPUT_FILE")
    # For its own plugin pytest imports, and rewrites, all of hypothesis in each process.
    options = ["--disable-plugin-autoload"]
    # Where pyproject.toml is not among the test's files, too.
    options += ["--override-ini", "markers=thorough\nquick"]
    options += [f"--junitxml={xml}"] if xml else []
    if cases := os.environ.get("PYTEST_CASES"):
        options += ["-m", cases]
    if scratch := os.environ.get("TEST_TMPDIR"):
        # Bazel empties it; pytest's own default keeps the last three runs.
        options.append(f"--basetemp={scratch}/pytest")
    return int(
        pytest.main(
            ["-p", "no:cacheprovider", "-q", "-rs", "--strict-markers", *options, *files],
            plugins=[FurtherCases()],
        )
    )


if __name__ == "__main__":
    sys.exit(main())
