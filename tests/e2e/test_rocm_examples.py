"""Build AMD's unchanged examples with rules/hip, and run their checks on the emulator.

QOLA_TEST_ROCM_EXAMPLES names a checkout. If it is not set, git fetches the pinned commit.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from tests.e2e import rocm_examples
from tests.e2e.git_checkout import check_out
from tests.e2e.nested_bazel import QOLA, bazel


def checkout(directory: Path) -> Path:
    """Return a directory with the examples. Skip the test if there is no network."""
    if path := os.environ.get("QOLA_TEST_ROCM_EXAMPLES"):
        return Path(path)
    check_out(directory, rocm_examples.REMOTE, rocm_examples.COMMIT)
    return directory


def test_examples(tmp_path: Path) -> None:
    """Prevents: rules/hip and the emulator work only for programs of this repository."""
    source = checkout(tmp_path)
    with bazel(QOLA / "examples/hip") as nested:
        for name in ("HIP-Basic", "Applications", "Common"):
            shutil.copytree(source / name, nested.workspace / name)
        nested.write("BUILD.bazel", rocm_examples.build_file())
        targets = [f"//:{name}" for name in rocm_examples.NAMES]
        options = ("--@qola//rules/hip:run=emulated", "--keep_going", "--test_output=errors")
        result = nested.run("test", *options, *targets, check=False)
    passed = re.findall(r"^//:(\w+) .*PASSED", result.stdout, re.M)
    assert sorted(passed) == sorted(rocm_examples.NAMES), result.stdout + result.stderr
