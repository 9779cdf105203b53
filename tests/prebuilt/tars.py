"""Blocks of tar files, with headers that no tar program writes."""

from __future__ import annotations

END = bytes(1024)


def entry(name: str | bytes, content: bytes = b"", kind: bytes = b"0", **replaced: object) -> bytes:
    """Return a header and its content; replace `size`, `magic` and other fields by raw bytes."""
    raw = name if isinstance(name, bytes) else name.encode()
    fields = {"mode": b"0000644\0", "size": b"%011o\0" % len(content), "magic": b"ustar\00000"}
    fields |= {key: value for key, value in replaced.items() if isinstance(value, bytes)}
    ids = b"0000000\0" * 2
    head = raw[:100].ljust(100, b"\0") + fields["mode"] + ids + fields["size"]
    head += b"00000000000\0" + b" " * 8 + kind + bytes(100) + fields["magic"]
    head = head.ljust(512, b"\0")
    head = head[:148] + b"%06o\0 " % sum(head) + head[156:]
    return head + content + bytes(-len(content) % 512)


def pax(*records: tuple[str | bytes, str | bytes], kind: bytes = b"x") -> bytes:
    """Return a pax header."""
    text = b""
    for key, value in records:
        parts = (part if isinstance(part, bytes) else part.encode() for part in (key, value))
        rest = b" " + b"=".join(parts) + b"\n"
        length = len(rest)
        while length != len(rest) + len(str(length)):
            length = len(rest) + len(str(length))
        text += b"%d" % length + rest
    return entry("././@PaxHeader", text, kind)
