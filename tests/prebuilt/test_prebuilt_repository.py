"""The repository @qola_prebuilt_<name>, with built and with fetched libraries."""

from __future__ import annotations

import pytest

from tests.prebuilt.users import LIBRARY, MANIFEST, User, repository

TRITON = '[[triton]]\nkernels = ["attention_forward"]\n'
BUNDLE = """\
qola_bundle(
    name = "bundle",
    libraries = [{libraries}],
    triton = "@qola_left//:triton_library",
)
"""


def test_kernels_in_triton_are_built(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a bundle of built libraries lacks the kernels in Triton."""
    monkeypatch.setenv("QOLA_CACHE_HOME", str(user.directory / "cache"))
    for look_up in ("yes", "no"):
        built = repository(user, MANIFEST + TRITON, look_up)
        assert BUNDLE.format(libraries='":libmha_fwd"') in built
        assert '@qola_left//:libmha_fwd"' in built
        only_triton = repository(user, f"[build]\narchitectures = ['gfx950']\n{TRITON}", look_up)
        assert only_triton.endswith(BUNDLE.format(libraries=""))


def test_published_bundle_is_fetched(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: Bazel builds libraries that a source has."""
    monkeypatch.setenv("QOLA_CACHE_HOME", str(user.directory / "cache"))
    fetched = repository(user, MANIFEST, "yes")
    assert f"prebuilt {user.key.text} from {user.published}" in user.capsys.readouterr().err
    assert 'library = "prebuilt/lib/left_libmha_fwd.so"' in fetched
    assert (user.directory / "yes/prebuilt/lib/left_libmha_fwd.so").read_bytes() == LIBRARY


def test_without_kernels_in_triton(user: User) -> None:
    """Prevents: a bundle requires a Triton library that its manifest does not have."""
    built = repository(user, MANIFEST, "no")
    assert 'libraries = [":libmha_fwd"]' in built
    assert "triton" not in built
