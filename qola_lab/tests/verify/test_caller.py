"""Generated code that calls C++ entry points."""

from __future__ import annotations

from qola.plan.model import EntryPoint
from qola_lab.launch.__main__ import caller_source
from tests.support.plans import module


def test_optional_parameters_are_passed_if_present() -> None:
    """Prevents: an option of AITER, such as v3's rounding, that callers cannot set by name."""
    entries = (
        EntryPoint("mha_fwd", 5, ("args", "s", "q_dtype_str"), ("how", "check")),
        EntryPoint("mha_fwd_workspace_size", 1, ("args",)),
    )
    source = caller_source(module(entries=entries))
    assert '#include "qola_mha_fwd.h"' in source
    assert "workspace" not in source
    text = " ".join(source.split())
    values = [f'qola_caller::Parameter(values, "{n}")' for n in ("q_dtype_str", "how", "check")]
    for count in (2, 1, 0):
        names = ", ".join(('"how"', '"check"')[:count])
        condition = f"if(values.has({names})) " if count else ""
        call = ", ".join(["args", "ck_tile::stream_config{nullptr}", *values[: 1 + count]])
        statement = f"{condition}return QOLA_NS(mha_fwd)({call});"
        assert statement in text
        text = text.partition(statement)[2]
