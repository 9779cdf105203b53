"""qola fetch, publish and keygen where a disk is full, has no inodes left, or is read-only."""

from __future__ import annotations

import pytest

from qola.cli import main
from qola.errors import BundleError
from qola.prebuilt.archive import pack_bundle
from qola.prebuilt.publish import publish
from qola.prebuilt.sources import DirectorySource
from tests.conftest import Disk
from tests.prebuilt.users import LIBRARY_FILE, User
from tests.support.folders import read, write

FULL = "size=16k"
NO_INODES = "nr_inodes=6"


@pytest.mark.parametrize("options", [FULL, NO_INODES])
def test_no_room_for_what_is_installed(user: User, disk: Disk, options: str) -> None:
    """Prevents: half a bundle, and a traceback, on a full disk."""
    user.output = disk(options) / "out"
    said = user.run("fetch", "published", f"--output-dir={user.output}", code=1)[1]
    assert f"error: {user.output}/" in said
    assert "No space left on device" in said
    assert "df -h" in said
    assert "--output-dir" in said
    assert not user.output.exists()


def test_no_room_beside_an_earlier_bundle(user: User, disk: Disk) -> None:
    """Prevents: files of two bundles in one directory, where the second has no room."""
    user.output = disk("size=64k") / "out"
    words = f"--output-dir={user.output}"
    user.run("fetch", "published", words)
    before = read(user.output)
    write(user.directory / "other", {"configs/a": "1", LIBRARY_FILE: bytes(40_000)})
    user.put("other", overwrite=True)
    (user.directory / "cache").rename(user.directory / "gone")
    assert "No space left" in user.run("fetch", "published", words, code=1)[1]
    assert read(user.output) == before
    assert not (user.output / "configs").exists()


@pytest.mark.parametrize("options", [FULL, "nr_inodes=5"])
def test_no_room_for_downloads(user: User, disk: Disk, options: str) -> None:
    """Prevents: a download that stays half there, or a full disk taken for a server's fault."""
    place = disk(options)
    user.environ["QOLA_CACHE_HOME"] = str(place / "cache")
    server = user.serve()
    said = user.fetch(server.url, "published", code=1)
    assert f"error: {place}/cache" in said
    assert "No space left on device" in said
    assert "QOLA_CACHE_HOME" in said
    assert not [name for name in read(place) if name.endswith((".arrived", ".gz", ".so"))]
    assert not user.output.exists()
    # Room again.
    disk("size=1m,nr_inodes=100")
    user.fetch(server.url)


@pytest.mark.parametrize("command", ["fetch", "build"])
@pytest.mark.parametrize("what", ["out", "cache"])
def test_read_only(user: User, disk: Disk, command: str, what: str) -> None:
    """Prevents: a traceback for a directory that nobody may write to."""
    place = disk("ro")
    user.environ["QOLA_CACHE_HOME"] = str((place if what == "cache" else user.directory) / "c")
    output = (place if what == "out" else user.directory) / "o"
    said = user.run(command, "published", f"--output-dir={output}", code=1)[1]
    assert f"error: {place}/" in said
    assert "Read-only file system" in said
    assert "make it writable for this user; or another directory: " in said


@pytest.mark.parametrize("options", [FULL, NO_INODES, "ro"])
def test_no_room_to_publish(user: User, disk: Disk, options: str) -> None:
    """Prevents: a record without its archive, or half an archive, that everybody then fetches."""
    archive = user.directory / "archive.tar.gz"
    packed = pack_bundle(user.directory / "bundle", archive)
    place = disk(options)
    if options == NO_INODES:
        write(place, dict.fromkeys("abcd", ""))
    there = read(place)
    with pytest.raises(BundleError, match="the bundle is not published") as caught:
        publish(user.key, archive, packed, DirectorySource(place), None, overwrite=False)
    assert caught.value.exit_code == 8
    assert f"error: {place}/" in str(caught.value)
    assert "another directory" in str(caught.value)
    assert user.record not in read(place)
    # Whole, or not there.
    found = {name: data for name, data in read(place).items() if name not in there}
    assert set(found.values()) <= set(read(user.published).values())


@pytest.mark.parametrize("options", ["nr_inodes=2", "ro"])
def test_no_room_for_keys(user: User, disk: Disk, options: str) -> None:
    """Prevents: a secret key that is half there, and in the way of a whole one."""
    place = disk(options)
    user.capsys.readouterr()
    assert main(["keygen", str(place / "k")], user.environ, directory=user.directory) == 1
    said = user.capsys.readouterr().err
    assert f"error: {place}/" in said
    assert not read(place)
