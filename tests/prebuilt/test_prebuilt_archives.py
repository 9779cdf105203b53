"""Invalid archives: unpacking rejects them in bounded time and memory."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from qola.prebuilt.archive import pack_bundle, unpack
from qola_base.errors import BundleError, PrebuiltError
from tests.prebuilt.tars import END, entry, pax
from tests.support.folders import write

LIMIT = 1_000_000


FILE = entry("lib/a.so", b"content")
BAD = {
    "nothing": b"",
    "no end": FILE,
    "cut in a header": FILE + FILE[:300],
    "cut in a file": entry("lib/b.so", b"x" * 3000)[:1024],
    "a damaged second header": FILE + b"\1" + entry("lib/b.so")[1:] + END,
    "no header behind a file": FILE + b"junk" * 128 + END,
    "more behind its end": FILE + END + b"more",
    "a file behind its end": FILE + bytes(512) + entry("lib/b.so") + END,
    "a link": entry("a", kind=b"2") + END,
    "a hard link": entry("a", kind=b"1") + END,
    "a device": entry("a", kind=b"3") + END,
    "a FIFO": entry("a", kind=b"6") + END,
    "a sparse file": entry("a", kind=b"S") + END,
    "a kind of nobody's": entry("a", kind=b"Z") + END,
    "a negative size": entry("a", size=b"\xff" * 12) + END,
    "a size of all disks": entry("a", size=b"\x80" + b"\x7f" * 11) + END,
    "a size in words": entry("a", size=b"many".ljust(12, b"\0")) + END,
    "a directory with content": entry("a", b"x" * 10, kind=b"5") + END,
    "a file called as a directory": entry("a") + entry("a/b") + END,
    "a directory called as a file": entry("a/b") + entry("a") + END,
    "the same in other words": entry("lib/a") + entry("lib//./a") + END,
    "the top as a file": entry("./.", b"x") + END,
    "a file that ends like a directory": pax(("path", "lib/")) + entry("a", b"x") + END,
    "another encoding": entry(b"lib/\xff.so") + END,
    "another encoding in pax": pax(("path", b"lib/\xff.so")) + entry("a") + END,
    "another encoding, as pax says": pax(("hdrcharset", "BINARY"), ("path", b"\xff"))
    + entry("a")
    + END,
    "escapes": entry("lib/\x1b[2J") + END,
    "from right to left": entry("lib/a\u202eos.") + END,
    "a path from the top": pax(("path", "/etc/passwd")) + entry("a") + END,
    "a path with backslashes": entry("a\\b") + END,
    "a path through a directory": entry("lib/../../x") + END,
    "more than the record says": entry("a", b"x" * (LIMIT + 1)) + END,
    "a long name": pax(("path", "x" * 300)) + entry("a") + END,
    "no tar file": b"no tar file" * 100,
    "a path to above": entry("././@LongLink", b"a/../../b\0", kind=b"L") + entry("a") + END,
    "a long path": pax(("path", "a/b" * 400)) + entry("a") + END,
    "a deep path": pax(("path", "a/" * 400 + "b")) + entry("a") + END,
    "a path twice": pax(("path", "a")) + pax(("path", "b")) + entry("c") + END,
    "a path twice in one": pax(("path", "a"), ("path", "b")) + entry("c") + END,
    "a path for nobody": FILE + pax(("path", "a")) + END,
    "a path for all": pax(("path", "a"), kind=b"g") + entry("b") + END,
    "another size": pax(("size", "9999999999")) + entry("a") + END,
    "holes": pax(("GNU.sparse.major", "1"), ("GNU.sparse.name", "x")) + entry("a", b"1\n0\n") + END,
    "a pax header without length": entry("x", b"path=a\n", kind=b"x") + entry("a") + END,
    "a pax header of length 0": entry("x", b"0 path=a\n", kind=b"x") + entry("a") + END,
    "a pax header too long": entry("x", b"99 path=a\n", kind=b"x") + entry("a") + END,
    "a pax header too short": entry("x", b"5 path=a\n", kind=b"x") + entry("a") + END,
    "a pax header of digits": entry("x", b"9" * 5000 + b" a=b\n", kind=b"x") + entry("a") + END,
    "headers in headers": pax(("comment", "x")) * 2_000 + entry("a") + END,
    "directories without end": entry("a/", kind=b"5") * 30_000 + END,
    "zeros without end": FILE + bytes(300 << 20),
    "a large pax header": pax(("comment", b"x" * (60 << 20))) + entry("a") + END,
    "a large name": entry("L", b"x" * (60 << 20), kind=b"L") + entry("a") + END,
    "a large link": entry("K", b"x" * (60 << 20), kind=b"K") + entry("a") + END,
}

# Files that gzip cannot unpack.
UNREADABLE = {"no archive": b"no archive", "cut": gzip.compress(FILE + END)[:-30]}
# What an error says, of some kinds.
FOUND = {
    "a path from the top": "'/etc/passwd'",
    "a path through a directory": "'lib/../../x'",
    "a path with backslashes": "path",
    "a link": "a link",
    "a hard link": "a link",
    "a device": "a special file",
    "a FIFO": "a special file",
    "more than the record says": f"more than {LIMIT}",
    "the same in other words": "twice",
    "a long name": "names that a file can have",
    "a large pax header": "a header of",
    "no tar file": "a header that cannot be read",
    "no archive": "BadGzipFile",
    "cut": "EOFError",
}


@pytest.mark.parametrize("case", [*BAD, *UNREADABLE])
def test_invalid_archives_are_rejected(tmp_path: Path, case: str) -> None:
    """Prevents: an archive causes a traceback, writes outside files or uses gigabytes of memory."""
    packed = UNREADABLE[case] if case in UNREADABLE else gzip.compress(BAD[case], 1)
    (tmp_path / "bad.tar.gz").write_bytes(packed)
    tracemalloc.start()
    try:
        with pytest.raises(PrebuiltError) as caught:
            unpack(tmp_path / "bad.tar.gz", tmp_path / "in/out", LIMIT, "here")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
    assert str(caught.value).isascii()
    assert len(str(caught.value)) < 5000
    assert FOUND.get(case, "") in str(caught.value)
    assert not {path.name for path in tmp_path.iterdir()} - {"bad.tar.gz", "in"}
    assert {path.name for path in tmp_path.glob("in/*")} <= {"out"}


def test_formats_of_tar_programs(tmp_path: Path) -> None:
    """Prevents: qola rejects archives of other tar programs."""
    long_name = "include/" + "n" * 120 + "/ü.h"
    for kind in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz", format=kind) as archive:
            for name in ("lib/a.so", long_name):
                member = tarfile.TarInfo(name)
                member.size, member.mtime, member.uname = 600, 1_700_000_000, "somebody"
                archive.addfile(member, io.BytesIO(b"x" * 600))
        (tmp_path / "good.tar.gz").write_bytes(data.getvalue())
        found = unpack(tmp_path / "good.tar.gz", tmp_path / str(kind), 1200, "here")
        assert {name: path.read_bytes() for name, path in found.items()} == dict.fromkeys(
            ("lib/a.so", long_name), b"x" * 600
        )


def test_invalid_names_are_not_packed(tmp_path: Path) -> None:
    """Prevents: qola publishes a bundle that every fetch rejects."""
    write(tmp_path / "bundle", {"lib/a\nb.so": "x"})
    with pytest.raises(BundleError, match=r"a\\nb.so"):
        pack_bundle(tmp_path / "bundle", tmp_path / "a.tar.gz")
