"""Records, signatures and archives of prebuilt bundles."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import minisign
import pytest

from qola.cli import main
from qola.prebuilt import signature
from qola.prebuilt.archive import pack_bundle, unpack
from qola.prebuilt.key import Key
from qola.prebuilt.record import Archive, Record, parse
from qola_base.errors import PrebuiltError, QolaError
from tests.support.folders import write

KEY = Key("left", "a", {}, {}, ("gfx950",), {}, {"rocm_version": "7.2.4", "x": "1"}, {})
ARCHIVE = Archive(10, "a" * 64, "b" * 64, 20)
NAME = f"{KEY.text}.manifest.json"
SECRET = (
    "RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAQnXC0JuC6/A7xvr1LxZtva07"
    "hU5gZDca+3Pnk2JOy+fwJQa4491B6X01GeYyIfI9mBoQnIl7aO7ARtz1p/bD2vQc4ctZ7plZAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAA="
)
"""A secret key, created by `minisign -G -W` only for this test."""
OURS = b"""\
untrusted comment: signature from minisign secret key
RURCdcLQm4Lr8LcXUjF5TRaCtu38lXkTy66ZhFC6qQnieORVogGGMgqtAkV/c14leJP7o28N+5vV18zAYEfWtRXWUUx080x42QM=
trusted comment: file:x.manifest.json
bYNqQccCA9lnWuJuySwpIj0djaR5aURWe3tGbTpXnbDuXma2gLvkcYG9/898zA/gOHgWLbYudGsj9vfC/khyBA==
"""


def test_record_round_trip() -> None:
    """Prevents: records differ between runs, or lose fields when parsed."""
    record = Record(KEY, ARCHIVE)
    text = record.to_json()
    assert parse(text.encode(), KEY, "here") == record
    assert Record(KEY, ARCHIVE).to_json() == text
    assert json.loads(text)["archive"]["name"] == f"{KEY.text}.tar.gz"


def test_record_with_other_inputs() -> None:
    """Prevents: qola accepts a record whose digest does not match its inputs."""
    content = json.loads(Record(KEY, ARCHIVE).to_json())
    data = json.dumps({**content, "inputs": {"schema": 1}}).encode()
    with pytest.raises(PrebuiltError, match="where that of its inputs is"):
        parse(data, KEY, "here")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """The path prefix of a key pair."""
    signature.write_pair(tmp_path / "k", "")
    return tmp_path / "k"


def public_key(keys: Path) -> minisign.PublicKey:
    """Return the public key of a pair."""
    return signature.read_public_key(str(keys.with_suffix(".pub")), Path("/"))


def make_signature(keys: Path, data: bytes, name: str = NAME) -> bytes:
    """Sign data with the secret key of a pair."""
    return signature.sign(data, signature.read_secret_key(keys.with_suffix(".key"), ""), name)


def verify_signature(data: bytes, signature_data: bytes | None, key: minisign.PublicKey) -> None:
    """Verify a signature of the record."""
    signature.verify(data, signature_data, key, "there", signature.trusted_comment(NAME))


def test_signature(keys: Path) -> None:
    """Prevents: qola rejects valid signatures, or signs a record differently each time."""
    verify_signature(b"data", make_signature(keys, b"data"), public_key(keys))
    assert make_signature(keys, b"data") == make_signature(keys, b"data")
    text = keys.with_suffix(".pub").read_text().splitlines()[1]
    verify_signature(
        b"data", make_signature(keys, b"data"), signature.read_public_key(text, Path("/"))
    )


@pytest.mark.parametrize("read", [signature.read_public_key, signature.read_secret_key])
def test_key_that_is_a_special_file(tmp_path: Path, read: Callable[..., object]) -> None:
    """Prevents: a command blocks on a FIFO, or reads a device until memory is exhausted."""
    os.mkfifo(tmp_path / "fifo")
    for name in (str(tmp_path / "fifo"), "/dev/zero"):
        arguments = (name, tmp_path) if read is signature.read_public_key else (Path(name), "")
        with pytest.raises(QolaError, match="not a regular file"):
            read(*arguments)


@pytest.mark.parametrize("prefix", ["", "/", "."])
def test_keys_without_a_name(
    prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a prefix that is only a directory causes a traceback."""
    assert main(["keygen", prefix], {}, directory=tmp_path) == 2
    assert "PREFIX has to end in a name" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_wrong_signatures(keys: Path, tmp_path: Path) -> None:
    """Prevents: qola installs a bundle that another person signed, changed or moved."""
    good = make_signature(keys, b"data")
    signature.write_pair(tmp_path / "foreign", "")
    lines = good.splitlines()
    comment = b"\n".join([*lines[:2], lines[2].replace(b"left", b"lift"), lines[3]])
    wrong = {
        "none": None,
        "empty": b"",
        "page": b"<html>\n\n\n\n",
        "of other data": make_signature(keys, b"date"),
        "of another file": make_signature(keys, b"data", "other.manifest.json"),
        "by another key": make_signature(tmp_path / "foreign", b"data"),
        "with another comment": comment,
    }
    for case, data in wrong.items():
        with pytest.raises(PrebuiltError) as caught:
            verify_signature(b"data", data, public_key(keys))
        assert "there.minisig" in str(caught.value), case
        assert signature.shown(public_key(keys)) in str(caught.value), case


