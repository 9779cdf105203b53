"""The C functions of a qola_triton_library, by ctypes; as a program, calls copies of a library."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_INTEGERS = ("dtype", "causal", "hdim", "batch", "heads", "heads_k", "rows", "columns")
_POINTERS = ("starts_q", "starts_k", "q", "k", "v", "bias", "o", "lse")
_RESULTS = ("d_o", "delta", "dq", "dk", "dv", "dbias")


def _strides(*tensors: str) -> list[str]:
    return [f"{name}_{axis}" for name in tensors for axis in ("batch", "head", "row")]


class Attention(ctypes.Structure):
    """struct qola_triton_attention."""

    _fields_ = (
        [("size", ctypes.c_size_t)]
        + [(name, ctypes.c_int32) for name in _INTEGERS]
        + [("scale", ctypes.c_float), ("dropout", ctypes.c_float)]
        + [("seed", ctypes.c_int64), ("offset", ctypes.c_int32)]
        + [(name, ctypes.c_void_p) for name in _POINTERS]
        + [(name, ctypes.c_int64) for name in _strides("q", "k", "v", "bias", "o")]
        + [("lse_batch", ctypes.c_int64), ("lse_head", ctypes.c_int64)]
        + [(name, ctypes.c_void_p) for name in _RESULTS]
        + [(name, ctypes.c_int64) for name in _strides("do", "dq", "dk", "dv", "dbias")]
    )


class Found(ctypes.Structure):
    """struct qola_triton_found."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("arch", ctypes.c_char_p),
        ("threads", ctypes.c_uint32),
        ("shared", ctypes.c_uint32),
    )


class _Choice(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("value", ctypes.c_char_p))


class _Argument(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("integer", ctypes.c_int64), ("number", ctypes.c_double))


class Library:
    """A loaded library, separate from other loaded libraries."""

    def __init__(self, file: Path, namespace: str) -> None:
        self._library = ctypes.CDLL(str(file), mode=ctypes.RTLD_LOCAL)
        self._prefix = f"qola_{namespace}_triton_" if namespace else "qola_triton_"

    def call(self, function: str, *arguments: Any) -> int:
        """Call a function; return its status."""
        return int(getattr(self._library, self._prefix + function)(*arguments))

    def error(self) -> str:
        """Return the error text of the last call."""
        function = getattr(self._library, self._prefix + "last_error")
        function.restype = ctypes.c_char_p
        text: bytes = function()
        return text.decode()

    def find(self, kernel: str, choices: Mapping[str, str], found: Found) -> int:
        """Find a kernel."""
        found.size = ctypes.sizeof(found)
        return self.call("find", kernel.encode(), *_choices(choices), ctypes.byref(found))

    def constant(self, name: str, constant: str) -> int:
        """Return a constant of a kernel, by the kernel's name from `find`."""
        value = ctypes.c_int64()
        assert self.call("constant", name.encode(), constant.encode(), ctypes.byref(value)) == 0
        return value.value

    def launch(
        self,
        kernel: str,
        choices: Mapping[str, str],
        values: Mapping[str, int | float],
        grid: Iterable[int],
    ) -> int:
        """Launch a kernel."""
        array = (_Argument * len(values))(
            *(_Argument(name.encode(), int(v), float(v)) for name, v in values.items())
        )
        sizes = (ctypes.c_uint32 * 3)(*grid)
        count = ctypes.c_size_t(len(values))
        return self.call("launch", kernel.encode(), *_choices(choices), array, count, sizes, None)

    def attention(self, function: str, attention: Attention) -> int:
        """Launch attention."""
        return self.call(function, ctypes.byref(attention), None)

    def find_attention(self, direction: str, attention: Attention, found: Found) -> int:
        """Find the kernel that attention would launch."""
        return self.call(
            f"attention_{direction}_find", ctypes.byref(attention), ctypes.byref(found)
        )


def _choices(choices: Mapping[str, str]) -> tuple[Any, ctypes.c_size_t]:
    pairs = [_Choice(name.encode(), value.encode()) for name, value in choices.items()]
    return (_Choice * len(pairs))(*pairs), ctypes.c_size_t(len(pairs))


def _call_forward(runtime: str, namespace: str, hdim: int, files: Iterable[str]) -> None:
    """Call each library's forward, on a device that runs no kernels; print status and error."""
    ctypes.CDLL(runtime, mode=ctypes.RTLD_GLOBAL)
    memory = ctypes.create_string_buffer(1 << 16)
    address = -(-ctypes.addressof(memory) // 16) * 16
    fields: dict[str, int] = dict.fromkeys(("q", "k", "v", "o", "lse"), address)
    fields |= {"dtype": 1, "causal": 2, "hdim": hdim, "batch": 1, "heads": 1, "heads_k": 1}
    fields |= {"rows": 1, "columns": 1, "size": ctypes.sizeof(Attention)}
    for file in files:
        library = Library(Path(file), namespace)
        status = library.attention("attention_forward", Attention(**fields))
        print(status, library.error())


if __name__ == "__main__":
    _call_forward(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
