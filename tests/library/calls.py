"""Calls the C functions of a bundle's libraries for the problems of a table, by cffi.

calls.py BUNDLE NAMESPACE HEADER TABLE reads a table of the consumer (tests/verify), and prints
the libraries' kernels as JSON, then an object for each line. Line n is launched on the n-th stream.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

from cffi import FFI

from tests.library.header import declarations, values

DTYPES = {"fp16": "QOLA_FP16", "bf16": "QOLA_BF16", "fp32": "QOLA_FP32"}
MASKS = {
    "no": "QOLA_MASK_NONE",
    "top_left": "QOLA_MASK_CAUSAL_TOP_LEFT",
    "bottom_right": "QOLA_MASK_CAUSAL_BOTTOM_RIGHT",
    "window": "QOLA_MASK_WINDOW_BOTTOM_RIGHT",
}
BIASES = {
    "no": "QOLA_BIAS_NONE",
    "bias": "QOLA_BIAS_ELEMENTWISE",
    "alibi": "QOLA_BIAS_ALIBI",
}


class Caller:
    """The libraries of a bundle, and a device."""

    def __init__(self, bundle: Path, namespace: str, header: Path) -> None:
        self.ffi = FFI()
        self.ffi.cdef(declarations(header, namespace))
        self.prefix = f"qola_{namespace}_"
        self.constants = values(header)
        self.libraries = {
            direction: self.ffi.dlopen(str(path))
            for direction in ("fwd", "bwd")
            for path in bundle.glob(f"lib/*_libmha_{direction}.so")
        }
        self.hip = ctypes.CDLL("libamdhip64.so.7")

    def function(self, direction: str, name: str = "") -> Any:
        """Return a function of mha_fwd or mha_bwd."""
        suffix = f"_{name}" if name else ""
        library = self.libraries[direction]
        return getattr(library, f"{self.prefix}mha_{direction}{suffix}")

    def memory(self, size: int) -> Any:
        """Return device memory."""
        pointer = ctypes.c_void_p()
        assert self.hip.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(max(size, 1))) == 0
        return self.ffi.cast("void*", pointer.value)

    def stream(self) -> Any:
        """Return a new stream."""
        pointer = ctypes.c_void_p()
        assert self.hip.hipStreamCreate(ctypes.byref(pointer)) == 0
        return self.ffi.cast("void*", pointer.value)

    def tensor(self, to: Any, of: dict[str, str], seqlen: int, heads: int, dim: int) -> None:
        """Set a tensor of [batch, row, head, dim]."""
        rows = int(of["batch"]) * seqlen
        to.data = self.memory(rows * heads * dim * 4)
        to.stride_row, to.stride_head = heads * dim, dim
        to.stride_batch = 0 if of["mode"] == "group" else seqlen * heads * dim

    def starts(self, count: int, length: int) -> Any:
        """Return the first rows of sequences, in device memory."""
        memory = self.memory(4 * (count + 1))
        self.ffi.buffer(memory, 4 * (count + 1))[:] = bytes(
            (ctypes.c_int32 * (count + 1))(*(length * n for n in range(count + 1)))
        )
        return memory

    def args(self, of: dict[str, str]) -> Any:
        """Return the arguments of a problem."""
        number = {key: int(of[key]) for key in of if of[key].lstrip("-").isdigit()}
        group, backward = of["mode"] == "group", of["direction"] == "bwd"
        batch, q_len, k_len = number["batch"], number["seqlen_q"], number["seqlen_k"]
        heads, hdim_q, hdim_v = number["nhead_q"], number["hdim_q"], number["hdim_v"]
        rows = q_len * (batch if group else 1)
        args = self.ffi.new("qola_mha_args*")
        args.struct_size = self.ffi.sizeof("qola_mha_args")
        args.dtype = self.constants[DTYPES[of["dtype"]]]
        args.mask = self.constants[MASKS[of["mask"]]]
        args.bias_type = self.constants[BIASES[of["bias"]]]
        args.window_left = 64 if of["mask"] == "window" else 0
        args.group = group
        args.kernels = 0 if number["use_ext_asm"] else self.constants["QOLA_KERNELS_CK"]
        args.rounding = number["bf16_cvt"] + 1
        for name in ("batch", "nhead_q", "nhead_k", "hdim_q", "hdim_v", "min_seqlen_q"):
            setattr(args, name, number[name])
        args.seqlen_q, args.seqlen_k = rows, k_len * (batch if group else 1)
        args.max_seqlen_q, args.max_seqlen_k = q_len, k_len
        args.dropout, args.logits_soft_cap = float(of["dropout"]), float(of["soft_cap"])
        args.drop_seed, args.drop_offset = 1, 2
        self.tensor(args.q, of, q_len, heads, hdim_q)
        self.tensor(args.k, of, k_len, number["nhead_k"], hdim_q)
        self.tensor(args.v, of, k_len, number["nhead_k"], hdim_v)
        self.tensor(args.o, of, q_len, heads, hdim_v)
        scores = 4 * batch * heads * q_len
        if number["lse"] or backward:
            args.lse.data = self.memory(scores)
        args.lse.stride_head, args.lse.stride_batch = rows, 0 if group else heads * q_len
        if of["bias"] != "no":
            args.bias.data = self.memory(scores * k_len)
            args.bias.stride_row = k_len if of["bias"] == "bias" else 0
        if group:
            args.seqstart_q = self.starts(batch, q_len)
            args.seqstart_k = self.starts(batch, k_len)
        if backward:
            args.deterministic, args.atomic16 = number["deterministic"], not number["atomic_fp32"]
            self.tensor(args.d_o, of, q_len, heads, hdim_v)
            self.tensor(args.dq, of, q_len, heads, hdim_q)
            self.tensor(args.dk, of, k_len, heads, hdim_q)
            self.tensor(args.dv, of, k_len, heads, hdim_v)
            if number["dbias"]:
                args.d_bias.data, args.d_bias.stride_row = self.memory(scores * k_len), k_len
        return args

    def answers(self, of: dict[str, str]) -> dict[str, Any]:
        """Ask for a problem, then launch it on a new stream."""
        direction = of["direction"]
        args, stream = self.args(of), self.stream()
        found, size = self.ffi.new("qola_found*"), self.ffi.new("uint64_t*")
        found.struct_size = self.ffi.sizeof("qola_found")
        asked = self.function(direction, "find")(args, found)
        sized = self.function(direction, "workspace_size")(args, size)
        prepared = self.function(direction, "prepare")(args)
        if size[0]:
            args.workspace, args.workspace_size = self.memory(size[0]), size[0]
        status = self.function(direction)(args, stream)
        error = self.ffi.string(self.function(direction, "last_error")()).decode()
        text = self.ffi.string(self.function(direction, "status_string")(status)).decode()

        def words(pointer: Any) -> str | None:
            return self.ffi.string(pointer).decode() if pointer else None

        return {
            "find": asked,
            "sized": sized,
            "prepared": prepared,
            "workspace": [found.workspace_size, size[0]],
            "stages": [
                {"kernel": words(s.kernel), "symbol": words(s.symbol), "assembly": s.assembly}
                for s in list(found.stages)[: found.stage_count]
            ],
            "status": status,
            "text": text,
            "error": error,
        }

    def kernels(self, direction: str) -> list[str]:
        """Return the kernels that a library says it has."""
        name = self.function(direction, "kernel_name")
        count = self.function(direction, "kernel_count")()
        assert not name(count)
        return [self.ffi.string(name(number)).decode() for number in range(count)]


def main() -> None:
    """Answer the table."""
    bundle, namespace, header, table = sys.argv[1:5]
    caller = Caller(Path(bundle), namespace, Path(header))
    print(json.dumps({d: caller.kernels(d) for d in caller.libraries}), flush=True)
    for line in Path(table).read_text(encoding="utf-8").splitlines():
        of = dict(word.split("=", 1) for word in line.split())
        # On a line of its own: AITER writes to standard output as well.
        print("\n" + json.dumps(caller.answers(of)), flush=True)


if __name__ == "__main__":
    main()