def test_minisign_format(tmp_path: Path) -> None:
    """Prevents: minisign cannot verify qola's signatures, or the reverse."""
    # Key and signature from minisign's manual (content of the file test: "test").
    key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"
    theirs = (
        b"untrusted comment: signature from minisign secret key\n"
        b"RWQf6LRCGA9i59SLOFxz6NxvASXDJeRtuZykwQepbDEGt87ig1BNpWaVWuNrm73YiIiJbq71Wi+dP9eKL8OC351"
        b"vwIasSSbXxwA=\n"
        b"trusted comment: timestamp:1555779966\tfile:test\n"
        b"QtKMXWyYcwdpZAlPF7tE2ENJkRd1ujvKjlj1m9RtHTBnZPa5WKU5uWRs5GoP5M/VqE81QFuMKI5k/SfNQUaOAA=="
        b"\n"
    )
    known = signature.read_public_key(key, Path("/"))
    comment = "timestamp:1555779966\tfile:test"
    signature.verify(b"test", theirs, known, "there", comment)
    with pytest.raises(PrebuiltError):
        signature.verify(b"tests", theirs, known, "there", comment)
    # Ed25519 is deterministic; minisign 0.11 has verified this signature.
    (tmp_path / "m.key").write_text(f"untrusted comment: minisign secret key\n{SECRET}\n")
    secret = signature.read_secret_key(tmp_path / "m.key", "")
    assert signature.sign(b"data", secret, "x.manifest.json") == OURS


def test_keys(tmp_path: Path) -> None:
    """Prevents: other users read a secret key, qola overwrites it, or any password opens it."""
    signature.write_pair(tmp_path / "k", "correct horse")
    secret = tmp_path / "k.key"
    assert secret.stat().st_mode & 0o777 == 0o600
    with pytest.raises(QolaError, match="is there already"):
        signature.write_pair(tmp_path / "k", "")
    assert not signature.read_secret_key(secret, "correct horse").is_encrypted()
    with pytest.raises(QolaError, match="QOLA_PREBUILT_PASSWORD"):
        signature.read_secret_key(secret, "wrong horse")
    with pytest.raises(QolaError, match="begin with RW"):
        signature.read_public_key("RWnokey", tmp_path)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A directory with the files of a bundle."""
    names = ("lib/a.so", "bin/qola-kernels", "include/ck/b.hpp", "manifest.json")
    return write(tmp_path / "bundle", {name: name for name in names})


def test_packed_and_unpacked(bundle: Path, tmp_path: Path) -> None:
    """Prevents: archives depend on time or path, or lose files or executable bits."""
    make_archive = pack_bundle(bundle, tmp_path / "a.tar.gz")
    (bundle / "lib/a.so").touch()
    (tmp_path / "moved").mkdir()
    moved = bundle.rename(tmp_path / "moved" / "b")
    assert pack_bundle(moved, tmp_path / "b.tar.gz") == make_archive
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    found = unpack(tmp_path / "a.tar.gz", tmp_path / "out", make_archive.unpacked_size, "here")
    assert sorted(found) == ["bin/qola-kernels", "include/ck/b.hpp", "lib/a.so", "manifest.json"]
    assert {name: path.read_text() for name, path in found.items()} == {n: n for n in found}
    assert found["bin/qola-kernels"].stat().st_mode & 0o777 == 0o755
    assert found["manifest.json"].stat().st_mode & 0o777 == 0o644
    # The system's tar can read the archive.
    listed = subprocess.run(["tar", "tzf", tmp_path / "a.tar.gz"], capture_output=True, check=True)
    assert b"./lib/a.so" in listed.stdout
