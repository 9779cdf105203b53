"""Calls the C functions of this package's libraries (include/qola_c.h) with ctypes."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

from ._hip import load_library

_I32, _I64, _U64 = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64
_HERE = Path(__file__).resolve().parent

_NO_KERNEL = -1
FP16, BF16, FP32 = 1, 2, 3
MASK_NONE, MASK_CAUSAL_TOP_LEFT, MASK_CAUSAL_BOTTOM_RIGHT, MASK_WINDOW_BOTTOM_RIGHT = 0, 1, 2, 3
MASK_WINDOW_TOP_LEFT = 4
BIAS_ELEMENTWISE, BIAS_ALIBI = 1, 2
#: Number of kernels that an error lists.
_LISTED = 20


class Tensor(ctypes.Structure):
    """The C structure qola_tensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("stride_batch", _I64),
        ("stride_head", _I64),
        ("stride_row", _I64),
    ]


def _each(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class Arguments(ctypes.Structure):
    """The C structure qola_mha_args."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        *_each(_I32, "dtype mask bias_type group kernels rounding deterministic"),
        *_each(_I64, "batch nhead_q nhead_k seqlen_q seqlen_k max_seqlen_q max_seqlen_k"),
        *_each(_I64, "hdim_q hdim_v window_left window_right sink_size min_seqlen_q"),
        *_each(ctypes.c_float, "scale logits_soft_cap dropout scale_p scale_o"),
        ("quantization", _I32),
        *_each(Tensor, "q k v o lse bias randval d_o dq dk dv d_bias"),
        *_each(_U64, "drop_seed drop_offset"),
        *_each(ctypes.c_void_p, "drop_seed_ptr drop_offset_ptr seqstart_q seqstart_k"),
        *_each(ctypes.c_void_p, "seqlens_q seqlens_k cu_seqlens_q cu_seqlens_k"),
        *_each(ctypes.c_void_p, "sink d_sink workspace"),
        *_each(_U64, "workspace_size"),
        ("num_splits", _I64),
        ("block_table", ctypes.c_void_p),
        *_each(_I64, "block_table_stride page_size"),
        *_each(_I32, "gappy atomic16"),
        ("cache_batch_idx", ctypes.c_void_p),
        ("num_pages", _I64),
        *_each(ctypes.c_void_p, "kv_indptr kv_page_indices kv_last_page_lens"),
        *_each(_I32, "kv_layout kv_lookup"),
        *_each(Tensor, "q_descale k_descale v_descale"),
        *_each(ctypes.c_void_p, "block_scale_seqstart_q block_scale_seqstart_k"),
        *_each(_I64, "block_scale_size_q block_scale_size_k"),
        *_each(Tensor, "k_new v_new"),
        ("seqlen_new", _I64),
        *_each(ctypes.c_void_p, "rotary_cos rotary_sin"),
        *_each(_I32, "rope rotary_dim"),
    ]

    def __init__(self, **values: Any) -> None:
        """Set fields by name; the others are 0."""
        super().__init__(struct_size=ctypes.sizeof(Arguments), **values)

    def __str__(self) -> str:
        """Return the numbers other than 0."""
        left_out = (Tensor, ctypes.c_void_p)
        names = [field[0] for field in self._fields_[1:] if field[1] not in left_out]
        return ", ".join(f"{n}={getattr(self, n):g}" for n in names if getattr(self, n))


class Stage(ctypes.Structure):
    """The C structure qola_stage."""

    _fields_ = [
        *_each(ctypes.c_char_p, "kernel symbol"),
        *_each(_I32, "assembly reserved"),
    ]


class Found(ctypes.Structure):
    """The C structure qola_found."""

    _fields_ = [
        *_each(ctypes.c_uint32, "struct_size stage_count"),
        ("workspace_size", _U64),
        ("stages", Stage * 8),
    ]


class NoKernelError(RuntimeError):
    """The library has no kernel for a problem."""


class Entry:
    """An entry point of a library."""

    def __init__(self, library: Path, prefix: str, name: str) -> None:
        """Load the library and the HIP runtime.

        Raises:
            RuntimeError: see load_library; or the process has two HIP runtimes.
        """
        self.name = name
        loaded = load_library(library)
        _check_runtimes()
        self._launch = getattr(loaded, f"{prefix}{name}")
        self._launch.argtypes = [ctypes.POINTER(Arguments), ctypes.c_void_p]
        self._workspace_size = getattr(loaded, f"{prefix}{name}_workspace_size")
        self._workspace_size.argtypes = [ctypes.POINTER(Arguments), ctypes.POINTER(_U64)]
        self._find = getattr(loaded, f"{prefix}{name}_find")
        self._find.argtypes = [ctypes.POINTER(Arguments), ctypes.POINTER(Found)]
        self._kernel_count = getattr(loaded, f"{prefix}{name}_kernel_count")
        self._kernel_count.restype = ctypes.c_size_t
        self._kernel_name = getattr(loaded, f"{prefix}{name}_kernel_name")
        self._kernel_name.argtypes = [ctypes.c_size_t]
        self._kernel_name.restype = ctypes.c_char_p
        self._last_error = getattr(loaded, f"{prefix}{name}_last_error")
        self._last_error.restype = ctypes.c_char_p

    def workspace_size(self, args: Arguments) -> int:
        """Return the size in bytes of the workspace for the problem.

        Raises:
            RuntimeError: see launch.
        """
        size = _U64()
        self._check(args, self._workspace_size(args, size))
        return size.value

    def find(self, args: Arguments) -> int:
        """Find the kernels for the problem without launching them, and return the workspace's size.

        Raises:
            NoKernelError, RuntimeError: see launch.
        """
        found = Found(struct_size=ctypes.sizeof(Found))
        self._check(args, self._find(args, found))
        return int(found.workspace_size)

    def launch(self, args: Arguments, stream: int) -> None:
        """Launch the kernels for the problem on a stream.

        Raises:
            NoKernelError: the library has no kernel for the problem.
            RuntimeError: the library refused the problem.
        """
        self._check(args, self._launch(args, stream))

    def _check(self, args: Arguments, status: int) -> None:
        if status:
            text = f"{self.name}: {self._last_error().decode()} (arguments: {args})"
            if status == _NO_KERNEL:
                raise NoKernelError(f"{text}; {self._kernels()}")
            raise RuntimeError(text)

    def _kernels(self) -> str:
        """List the kernels of the library for this entry point and the archs that it supports."""
        count = self._kernel_count()
        names = [self._kernel_name(n).decode() for n in range(min(count, _LISTED))]
        more = [f"and {count - _LISTED} more"] if count > _LISTED else []
        return f"the library's {count} kernels: " + ", ".join([*names, *more])


_entries: dict[str, Entry] = {}


def entry(name: str) -> Entry:
    """Return an entry point; its first use loads the library.

    Raises:
        RuntimeError: no library has the entry point; or see Entry.
    """
    if name not in _entries:
        library, prefix = library_of(name)
        if library is None:
            raise RuntimeError(f"{_HERE}: no library has {name}; add its module to the manifest")
        _entries[name] = Entry(library, prefix, name)
    return _entries[name]


def library_of(name: str) -> tuple[Path | None, str]:
    """Return the library with an entry point, None without one, and the C functions' prefix."""
    record = json.loads((_HERE / "manifest.json").read_text(encoding="utf-8"))
    prefix = "_".join(filter(None, ("qola", record["namespace"]))) + "_"
    for module in record["modules"]:
        if name in {point.rpartition("::")[2] for point in module["entry_points"]}:
            return _HERE / module["library"], prefix
    return None, prefix


def _check_runtimes() -> None:
    """Check that there is one HIP runtime: it cannot use memory and streams of another."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    paths = {line.split(None, 5)[5] for line in maps if "libamdhip64" in line}
    if len(paths) > 1:
        found = " and ".join(sorted(paths))
        raise RuntimeError(
            f"two HIP runtimes in one process: {found}; put a directory with a link "
            "libamdhip64.so.7 to the framework's runtime first on LD_LIBRARY_PATH"
        )
