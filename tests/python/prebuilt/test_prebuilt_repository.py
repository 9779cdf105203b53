"""What @qola_prebuilt_<name> is, where its libraries are built and where they are fetched."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from qola.build.setup import BuildRequest, choose_all
from qola.prebuilt.repository_rule import main
from tests.python.prebuilt.users import LIBRARY, MANIFEST, User

TRITON = '[[triton]]\nkernels = ["attention_forward"]\n'
BUNDLE = """\
qola_bundle(
    name = "bundle",
    libraries = [{libraries}],
    triton = "@qola_left//:triton_library",
)
"""


def repository(user: User, manifest: str, look_up: str) -> str:
    """Return the BUILD file of a manifest's repository, with what is published as its source."""
    file = user.directory / "left.toml"
    file.write_text(manifest)
    output = user.directory / look_up
    output.mkdir(exist_ok=True)
    rocm = user.directory / "rocm.json"
    rocm.write_text('{"origin": "pinned"}')
    request = BuildRequest(manifest_path=file, archs=("gfx950",))
    source = choose_all(request, user.environ, print).aiter.source
    pin = json.dumps({"kind": "wheel", **asdict(source)})
    options = {"manifest": file, "display": file.name, "repository": "qola_left", "aiter": pin}
    options |= {"rocm": rocm, "folder": user.directory, "place": "qola.prebuilt"}
    options |= {"url": user.published, "look-up": look_up, "output": output}
    assert main([f"--{name}={value}" for name, value in options.items()]) == 0
    return (output / "BUILD.bazel").read_text()


def test_kernels_in_triton_are_built(user: User) -> None:
    """Prevents: a bundle without kernels in Triton, from a source or built."""
    for look_up in ("yes", "no"):
        user.capsys.readouterr()
        built = repository(user, MANIFEST + TRITON, look_up)
        assert BUNDLE.format(libraries='":libmha_fwd"') in built
        assert '@qola_left//:libmha_fwd"' in built
        said = user.capsys.readouterr().err
        assert ("no prebuilt bundle has kernels in Triton" in said) == (look_up == "yes")
        alone = repository(user, TRITON, look_up)
        assert alone.endswith(BUNDLE.format(libraries=""))


def test_what_is_published(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: libraries that are built where a source has them."""
    monkeypatch.setenv("QOLA_CACHE_HOME", str(user.directory / "cache"))
    fetched = repository(user, MANIFEST, "yes")
    assert f"prebuilt {user.key.text} from {user.published}" in user.capsys.readouterr().err
    assert 'library = "prebuilt/lib/left_libmha_fwd.so"' in fetched
    assert (user.directory / "yes/prebuilt/lib/left_libmha_fwd.so").read_bytes() == LIBRARY


def test_without_kernels_in_triton(user: User) -> None:
    """Prevents: a bundle that wants a library which its manifest does not have."""
    built = repository(user, MANIFEST, "no")
    assert 'libraries = [":libmha_fwd"]' in built
    assert "triton" not in built
