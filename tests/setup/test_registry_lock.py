"""third_party/bazel/MODULE.bazel.lock: what the files of the Bazel Central Registry are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tools.setup import make_registry

ROOT = Path(__file__).absolute().parents[2]
REGISTRY = "https://bcr.bazel.build/"


def lock() -> dict[str, Any]:
    """Return what the lock says."""
    found: dict[str, Any] = json.loads(
        (ROOT / "third_party/bazel/MODULE.bazel.lock").read_text("utf-8")
    )
    return found


def test_modules_that_are_asked_for_are_locked() -> None:
    """Prevents: another version in MODULE.bazel, and a lock that knows nothing of its files."""
    hashes = lock()["registryFileHashes"]
    text = (ROOT / "MODULE.bazel").read_text("utf-8")
    own = re.findall(r'local_path_override\(\n    module_name = "(\w+)"', text)
    assert "qola_compile" in own
    asked = [(name, version) for name, version in make_registry.dependencies(text)]
    assert len(asked) > 1
    for name, version in asked:
        if name in own:
            continue
        assert f"{REGISTRY}modules/{name}/{version}/MODULE.bazel" in hashes


def test_one_source_for_each_module() -> None:
    """Prevents: a lock put together by hand that resolves to nothing, or to two versions."""
    hashes = lock()["registryFileHashes"]
    path = re.compile(rf"{REGISTRY}modules/([^/]+)/([^/]+)/(MODULE\.bazel|source\.json)")
    found = [match.groups() for url in hashes if (match := path.fullmatch(url))]
    assert len(found) == len(hashes) - 1
    assert f"{REGISTRY}bazel_registry.json" in hashes
    sources = [key[:2] for key in found if key[2] == "source.json"]
    assert sorted({name for name, *_ in found}) == sorted(name for name, _ in sources)
    assert set(sources) <= {key[:2] for key in found if key[2] == "MODULE.bazel"}
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in hashes.values())


def test_it_is_of_the_pinned_bazel_and_in_use() -> None:
    """Prevents: a lock that Bazel passes over and writes anew, since it is another version's."""
    # BazelLockFileValue.LOCK_FILE_VERSION of that Bazel.
    assert (ROOT / ".bazelversion").read_text().strip() == "7.7.1"
    assert lock()["lockFileVersion"] == 13
    # Bazel's default is to check what is locked, and to add what is not.
    assert "lockfile_mode" not in (ROOT / ".bazelrc").read_text("utf-8")
    # Debian's modules are others, under the same names and versions, and its Bazel writes no lock.
    rules = (ROOT / "tools/setup/tree.sh").read_text("utf-8")
    assert "--registry=file:///usr/share/qola/registry --lockfile_mode=off" in rules
