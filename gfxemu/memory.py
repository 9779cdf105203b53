"""The process's own memory, as kernels see it: addresses are pointers, allocations are known."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gfxemu.arrays import I64, U8, U16, U32, U64, Array, first_of

#: Pages that no process has; NumPy takes address 0 for no memory.
_BASE = 4096
#: User space on x86-64.
_TOP = 1 << 47


class _Everything:
    """An array interface over the whole address space for NumPy."""

    def __init__(self, kind: type[np.generic]) -> None:
        size = np.dtype(kind).itemsize
        self.__array_interface__: dict[str, Any] = {
            "data": (_BASE, False),
            "shape": ((_TOP - 2 * _BASE) // size,),
            "typestr": np.dtype(kind).str,
            "version": 3,
        }


def _everything(kind: type[np.generic]) -> Array:
    return np.asarray(_Everything(kind))


#: All memory as numbers of each size. Only addresses that were checked may be used.
_BYTES = {1: _everything(U8), 2: _everything(U16), 4: _everything(U32), 8: _everything(U64)}
#: The same in pieces of several words, aligned to their size.
_WIDE = {2: _BYTES[8], 4: _everything(np.complex128)}

#: Called with a kind of fault, a description, and the lanes.
Report = Callable[[str, str, Array], None]


class AddressMap:
    """Allocations by address; accesses outside of them are faults.

    Attributes:
        written: by first address of an allocation, 1 for each byte that was written, else 0;
            allocations without an entry count as written.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.written: dict[int, Array] = {}
        self._kept: dict[int, Array] = {}
        # A dummy target for inactive lanes.
        self.nowhere = self.own(np.zeros(64, U8))

    def add(self, start: int, size: int) -> None:
        """Know an allocation."""
        place = bisect_right(self._starts, start)
        self._starts.insert(place, start)
        self._ends.insert(place, start + size)

    def remove(self, start: int) -> None:
        """Forget an allocation."""
        place = self._starts.index(start)
        del self._starts[place], self._ends[place]
        self._kept.pop(start, None)

    def own(self, array: Array) -> int:
        """Know an array as an allocation, keep it, and return its address."""
        address = int(array.ctypes.data)
        self._kept[address] = array
        self.add(address, array.nbytes)
        return address

    def bounds(self) -> tuple[Array, Array]:
        """Return the first address and the end of each allocation, by address."""
        return np.array(self._starts, U64), np.array(self._ends, U64)

    def covers(self, low: int, high: int) -> bool:
        """Whether one allocation holds all addresses from `low` up to `high`."""
        place = bisect_right(self._starts, low) - 1
        return place >= 0 and high <= self._ends[place]

    def mapped(self, addresses: Array, size: int) -> Array:
        """Which addresses have `size` bytes of one allocation behind them."""
        starts, ends = self.bounds()
        place = np.searchsorted(starts, addresses, side="right") - 1
        found, place = place >= 0, np.maximum(place, 0)
        # Not the address and the size: their sum may be beyond 64 bits, and small again.
        fits = ends[place] - starts[place] >= size
        return found & fits & (addresses <= ends[place] - U64(size))

    def unwritten(self, addresses: Array, size: int) -> Array:
        """Return which accesses read a byte that was not written; addresses are in allocations."""
        found = np.zeros(addresses.shape, bool)
        for here, octets in self._tracked(addresses, size):
            found[here] = (octets[0][octets[1]] == 0).any(axis=-1)
        return found

    def record_written(self, addresses: Array, size: int) -> None:
        """Record that the bytes from each address on were written."""
        for _, (written, octets) in self._tracked(addresses, size):
            written[octets] = 1

    def _tracked(self, addresses: Array, size: int) -> Iterator[tuple[Array, tuple[Array, Array]]]:
        """Yield the accesses of each allocation whose writes are followed, and their bytes."""
        if not self.written or not addresses.size:
            return
        place = np.searchsorted(np.array(self._starts, U64), addresses, side="right") - 1
        for number in np.unique(place):
            start = self._starts[int(number)]
            if (written := self.written.get(start)) is not None:
                here = place == number
                first = (addresses[here] - U64(start)).view(I64)
                yield here, (written, first[..., None] + np.arange(size))

    def checked(
        self, addresses: Array, size: int, active: Array | None, report: Report
    ) -> tuple[Array, Array | None]:
        """Addresses that may be used, and the lanes whose are their own (None for all)."""
        if active is not None:
            if not active.any():
                return np.full(addresses.shape, self.nowhere, U64), active
            # A lane that is off goes where another one goes.
            other = addresses[first_of(active)]
            addresses = np.where(active, addresses, other)
        low, high = int(addresses.min()), int(addresses.max()) + size
        if self.covers(low, high):
            return addresses, active
        good = self.mapped(addresses, size)
        if good.all():
            return addresses, active
        bad = ~good if active is None else active & ~good
        if bad.any():
            first = int(addresses[first_of(bad)])
            report("unmapped", f"{size} bytes at {first:#x}", bad)
        used = good if active is None else active & good
        return np.where(used, addresses, U64(self.nowhere)), used


