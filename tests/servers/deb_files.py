"""Debian packages that tests create."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import tarfile
from collections.abc import Callable, Mapping

_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".xz": lzma.compress,
    ".gz": lambda data: gzip.compress(data, mtime=0),
    "": bytes,
}


def sha256(data: bytes) -> str:
    """Return the hexadecimal digest of bytes."""
    return hashlib.sha256(data).hexdigest()


def tar(files: Mapping[str, str], links: Mapping[str, str]) -> bytes:
    """Return a tar archive without times."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o644
            archive.addfile(info, io.BytesIO(text.encode("utf-8")))
        for name, target in links.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    return raw.getvalue()


def deb(
    files: Mapping[str, str],
    suffix: str = ".xz",
    control: str = "Package: x\n",
    links: Mapping[str, str] | None = None,
) -> bytes:
    """Return a Debian package: an ar archive of three members."""
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": _PACKERS[".gz"](tar({"./control": control}, {})),
        f"data.tar{suffix}": _PACKERS[suffix](tar(files, links or {})),
    }
    out = b"!<arch>\n"
    for name, data in members.items():
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode("ascii")
        out += data + b"\n" * (len(data) % 2)
    return out
