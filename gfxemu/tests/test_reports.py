"""Places of invalid accesses in words."""

from __future__ import annotations

import ctypes

import pytest

from gfxemu.reports import demangle, describe_address

FAR = 1 << 46
ALLOCATIONS = [(FAR, 800), (FAR + 0x100000, 4096)]


@pytest.mark.parametrize(
    ("address", "size", "expected"),
    [
        (0, 4, "at a null pointer"),
        (1, 4, "at a null pointer plus 1 byte"),
        (FAR + 800, 4, "0 bytes behind an allocation of 800 bytes"),
        (FAR + 798, 4, "2 bytes of it behind an allocation of 800 bytes"),
        (FAR - 16, 16, "16 bytes before an allocation of 800 bytes"),
        (FAR + 0xFFFFC, 4, "4 bytes before an allocation of 4096 bytes"),
        (FAR + 0x300010, 8, "16 bytes into a freed allocation of 64 bytes"),
        (FAR + (1 << 32), 4, f"at {FAR + (1 << 32):#x}, far from all allocations"),
    ],
)
def test_places(address: int, size: int, expected: str) -> None:
    """Prevents: a place that is off by the size of the access, or of another allocation."""
    assert describe_address(address, size, ALLOCATIONS, [(FAR + 0x300000, 64)]) == expected


def test_host_memory() -> None:
    """Prevents: memory of the host is reported as a far miss of device memory."""
    own = ctypes.create_string_buffer(64)
    place = describe_address(ctypes.addressof(own), 4, ALLOCATIONS, [])
    assert place.startswith("in host memory that HIP did not allocate, at 0x")


def test_names() -> None:
    """Prevents: mangled names of kernels, or no name for extern "C"."""
    assert demangle("_Z3oobPKiPii") == "oob(int const*, int*, int)"
    assert demangle("fill") == "fill"
