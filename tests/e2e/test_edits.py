"""Edits of qola's sources: which ones make Bazel plan a manifest again."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.nested_bazel import LEFT, copy_checkout, library


def test_only_edits_of_the_planner_plan_again(tmp_path: Path) -> None:
    """Prevents: an edit of the command line plans again, or one of a generator does not."""
    qola = tmp_path / "qola"
    copy_checkout(qola)
    with library(qola, tmp_path / "nested") as nested:
        nested.write("it.toml", LEFT)
        times = [0]

        def edit_and_plan(*edited: str) -> bool:
            """Edit files; return whether Bazel plans again, and says so without a terminal."""
            for name in edited:
                with (qola / name).open("a", encoding="utf-8") as file:
                    file.write("# edited\n")
            shown = nested.run("fetch", "--repo=@qola_it").stderr
            times.append(nested.plan_file().stat().st_mtime_ns)
            planned = times[-1] > times[-2]
            assert ("qola: planning it.toml" in shown) == planned
            return planned

        assert edit_and_plan()
        assert not edit_and_plan("qola/cli/plan.py", "qola/build/setup.py", "qola/prebuilt/key.py")
        assert edit_and_plan("qola/codegen/ck/driver.py")
