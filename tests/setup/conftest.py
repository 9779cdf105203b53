"""Fixtures for tests that fetch packages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.http_files import Files, serving
from tests.setup.machines import PACKAGES, SNAPSHOT, Machine, copy_bazelw, lock, replace


@pytest.fixture
def server() -> Iterator[Files]:
    """A server without files."""
    with serving(Files()) as files:
        yield files


@pytest.fixture
def machine(server: Files, tmp_path: Path) -> Machine:
    """A machine whose snapshot archive is the server's /snapshot, without apt sources."""
    instance = Machine(tmp_path, server, "/usr/bin:/bin:/usr/sbin:/sbin", {})
    copy_bazelw(instance.workspace)
    (instance.workspace / "third_party/debian").mkdir(parents=True)
    replace(instance.workspace / "tools/setup/packages.sh", SNAPSHOT, f"{server.url}/snapshot")
    (instance.workspace / "third_party/debian/packages.lock").write_text(lock(PACKAGES))
    none = tmp_path / "none"
    none.mkdir()
    (tmp_path / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{tmp_path}/sources.list";\nDir::Etc::sourceparts "{none}";\n'
        f'Dir::Etc::main "/dev/null";\nDir::Etc::parts "{none}";\n'
    )
    instance.sources()
    return instance
