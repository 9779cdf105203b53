"""BuildSpec: the wire format between `qola build` and the repository rule."""

from __future__ import annotations

import json

import pytest

from qola.errors import ManifestError
from qola.plan.spec import BuildSpec


def test_a_spec_is_read_as_it_was_written() -> None:
    """Prevents: an option that Bazel plans without."""
    spec = BuildSpec(("gfx942", "gfx950"), "pybind", "linked", override_aiter_commit=True)
    assert BuildSpec.from_json(spec.to_json(), "m.toml") == spec
    assert BuildSpec.from_json(BuildSpec().to_json(), "m.toml") == BuildSpec()


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"archs": "gfx950"}, ".archs: 'gfx950', expected a list"),
        ({"mode": "torch"}, ".mode: 'torch', expected"),
        ({"require": "all"}, ".require: 'all', expected 'opaque' or"),
    ],
)
def test_a_wrong_spec_is_refused(change: dict[str, object], found: str) -> None:
    """Prevents: a traceback in Bazel, or a plan with another spec."""
    text = json.dumps({**json.loads(BuildSpec().to_json()), **change})
    with pytest.raises(ManifestError) as error:
        BuildSpec.from_json(text, "m.toml")
    (finding,) = error.value.findings
    assert (finding.place, finding.found.startswith(found)) == ("spec of m.toml", True)
