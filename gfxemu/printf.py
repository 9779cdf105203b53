"""printf and assert of kernels: buffers through which waves reach the host, and the text.

The layouts are those of ROCm's device library (ockl) and of clr. With `-mprintf-kind=hostcall`,
clang's default for HIP, a wave fills a packet, puts it onto a stack and sleeps until the host has
answered. With `-mprintf-kind=buffered` lanes append records that the host reads after the launch.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping

import numpy as np

from gfxemu.arrays import U8, U64, Array
from gfxemu.operands import UnsupportedError

#: Kinds of the hidden arguments with the addresses of the buffers.
HOSTCALL, PRINTF = "hidden_hostcall_buffer", "hidden_printf_buffer"

#: Writes a text to standard error if the second argument is true, else to standard output.
Write = Callable[[bytes, bool], None]

_SERVICES = {1: "a function call", 3: "malloc or free", 4: "a report of the address sanitizer"}
_PRINTF_SERVICE = 2
#: Words of the header: arrays of packet headers and payloads, doorbell, stacks, mask of an index.
_FREE, _READY = 3, 4
_HEADER, _SIGNAL, _PACKET, _LANES, _SLOT = 8, 8, 3, 64, 8
#: Bits of a message's descriptor.
_BEGIN, _END = 1, 2
#: clr's size of the buffer of -mprintf-kind=buffered.
_PRINTF_BYTES = 4 << 20

#: The largest width and precision: what each C library must be able to write (ISO C, 7.21.6.1).
_MAX_WIDTH = 4095
#: The C library gets nothing but conversions of ISO C: others, such as %S, may read any address.
_SPECIFIER = re.compile(
    rb"%%|%([-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d+)?)?(?:hh|h|ll|l|j|z|t|L)?)([diouxXfFeEgGaAcspn])"
)


def write_to_stream(text: bytes, to_stderr: bool) -> None:
    """Write to a stream of the C library, in order with the program's own printf."""
    libc = ctypes.CDLL(None)
    stream = ctypes.c_void_p.in_dll(libc, "stderr" if to_stderr else "stdout")
    libc.fwrite(text, ctypes.c_size_t(1), ctypes.c_size_t(len(text)), stream)


class HostcallBuffer:
    """Packets of waves, and messages that several packets of a wave make up.

    Attributes:
        array: the memory that waves access.
        error: the first text for standard error, that of an assert.
    """

    def __init__(self, waves: int, write: Write) -> None:
        """Make a packet for each wave that runs at once."""
        self._write = write
        self.error = b""
        count = 2
        while count < waves:
            count *= 2
        fixed = _HEADER + _SIGNAL
        first = fixed + count * _PACKET
        self.array: Array = np.zeros(first + count * _LANES * _SLOT, U64)
        self._mask = count - 1
        self._packets = self.array[fixed:first].reshape(count, _PACKET)
        self._payloads = self.array[first:].reshape(count, _LANES, _SLOT)
        # The signal's mailbox is 0: ringing the doorbell interrupts nobody.
        addresses = [self.address + 8 * word for word in (fixed, first, _HEADER)]
        self.array[:6] = [*addresses, count - 1, 0, self._mask]
        # Indices are tagged, so that index 0 with its tag is not the end of the stack.
        self._packets[1:, 0] = [count, *range(1, count - 1)]
        self._messages: dict[int, list[bytes]] = {}
        self._number = 0

    @property
    def address(self) -> int:
        """The value of the hidden argument."""
        return int(self.array.ctypes.data)

    def serve(self) -> None:
        """Answer the packets that wait, in the order in which waves submitted them.

        Raises:
            UnsupportedError: a packet is not for printf.
        """
        waiting: list[int] = []
        top, self.array[_READY] = int(self.array[_READY]), 0
        while top and len(waiting) <= self._mask:
            waiting.append(top & self._mask)
            top = int(self._packets[waiting[-1], 0])
        for number in reversed(waiting):
            _, active, call = (int(word) for word in self._packets[number])
            service = call & 0xFFFFFFFF
            if service != _PRINTF_SERVICE:
                name = _SERVICES.get(service, "an unknown service")
                raise UnsupportedError(f"service {service} of the host: {name}")
            for lane in range(_LANES):
                if active >> lane & 1:
                    self._read(self._payloads[number, lane])
            # Bit 0 of the control word: the packet waits.
            self._packets[number, 2] = call & ~(1 << 32)

    def _read(self, slot: Array) -> None:
        """Append a lane's words to its message, and print the message at its end."""
        descriptor = int(slot[0])
        if descriptor & _BEGIN:
            self._number += 1
            descriptor = descriptor & 0xFF & ~_BEGIN | self._number << 8
            slot[0] = descriptor
        number, length = descriptor >> 8, descriptor >> 5 & 7
        message = self._messages.setdefault(number, [])
        message.append(slot[1 : 1 + length].tobytes())
        if descriptor & _END:
            del self._messages[number]
            words = b"".join(message)
            text, to_stderr = format_text(words[8:]), bool(words[:1] == b"\1")
            if to_stderr:
                self.error = self.error or text
            self._write(text, to_stderr)
            slot[0] = len(text)


