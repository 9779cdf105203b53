"""ROCm/QoLA's Python interface, whose arguments become a request."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

import qola
from qola import build_tools
from qola_base.errors import QolaError
from tests.support.folders import write

MANIFEST = """\
[build]
architectures = ["gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
"""


def test_arguments_of_rocm_qola() -> None:
    """Prevents: positional or named arguments of ROCm/QoLA's callers that are refused."""
    assert [*inspect.signature(build_tools.build_kernels).parameters] == [
        *("manifest_path", "output_dir", "aiter_root", "archs", "verbose", "build_mode"),
        *("aiter_commit", "patches_dir", "skip_checkout", "groups"),
    ]
    assert [*inspect.signature(build_tools.checkout_aiter).parameters] == [
        *("manifest_path", "aiter_root", "aiter_commit", "patches_dir", "groups")
    ]


def test_names_of_the_package() -> None:
    """Prevents: an example of the guide whose import fails."""
    for name in qola.__all__:
        assert getattr(qola, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'kernels'"):
        _ = qola.kernels


@pytest.mark.parametrize(
    ("arguments", "environ", "words"),
    [
        ({"archs": ["gfx95"]}, {}, "found     gfx95\n"),
        ({"archs": ["gfx942;native"]}, {}, "found     gfx942, native\n"),
        ({"groups": ["other"]}, {}, "none with other"),
        ({"patches_dir": "nowhere"}, {}, "nowhere: no such directory"),
        ({"aiter_root": "tree", "aiter_commit": "v1"}, {}, "v1"),
        ({"aiter_root": "tree", "skip_checkout": True}, {}, "no aiter/jit"),
        ({}, {"NVTE_CK_JIT": "maybe"}, "error: NVTE_CK_JIT"),
    ],
)
def test_arguments_reach_the_build(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, Any],
    environ: dict[str, str],
    words: str,
) -> None:
    """Prevents: an argument of ROCm/QoLA's callers that has no effect."""
    write(tmp_path, {"m.toml": MANIFEST, "tree/README": "not AITER"})
    monkeypatch.chdir(tmp_path)
    # An argument without effect ends at the missing Bazel.
    everything = {"QOLA_BAZEL": "no-such-bazel", "QOLA_CACHE_HOME": str(tmp_path / "cache")}
    for name, value in {**everything, **environ}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(QolaError) as caught:
        build_tools.build_kernels("m.toml", "out", **arguments)
    assert words in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_fmha_has_its_public_name() -> None:
    """Prevents: `from qola import fmha` of the guide fails, or has another module than qola_lab."""
    public = importlib.import_module("qola.fmha")
    assert public is importlib.import_module("qola_lab.fmha")
    assert callable(public.make_problem)
