"""The process's own memory, as kernels see it: addresses are pointers, allocations are known."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from gfxemu.arrays import U64, Array


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

    def written_bytes(self) -> Array:
        """Return the address of each allocation's `written`, by address; 0 without an entry."""
        arrays = [self.written.get(start) for start in self._starts]
        return np.array([0 if array is None else array.ctypes.data for array in arrays], U64)
