"""Which edits of qola itself make Bazel plan a manifest anew."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.e2e.nested_bazel import LEFT, QOLA, library

# What Bazel leaves in a checkout leads to all that it ever built.
_NOT_OURS = shutil.ignore_patterns("bazel-*", ".git", "__pycache__")


def test_an_edit_plans_anew_only_where_it_matters(tmp_path: Path) -> None:
    """Prevents: a comment in the command line that plans all, generators that nobody watches."""
    qola = tmp_path / "qola"
    shutil.copytree(QOLA, qola, ignore=_NOT_OURS)
    with library(qola, tmp_path / "nested") as nested:
        nested.write("it.toml", LEFT)

        def planned_at(*edited: str) -> int:
            for name in edited:
                with (qola / name).open("a", encoding="utf-8") as file:
                    file.write("# edited\n")
            nested.run("fetch", "--repo=@qola_it")
            return nested.plan_file().stat().st_mtime_ns

        first = planned_at()
        assert (
            planned_at("qola/cli/plan.py", "qola/build/setup.py", "qola/prebuilt/key.py") == first
        )
        assert planned_at("qola/codegen/ck/driver.py") > first