def misaligned(addresses: Array, size: int) -> bool:
    """Whether an address is not a multiple of a size."""
    return bool((addresses & U64(size - 1)).any())


def read_words(addresses: Array, count: int) -> Array:
    """32-bit words at checked addresses, (waves, lanes): (count, waves, lanes)."""
    if count in _WIDE and not misaligned(addresses, 4 * count):
        wide = _WIDE[count][_places(addresses, 4 * count)].view(U32)
        return wide.reshape((*addresses.shape, count)).transpose(2, 0, 1)
    if misaligned(addresses, 4):
        octets = _places(addresses, 1)[..., None] + np.arange(4 * count)
        return np.ascontiguousarray(_BYTES[1][octets]).view(U32).transpose(2, 0, 1)
    places = _places(addresses, 4)
    if count == 1:
        return _BYTES[4][places][None]
    return np.stack([_BYTES[4][places + word] for word in range(count)])


def write_words(addresses: Array, values: Array) -> None:
    """Write 32-bit words, (count, ...), to checked addresses, (...)."""
    if misaligned(addresses, 4):
        octets = _places(addresses, 1)[..., None] + np.arange(4 * len(values))
        _BYTES[1][octets] = np.ascontiguousarray(np.moveaxis(values, 0, -1)).view(U8)
        return
    places = _places(addresses, 4)
    for word, value in enumerate(values):
        _BYTES[4][places + word] = value


def read_small(addresses: Array, size: int) -> Array:
    """Numbers of 1 or 2 bytes at checked addresses, as u32."""
    if size == 2 and misaligned(addresses, 2):
        places = _places(addresses, 1)
        return _BYTES[1][places].astype(U32) | _BYTES[1][places + 1].astype(U32) << U32(8)
    return _BYTES[size][_places(addresses, size)].astype(U32)


def write_small(addresses: Array, values: Array, size: int) -> None:
    """Write the low 1 or 2 bytes of u32 values to checked addresses."""
    places = _places(addresses, 1)
    for byte in range(size):
        _BYTES[1][places + byte] = (values >> U32(8 * byte)).astype(U8)


def read_numbers(addresses: Array, kind: np.dtype[Any]) -> Array:
    """Numbers at checked addresses that are multiples of their size."""
    return _BYTES[kind.itemsize].view(kind)[_places(addresses, kind.itemsize)]


def write_numbers(addresses: Array, values: Array) -> None:
    """Write numbers to checked addresses that are multiples of their size."""
    kind = values.dtype
    _BYTES[kind.itemsize].view(kind)[_places(addresses, kind.itemsize)] = values


def update_numbers(addresses: Array, update: np.ufunc, values: Array) -> None:
    """Replace the number at each checked, aligned address by update(number, value), in order."""
    memory = _BYTES[values.dtype.itemsize].view(values.dtype)
    places, which = np.unique(_places(addresses, values.dtype.itemsize), return_inverse=True)
    numbers = memory[places]
    update.at(numbers, which, values)
    memory[places] = numbers


def _places(addresses: Array, size: int) -> Array:
    """Indices of addresses in the array of numbers of a size."""
    places = addresses - U64(_BASE)
    return (places >> U64(size.bit_length() - 1) if size > 1 else places).view(I64)
