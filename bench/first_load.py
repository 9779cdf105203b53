"""Measures how long ROCm's code object manager takes to find the device code of a library.

HIP calls it when the first kernel of a bundle is used. Needs libamd_comgr.so.3, which the private
tree has.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench.processes import BenchError
from qola_base.code_object.elf import Elf
from qola_base.code_object.offload import (
    compressed_size,
    is_compressed,
    read_bundle,
    registered_bundles,
)
from qola_base.errors import Finding

_REPETITIONS = 100
# amd_comgr.h
_FATBIN, _OBJ_BUNDLE, _UNBUNDLE, _HIP = 0x10, 0x14, 0xF, 3
#: Bytes of an uncompressed bundle that HIP passes: its header.
_HEADER = 4096


class _Found(ctypes.Structure):
    _fields_ = (
        ("isa", ctypes.c_char_p),
        ("size", ctypes.c_size_t),
        ("offset", ctypes.c_uint64),
    )


class _Comgr:
    """The functions of libamd-comgr that HIP calls for a bundle."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libamd_comgr.so.3")

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, f"amd_comgr_{name}")(*arguments)
        if status:
            raise BenchError(Finding(f"amd_comgr_{name}", f"status {status}", "0"))

    def _data(self, kind: int, content: ctypes.Array[ctypes.c_char]) -> ctypes.c_uint64:
        data = ctypes.c_uint64()
        self._call("create_data", kind, ctypes.byref(data))
        self._call("set_data", data, ctypes.c_size_t(len(content)), content)
        return data

    def find(self, bundle: ctypes.Array[ctypes.c_char], target: bytes) -> None:
        """Find a code object in an uncompressed bundle."""
        data = self._data(_FATBIN, bundle)
        # The target without the kind of offloading: hipv4-.
        found = _Found(target.partition(b"-")[2])
        self._call("lookup_code_object", data, ctypes.byref(found), ctypes.c_size_t(1))
        if not found.size:
            raise BenchError(Finding("amd_comgr_lookup_code_object", "no code object", "one"))
        self._call("release_data", data)

    def unbundle(self, bundle: ctypes.Array[ctypes.c_char], target: bytes) -> None:
        """Decompress a bundle and copy a code object."""
        data = self._data(_OBJ_BUNDLE, bundle)
        given, result, info = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()
        self._call("set_data_name", data, b"bundle")
        self._call("create_data_set", ctypes.byref(given))
        self._call("create_data_set", ctypes.byref(result))
        self._call("data_set_add", given, data)
        self._call("create_action_info", ctypes.byref(info))
        self._call("action_info_set_language", info, _HIP)
        targets = (ctypes.c_char_p * 1)(target)
        self._call("action_info_set_bundle_entry_ids", info, targets, ctypes.c_size_t(1))
        self._call("do_action", _UNBUNDLE, info, given, result)
        self._call("destroy_action_info", info)
        self._call("destroy_data_set", given)
        self._call("destroy_data_set", result)
        self._call("release_data", data)


def first_load(library: Path) -> float:
    """Return the mean CPU seconds, over a library's bundles, to find the code objects of one.

    Raises:
        BenchError: libamd-comgr cannot read a bundle.
    """
    comgr = _Comgr()
    seconds = []
    for _, bundle in registered_bundles(Elf(library.read_bytes())):
        ((target, _),) = read_bundle(bundle)
        find: Callable[[ctypes.Array[ctypes.c_char], bytes], None]
        compressed = is_compressed(bundle)
        find = comgr.unbundle if compressed else comgr.find
        size = compressed_size(bundle) if compressed else min(_HEADER, len(bundle))
        content = ctypes.create_string_buffer(bytes(bundle[:size]), size)
        times = []
        for _ in range(_REPETITIONS):
            start = time.process_time()
            find(content, target.encode())
            times.append(time.process_time() - start)
        seconds.append(median(times))
    return sum(seconds) / len(seconds)
