"""Callers of C++ entry points, and programs on the fake HIP runtime."""

from __future__ import annotations

from pathlib import Path

from qola.launch.__main__ import caller_source
from qola.launch.fake_hip import FakeHip
from qola.plan.model import EntryPoint
from tests.support.plans import module


def test_parameters_with_a_default_are_passed_if_given() -> None:
    """Prevents: a choice of AITER's that no caller by name can make, such as how v3 rounds."""
    entries = (
        EntryPoint("mha_fwd", 5, ("args", "s", "q_dtype_str"), ("how", "check")),
        EntryPoint("mha_fwd_workspace_size", 1, ("args",)),
    )
    source = caller_source(module(entries=entries))
    assert '#include "qola_mha_fwd.h"' in source
    assert "workspace" not in source
    text = " ".join(source.split())
    given = [f'qola_caller::Parameter(values, "{n}")' for n in ("q_dtype_str", "how", "check")]
    for count in (2, 1, 0):
        names = ", ".join(('"how"', '"check"')[:count])
        condition = f"if(values.has({names})) " if count else ""
        call = ", ".join(["args", "ck_tile::stream_config{nullptr}", *given[: 1 + count]])
        whole = f"{condition}return QOLA_NS(mha_fwd)({call});"
        assert whole in text
        text = text.partition(whole)[2]


def test_a_process_without_an_end_is_killed(tmp_path: Path) -> None:
    """Prevents: a test that waits for a program forever."""
    hip = FakeHip(tmp_path / "libamdhip64.so.7", "gfx950", timeout=0.5)
    command = ["/bin/sh", "-c", "echo begun; while :; do :; done"]
    ended = hip.run(command, tmp_path / "log")
    assert (ended.returncode, ended.stdout) == (-9, "begun\n")
    assert "no end after 0.5 s" in ended.stderr
