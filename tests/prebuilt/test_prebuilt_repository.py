"""The repository @qola_prebuilt_<name>, and prebuilt bundles with kernels in Triton."""

from __future__ import annotations

import json
import shutil

import pytest

from qola.build.setup import resolve_build
from qola.plan.spec import BuildRequest
from qola.prebuilt import fetch
from qola.prebuilt.key import Key
from tests.prebuilt.users import LIBRARY, LIBRARY_FILE, MANIFEST, User, repository
from tests.support.folders import read, write

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


OWN_KERNEL = '[[triton]]\nkernels = ["mine"]\nfile = "kernels/mine.py"\n'
TRITON_FILES = {"lib/left_triton.so": LIBRARY, "lib/left_triton-gfx950.qpack": b"pack"}


def publish_triton_bundle(user: User) -> Key:
    """Write a manifest with a Triton kernel, and publish its bundle."""
    user.manifest(OWN_KERNEL)
    write(user.directory / "kernels", {"mine.py": "1"})
    record = json.loads((user.directory / "bundle/manifest.json").read_text())
    record["modules"].append({"name": "triton", "library": "lib/left_triton.so"})
    shutil.copytree(user.directory / "bundle", user.directory / "triton")
    content = {**TRITON_FILES, "manifest.json": json.dumps(record).encode()}
    write(user.directory / "triton", content)
    request = BuildRequest(manifest_path=user.directory / "left.toml")
    build = resolve_build(request, user.environ)
    key = fetch.key_of(build, (), user.environ)
    user.put("triton", key=key)
    return key


def test_packs_are_installed_with_the_bundle(user: User) -> None:
    """Prevents: a Triton library lacks its packs, or has packs of an earlier build."""
    key = publish_triton_bundle(user)
    assert key.text != user.key.text
    write(user.output, {"lib/left_triton-gfx942.qpack": "of an earlier build"})
    out, err = user.run("build", "published")
    assert f"prebuilt {key.text} from {user.published}" in err
    assert "Build complete: 2/2 succeeded, 0 failed." in out
    found = read(user.output)
    assert {name: found.get(name) for name in TRITON_FILES} == TRITON_FILES
    assert "lib/left_triton-gfx942.qpack" not in found
    record = json.loads(found["manifest.json"])
    assert [module["md_name"] for module in record["modules"]] == ["left_libmha_fwd", "left_triton"]


def test_edited_kernel_is_a_miss(user: User) -> None:
    """Prevents: qola installs code objects of a kernel before its last edit."""
    publish_triton_bundle(user)
    (user.directory / "kernels/mine.py").write_text("2")
    user.fetch("published", code=9)
    (user.directory / "kernels/mine.py").unlink()
    assert "[[triton]].file" in user.fetch("published", code=2)


def test_bundle_without_triton_kernels(user: User) -> None:
    """Prevents: qola accepts a bundle that lacks the Triton kernels of the manifest."""
    key = publish_triton_bundle(user)
    user.put("bundle", key=key, overwrite=True)
    assert "no library of triton" in user.fetch("published", code=10)


def test_fetched_kernels_in_triton(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: Bazel compiles kernels that a source has, or does not watch their files."""
    monkeypatch.setenv("QOLA_CACHE_HOME", str(user.directory / "cache"))
    key = publish_triton_bundle(user)
    fetched = repository(user, MANIFEST + OWN_KERNEL, "yes")
    assert f"prebuilt {key.text} from {user.published}" in user.capsys.readouterr().err
    assert f'library = "prebuilt/{LIBRARY_FILE}"' in fetched
    files = user.directory / "yes"
    assert (files / "prebuilt/lib/left_triton-gfx950.qpack").read_bytes() == b"pack"
    assert (files / "triton_files.txt").read_text() == "kernels/mine.py\n"
