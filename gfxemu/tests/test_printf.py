"""Formatting of printf messages; tests/hip runs programs with printf and assert."""

from __future__ import annotations

import struct

import pytest

from gfxemu.operands import UnsupportedError
from gfxemu.printf import HostcallBuffer, PrintfBuffer, format_text
from qola_base.code_object.reader import printf_formats


def pack(*words: int | float | bytes) -> bytes:
    """Encode arguments as lanes pass them: 8 bytes each, strings padded to a multiple of 8."""
    octets = b""
    for word in words:
        if isinstance(word, bytes):
            octets += word + bytes(8 - len(word) % 8)
        else:
            octets += struct.pack("<d" if isinstance(word, float) else "<Q", word)
    return octets


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (pack(b"100%%\n"), b"100%\n"),
        (pack(b"%d %u", 2**64 - 3, 2**64 - 3), b"-3 4294967293"),
        (pack(b"%ld|%hhx|%c", 2**64 - 3, 0x1FF, 65), b"-3|ff|A"),
        (pack(b"%.2f %Lg %a", 2.5, 0.5, 1.0), b"2.50 0.5 0x1p+0"),
        (pack(b"%*d|%-*.*f|", 4, 7, 6, 1, 2.25), b"   7|2.2   |"),
        (pack(b"%.3s|%9s|%s", b"abcdefghij", b"x", b""), b"abc|        x|"),
        (pack(b"%p%n!", 0x1234, 9), b"0x1234!"),
        # The output ends at the first missing argument, as in AMD's runtime clr.
        (pack(b"a %d b %d", 1), b"a 1 b "),
        (pack(b"an unknown %k"), b"an unknown %k"),
        (pack(b"50% Slower %d", 7), b"50% Slower 7"),
        (pack(b"50%better %d", 7), b"50%better 7"),
    ],
)
def test_format_text(message: bytes, text: bytes) -> None:
    """Prevents: numbers printed with a wrong size or sign, or arguments lost after a string."""
    assert format_text(message) == text


@pytest.mark.parametrize(
    "message",
    [
        *(pack(b"%999999999d", 1), pack(b"%.4096f", 1.0), pack(b"%*d", 1 << 30, 1)),
        *(pack(b"%-*s", 2**64 - 5000, b"x"), pack(b"%" + b"9" * 5000 + b"d", 1)),
    ],
)
def test_wide_conversions_are_refused(message: bytes) -> None:
    """Prevents: gigabytes written because a kernel's printf requests them."""
    with pytest.raises(UnsupportedError, match=r"printf with a width of [\d,]+, above 4,095"):
        format_text(message)
    assert len(format_text(pack(b"%4095d", 1))) == 4095


def test_records() -> None:
    """Prevents: a message printed with another record's format string, or to the wrong stream."""
    buffer = PrintfBuffer()
    records = b""
    for control, message in ((2, struct.pack("<Q", 0xAB) + pack(7)), (1, pack(b"error %d", 8))):
        records += struct.pack("<I", control | (len(message) + 4) << 2) + message
    buffer.array[0] = len(records)
    buffer.array[8 : 8 + len(records)] = list(records)
    found: list[tuple[bytes, bool]] = []
    formats = printf_formats(["0:0:ab,seven, %d\n", "1:1:4:of OpenCL"])
    buffer.print(formats, lambda text, to_stderr: found.append((text, to_stderr)))
    assert found == [(b"seven, 7\n", False), (b"error 8", True)]


def test_other_services_are_refused() -> None:
    """Prevents: a kernel that hangs on an unsupported host call, or uses 0 as an address."""
    buffer = HostcallBuffer(2, lambda text, to_stderr: None)
    # The packet on top of the free stack, submitted by a wave with one lane.
    number = int(buffer.array[3])
    header = 16 + 3 * number
    buffer.array[header + 1 : header + 3] = 1, 3 | 1 << 32
    buffer.array[header], buffer.array[4] = 0, number
    with pytest.raises(UnsupportedError, match="malloc"):
        buffer.serve()
