"""Runs pytest on the files of one Bazel test."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest


class FurtherCases:
    """Marks cases of a test beyond its first `quick` cases as thorough."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Add the marks before pytest selects items by mark."""
        seen: Counter[str] = Counter()
        for item in items:
            if marker := item.get_closest_marker("quick"):
                test = item.nodeid.partition("[")[0]
                seen[test] += 1
                if seen[test] > marker.args[0]:
                    item.add_marker("thorough")


def main() -> int:
    """Resolve the tree's label to its directory, then run pytest."""
    label = os.environ.get("QOLA_TEST_AITER_TREE", "")
    if label.endswith("AITER.json"):
        os.environ["QOLA_TEST_AITER_TREE"] = str(Path(label).resolve().parent)
    sys.dont_write_bytecode = True
    files = os.environ["PYTEST_FILES"].split()
    xml = os.environ.get("XML_OUTPUT_FILE")
    # The pytest plugin of hypothesis imports and rewrites all of hypothesis in each process.
    options = ["--disable-plugin-autoload"]
    # For tests whose files do not include pyproject.toml.
    options += ["--override-ini", "markers=thorough\nquick"]
    options += [f"--junitxml={xml}"] if xml else []
    if cases := os.environ.get("PYTEST_CASES"):
        options += ["-m", cases]
    if scratch := os.environ.get("TEST_TMPDIR"):
        # Bazel empties this directory; pytest's default directory keeps the last three runs.
        options.append(f"--basetemp={scratch}/pytest")
    return int(
        pytest.main(
            ["-p", "no:cacheprovider", "-q", "-rs", "--strict-markers", *options, *files],
            plugins=[FurtherCases()],
        )
    )


if __name__ == "__main__":
    sys.exit(main())
