"""qola fetch, publish and keygen on a disk that is full, without inodes or read-only."""

from __future__ import annotations

import pytest

from conftest import Disk
from qola.cli import main
from qola.prebuilt.archive import pack_bundle
from qola.prebuilt.publish import publish
from qola.prebuilt.sources import DirectorySource
from qola_base.errors import BundleError
from tests.prebuilt.users import LIBRARY_FILE, User
from tests.support.folders import read, write

FULL = "size=16k"
NO_INODES = "nr_inodes=6"


@pytest.mark.parametrize("options", [FULL, NO_INODES])
def test_no_space_for_the_output(user: User, disk: Disk, options: str) -> None:
    """Prevents: a full disk causes a traceback and leaves a partial bundle."""
    user.output = disk(options) / "out"
    error_text = user.run("fetch", "published", f"--output-dir={user.output}", code=1)[1]
    assert f"error: {user.output}/" in error_text
    assert "No space left on device" in error_text
    assert "df -h" in error_text
    assert "--output-dir" in error_text
    assert not user.output.exists()


def test_no_space_keeps_an_earlier_bundle(user: User, disk: Disk) -> None:
    """Prevents: without space for a second bundle, a directory contains files of both."""
    user.output = disk("size=64k") / "out"
    option = f"--output-dir={user.output}"
    user.run("fetch", "published", option)
    before = read(user.output)
    write(user.directory / "other", {"configs/a": "1", LIBRARY_FILE: bytes(40_000)})
    user.put("other", overwrite=True)
    (user.directory / "cache").rename(user.directory / "gone")
    assert "No space left" in user.run("fetch", "published", option, code=1)[1]
    assert read(user.output) == before
    assert not (user.output / "configs").exists()


@pytest.mark.parametrize("options", [FULL, "nr_inodes=5"])
def test_no_space_for_downloads(user: User, disk: Disk, options: str) -> None:
    """Prevents: a partial download stays, or a full disk counts as an error of the server."""
    directory = disk(options)
    user.environ["QOLA_CACHE_HOME"] = str(directory / "cache")
    server = user.serve()
    error_text = user.fetch(server.url, "published", code=1)
    assert f"error: {directory}/cache" in error_text
    assert "No space left on device" in error_text
    assert "QOLA_CACHE_HOME" in error_text
    assert not [name for name in read(directory) if name.endswith((".arrived", ".gz", ".so"))]
    assert not user.output.exists()
    # Enough space.
    disk("size=1m,nr_inodes=100")
    user.fetch(server.url)


@pytest.mark.parametrize("command", ["fetch", "build"])
@pytest.mark.parametrize("directory", ["out", "cache"])
def test_read_only(user: User, disk: Disk, command: str, directory: str) -> None:
    """Prevents: a read-only directory causes a traceback."""
    disk_path = disk("ro")
    user.environ["QOLA_CACHE_HOME"] = str(
        (disk_path if directory == "cache" else user.directory) / "c"
    )
    output = (disk_path if directory == "out" else user.directory) / "o"
    error_text = user.run(command, "published", f"--output-dir={output}", code=1)[1]
    assert f"error: {disk_path}/" in error_text
    assert "Read-only file system" in error_text
    assert "make it writable for this user; or another directory: " in error_text


@pytest.mark.parametrize("options", [FULL, NO_INODES, "ro"])
def test_no_space_to_publish(user: User, disk: Disk, options: str) -> None:
    """Prevents: users fetch a record without its archive, or a partial archive."""
    archive = user.directory / "archive.tar.gz"
    packed_archive = pack_bundle(user.directory / "bundle", archive)
    directory = disk(options)
    if options == NO_INODES:
        write(directory, dict.fromkeys("abcd", ""))
    existing = read(directory)
    with pytest.raises(BundleError, match="the bundle is not published") as caught:
        publish(
            user.key, archive, packed_archive, DirectorySource(directory), None, overwrite=False
        )
    assert caught.value.exit_code == 8
    assert f"error: {directory}/" in str(caught.value)
    assert "another directory" in str(caught.value)
    assert user.record not in read(directory)
    # Each added file is complete.
    added = {name: data for name, data in read(directory).items() if name not in existing}
    assert set(added.values()) <= set(read(user.published).values())


@pytest.mark.parametrize("options", ["nr_inodes=2", "ro"])
def test_no_space_for_keys(user: User, disk: Disk, options: str) -> None:
    """Prevents: an incomplete secret key stays, and blocks the next keygen."""
    directory = disk(options)
    user.capsys.readouterr()
    assert main(["keygen", str(directory / "k")], user.environ, directory=user.directory) == 1
    error_text = user.capsys.readouterr().err
    assert f"error: {directory}/" in error_text
    assert not read(directory)