class PrintfBuffer:
    """Records that lanes append, for `-mprintf-kind=buffered`.

    Attributes:
        array: the memory that waves access: the number of bytes used, their limit, the records.
    """

    def __init__(self) -> None:
        self.array: Array = np.zeros(_PRINTF_BYTES, U8)
        self.array[4:8].view(np.uint32)[:] = _PRINTF_BYTES - 8

    @property
    def address(self) -> int:
        """The value of the hidden argument."""
        return int(self.array.ctypes.data)

    def print(self, formats: Mapping[int, bytes], write: Write) -> None:
        """Print the records after a launch; `formats` has the constant format strings by hash."""
        used = int.from_bytes(self.array[:4].tobytes(), "little")
        records = self.array[8 : 8 + used].tobytes()
        place = 0
        while place + 4 <= len(records):
            control = int.from_bytes(records[place : place + 4], "little")
            message = records[place + 4 : place + max(4, control >> 2)]
            if control & 2:
                text = formats.get(int.from_bytes(message[:8], "little"), b"") + b"\0"
                message = text.ljust(-(-len(text) // 8) * 8, b"\0") + message[8:]
            write(format_text(message), bool(control & 1))
            place += max(4, control >> 2)


def format_text(message: bytes) -> bytes:
    """Return the text of a message: a format string, then arguments, each padded to 8 bytes.

    As clr does, the C library formats each argument by itself.

    Raises:
        UnsupportedError: a width or precision that is larger than C libraries must support.
    """
    libc = ctypes.CDLL(None)
    template, place = _string(message, 0)
    found: list[bytes] = []
    end = 0

    def word() -> bytes:
        nonlocal place
        place += 8
        return message[place - 8 : place].ljust(8, b"\0")

    for match in _SPECIFIER.finditer(template):
        found.append(template[end : match.start()])
        end = match.end()
        if match[0] == b"%%":
            found.append(b"%")
            continue
        if place >= len(message):
            return b"".join(found)
        flags, kind = match[1], match[2]
        values: list[object] = [
            ctypes.c_int32(int.from_bytes(word()[:4], "little")) for _ in range(flags.count(b"*"))
        ]
        sizes = [int(digits[:9]) for digits in re.findall(rb"\d+", flags)]
        sizes += [abs(value.value) for value in values if isinstance(value, ctypes.c_int32)]
        if max(sizes, default=0) > _MAX_WIDTH:
            raise UnsupportedError(f"printf with a width of {max(sizes):,}, above {_MAX_WIDTH:,}")
        if kind == b"s":
            text, place = _string(message, place)
            values.append(text)
        elif kind in b"fFeEgGaA":
            values.append(ctypes.c_double.from_buffer_copy(word()))
        else:
            values.append(ctypes.c_uint64.from_buffer_copy(word()))
        if kind == b"n":
            continue
        # long double is double on the device, and text is never wide.
        dropped = b"L" if kind in b"fFeEgGaA" else b"l" if kind in b"sc" else b""
        specifier = b"%" + flags.translate(None, dropped) + kind
        size = libc.snprintf(None, ctypes.c_size_t(0), specifier, *values)
        room = ctypes.create_string_buffer(max(0, size) + 1)
        libc.snprintf(room, ctypes.c_size_t(len(room)), specifier, *values)
        found.append(room.raw[:-1])
    return b"".join([*found, template[end:]])


def _string(message: bytes, place: int) -> tuple[bytes, int]:
    """Return the string at a place, and the place of the next argument."""
    end = message.find(b"\0", place)
    end = len(message) if end < 0 else end
    return message[place:end], place + (end - place) // 8 * 8 + 8
