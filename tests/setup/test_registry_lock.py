"""third_party/bazel/MODULE.bazel.lock: digests of files of the Bazel Central Registry."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tools.setup import make_registry

ROOT = Path(__file__).absolute().parents[2]
REGISTRY = "https://bcr.bazel.build/"


def lock() -> dict[str, Any]:
    """Return the content of the lock."""
    content: dict[str, Any] = json.loads(
        (ROOT / "third_party/bazel/MODULE.bazel.lock").read_text("utf-8")
    )
    return content


def test_requested_modules_are_locked() -> None:
    """Prevents: the lock has no digests for a version in MODULE.bazel."""
    hashes = lock()["registryFileHashes"]
    text = (ROOT / "MODULE.bazel").read_text("utf-8")
    overridden = re.findall(r'local_path_override\(\n    module_name = "(\w+)"', text)
    assert "rules_hip" in overridden
    requested = [(name, version) for name, version in make_registry.dependencies(text)]
    assert len(requested) > 1
    for name, version in requested:
        if name in overridden:
            continue
        assert f"{REGISTRY}modules/{name}/{version}/MODULE.bazel" in hashes


def test_one_source_for_each_module() -> None:
    """Prevents: the lock resolves a module to no version, or to two versions."""
    hashes = lock()["registryFileHashes"]
    path = re.compile(rf"{REGISTRY}modules/([^/]+)/([^/]+)/(MODULE\.bazel|source\.json)")
    keys = [match.groups() for url in hashes if (match := path.fullmatch(url))]
    assert len(keys) == len(hashes) - 1
    assert f"{REGISTRY}bazel_registry.json" in hashes
    sources = [key[:2] for key in keys if key[2] == "source.json"]
    assert sorted({name for name, *_ in keys}) == sorted(name for name, _ in sources)
    assert set(sources) <= {key[:2] for key in keys if key[2] == "MODULE.bazel"}
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in hashes.values())


def test_the_lock_has_the_format_of_the_pinned_bazel() -> None:
    """Prevents: Bazel ignores and rewrites the lock because its format is another version's."""
    # BazelLockFileValue.LOCK_FILE_VERSION of this Bazel version.
    assert (ROOT / ".bazelversion").read_text().strip() == "7.7.1"
    assert lock()["lockFileVersion"] == 13
    # By default, Bazel checks locked files, and adds missing files to the lock.
    assert "lockfile_mode" not in (ROOT / ".bazelrc").read_text("utf-8")
    # Debian's modules have equal names and versions but other files; its Bazel writes no lock.
    rules = (ROOT / "tools/setup/tree.sh").read_text("utf-8")
    assert "--registry=file:///usr/share/qola/registry --lockfile_mode=off" in rules
