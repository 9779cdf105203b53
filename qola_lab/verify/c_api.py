"""The C functions of a library: qola_c.h in ctypes, and the calls."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from qola.aiter.attention import ENTRIES
from qola_base.errors import Finding
from qola_lab.problems import AttentionProblem
from qola_lab.verify.repository import VerifyError
from qola_lab.verify.tensors import address_names, buffers, entry_values, tables

#: Values of qola_status.
_OK, _NO_KERNEL, _UNSUPPORTED, _INVALID = 0, -1, -5, -6
#: Constants of the header's enumerations.
_DTYPES = ("", "fp16", "bf16", "fp32", "fp8", "bf8", "fp8fp16", "fp8bf16", "fp8fp32")
_WINDOWS = {"no": 0, "bottom_right": 3, "top_left": 4}
_CK_ONLY = 1
#: Of the strides of a tensor, in the order of its members.
_DIMENSIONS = ("batch_", "nhead_", "")
#: An address that is not null.
_SOMEWHERE = 0x1000
#: Names of AITER's arguments and tensors that differ in the header.
_NAMES = {
    "is_group_mode": "group",
    "is_deterministic": "deterministic",
    "scale_s": "scale",
    "p_drop": "dropout",
    "seqlen_knew": "seqlen_new",
    "rope_type": "rope",
    "batch_stride_block_table": "block_table_stride",
    "page_block_size": "page_size",
    "num_total_pages": "num_pages",
    "seqlen_k_ptr": "seqlens_k",
    "do": "d_o",
    "dbias": "d_bias",
    "knew": "k_new",
    "vnew": "v_new",
    "alibi_slopes": "bias",
}
_I32, _I64, _PTR = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
_U32, _U64, _FLOAT = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_float


def _members(*groups: tuple[Any, str]) -> list[tuple[str, Any]]:
    return [(name, kind) for kind, names in groups for name in names.split()]


class Tensor(ctypes.Structure):
    """qola_tensor."""

    _fields_ = _members((_PTR, "data"), (_I64, "stride_batch stride_head stride_row"))


class Args(ctypes.Structure):
    """qola_mha_args."""

    _fields_: ClassVar[Any] = _members(
        (_U32, "struct_size"),
        (_I32, "dtype mask bias_type group kernels rounding deterministic"),
        (_I64, "batch nhead_q nhead_k seqlen_q seqlen_k max_seqlen_q max_seqlen_k hdim_q hdim_v"),
        (_I64, "window_left window_right sink_size min_seqlen_q"),
        (_FLOAT, "scale logits_soft_cap dropout scale_p scale_o"),
        (_I32, "quantization"),
        (Tensor, "q k v o lse bias randval d_o dq dk dv d_bias"),
        (_U64, "drop_seed drop_offset"),
        (_PTR, "drop_seed_ptr drop_offset_ptr seqstart_q seqstart_k seqlens_q seqlens_k"),
        (_PTR, "cu_seqlens_q cu_seqlens_k sink d_sink workspace"),
        (_U64, "workspace_size"),
        (_I64, "num_splits"),
        (_PTR, "block_table"),
        (_I64, "block_table_stride page_size"),
        (_I32, "gappy atomic16"),
        (_PTR, "cache_batch_idx"),
        (_I64, "num_pages"),
        (_PTR, "kv_indptr kv_page_indices kv_last_page_lens"),
        (_I32, "kv_layout kv_lookup"),
        (Tensor, "q_descale k_descale v_descale"),
        (_PTR, "block_scale_seqstart_q block_scale_seqstart_k"),
        (_I64, "block_scale_size_q block_scale_size_k"),
        (Tensor, "k_new v_new"),
        (_I64, "seqlen_new"),
        (_PTR, "rotary_cos rotary_sin"),
        (_I32, "rope rotary_dim"),
    )


class _Stage(ctypes.Structure):
    """qola_stage."""

    _fields_ = _members((ctypes.c_char_p, "kernel symbol"), (_I32, "assembly reserved"))


class _Found(ctypes.Structure):
    """qola_found, with QOLA_MAX_STAGES stages."""

    _fields_: ClassVar[Any] = [
        *_members((_U32, "struct_size stage_count"), (_U64, "workspace_size")),
        ("stages", _Stage * 8),
    ]


@dataclass(frozen=True)
class Stage:
    """A kernel that a call would launch, by its symbol in a code object."""

    symbol: str
    assembly: bool


@dataclass(frozen=True)
class Found:
    """The answer of the C function `<entry>_find`.

    Attributes:
        stages: the first kernels that the call would launch, in order.
        count: number of kernels that it would launch.
        error: why there are none.
    """

    stages: tuple[Stage, ...] = ()
    count: int = 0
    status: int = _OK
    error: str = ""

    @property
    def answers(self) -> bool:
        """Whether the library has answered: with its kernels, or with the status for no kernel."""
        return self.status in (_OK, _NO_KERNEL)

    @property
    def refuses(self) -> bool:
        """Whether the C functions refuse the problem; the C++ functions may accept it."""
        return self.status in (_UNSUPPORTED, _INVALID)


class CFunctions:
    """The C functions of an entry point."""

    def __init__(self, library: ctypes.CDLL, namespace: str, direction: str) -> None:
        self._library = library
        self._entry = ENTRIES[direction]
        self._name = "_".join(word for word in ("qola", namespace, self._entry) if word)

    def call(self, args: Args) -> str:
        """Launch a problem on the default stream; return the error, "" for none."""
        return self._error(self._function("")(ctypes.byref(args), None))

    def set_workspace_size(self, args: Args) -> str:
        """Set the size of the workspace that a problem needs; return the error, "" for none."""
        size = _U64()
        status = self._function("_workspace_size")(ctypes.byref(args), ctypes.byref(size))
        error, args.workspace_size = self._error(status), size.value
        return error

    def find(self, args: Args) -> Found:
        """Return the kernels that `call` would launch."""
        answer = _Found(struct_size=ctypes.sizeof(_Found))
        status = self._function("_find")(ctypes.byref(args), ctypes.byref(answer))
        if status != _OK:
            return Found(status=status, error=self._last_error())
        stages = tuple(
            Stage((one.symbol or one.kernel or b"").decode(), bool(one.assembly))
            for one in answer.stages[: answer.stage_count]
        )
        return Found(stages, answer.stage_count)

    def _error(self, status: int) -> str:
        return f"{self._entry} returned {status}: {self._last_error()}" if status else ""

    def _last_error(self) -> str:
        last_error = self._function("_last_error")
        last_error.restype = ctypes.c_char_p
        text: bytes = last_error()
        return text.decode()

    def _function(self, ending: str) -> Any:
        name = f"{self._name}{ending}"
        try:
            return self._library[name]
        except AttributeError:
            finding = Finding(name, "the library does not export it", "a library with C functions")
            raise VerifyError(finding) from None


def make_args(
    problem: AttentionProblem, arch: str, addresses: Mapping[str, int] | None = None
) -> Args:
    """Return a problem as C functions take it, without a workspace.

    Args:
        addresses: of tensors and tables, by the names of AITER's arguments. Without them each is
            set to an address that must not be read, which `find` accepts.
    """
    values, kinds = entry_values(problem, arch, ()), dict(Args._fields_)
    args = Args(
        struct_size=ctypes.sizeof(Args),
        dtype=_DTYPES.index(problem.dtype),
        mask=_WINDOWS[problem.mask_type],
        kernels=0 if problem.use_asm else _CK_ONLY,
        # Functions without assembly kernels refuse the field.
        rounding=problem.how_v3_bf16_cvt + 1 if problem.use_asm else 0,
        atomic16=int(problem.direction == "bwd" and not problem.is_v3_atomic_fp32),
    )
    if problem.mask_type != "no":
        args.window_left, args.window_right = problem.window_size_left, problem.window_size_right
    for name, value in values.items():
        field = _NAMES.get(name, name)
        if isinstance(getattr(args, field, None), int | float):
            setattr(args, field, value)
    for name in tables(problem):
        field = _NAMES.get(name, name.removesuffix("_ptr"))
        setattr(args, field, addresses[name] if addresses else _SOMEWHERE)
    for name in buffers(problem, arch):
        field = _NAMES.get(name, name)
        data: Any = addresses[address_names(name)] if addresses else _SOMEWHERE
        if name == "q" and problem.seqlen_knew and problem.rope_type == "no":
            continue  # Kernels do not read it.
        if name == "alibi_slopes":
            data = Tensor(data=data, stride_batch=values["stride_bias"])
        elif kinds.get(field) is Tensor:
            # The arguments of a backward have other names for the strides of the LSE.
            word = "lsed" if (name, problem.direction) == ("lse", "bwd") else name
            data = Tensor(data, *(values.get(f"{k}stride_{word}", 0) for k in _DIMENSIONS))
        if field in kinds:
            setattr(args, field, data)
    return args
