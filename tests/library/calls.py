"""Call the C functions of a bundle's libraries by cffi for the problems of a table.

calls.py BUNDLE NAMESPACE HEADER TABLE reads a table of the consumer (qola_lab/tests/verify). It
prints the libraries' kernels as JSON, then an object for each line. Line n runs on the n-th stream.
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
        """Allocate device memory."""
        pointer = ctypes.c_void_p()
        assert self.hip.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(max(size, 1))) == 0
        return self.ffi.cast("void*", pointer.value)

    def stream(self) -> Any:
        """Create a stream."""
        pointer = ctypes.c_void_p()
        assert self.hip.hipStreamCreate(ctypes.byref(pointer)) == 0
        return self.ffi.cast("void*", pointer.value)

    def tensor(
        self, target: Any, fields: dict[str, str], seqlen: int, heads: int, dim: int
    ) -> None:
        """Set the address and strides of a tensor of [batch, row, head, dim]."""
        rows = int(fields["batch"]) * seqlen
        target.data = self.memory(rows * heads * dim * 4)
        target.stride_row, target.stride_head = heads * dim, dim
        target.stride_batch = 0 if fields["mode"] == "group" else seqlen * heads * dim

    def starts(self, count: int, length: int) -> Any:
        """Return the first rows of sequences, in device memory."""
        memory = self.memory(4 * (count + 1))
        self.ffi.buffer(memory, 4 * (count + 1))[:] = bytes(
            (ctypes.c_int32 * (count + 1))(*(length * n for n in range(count + 1)))
        )
        return memory

    def args(self, fields: dict[str, str]) -> Any:
        """Return the C arguments of a problem."""
        number = {key: int(fields[key]) for key in fields if fields[key].lstrip("-").isdigit()}
        group, backward = fields["mode"] == "group", fields["direction"] == "bwd"
        batch, q_len, k_len = number["batch"], number["seqlen_q"], number["seqlen_k"]
        heads, hdim_q, hdim_v = number["nhead_q"], number["hdim_q"], number["hdim_v"]
        rows = q_len * (batch if group else 1)
        args = self.ffi.new("qola_mha_args*")
        args.struct_size = self.ffi.sizeof("qola_mha_args")
        args.dtype = self.constants[DTYPES[fields["dtype"]]]
        args.mask = self.constants[MASKS[fields["mask"]]]
        args.bias_type = self.constants[BIASES[fields["bias"]]]
        args.window_left = 64 if fields["mask"] == "window" else 0
        args.group = group
        args.kernels = 0 if number["use_ext_asm"] else self.constants["QOLA_KERNELS_CK"]
        args.rounding = number["bf16_cvt"] + 1
        for name in ("batch", "nhead_q", "nhead_k", "hdim_q", "hdim_v", "min_seqlen_q"):
            setattr(args, name, number[name])
        args.seqlen_q, args.seqlen_k = rows, k_len * (batch if group else 1)
        args.max_seqlen_q, args.max_seqlen_k = q_len, k_len
        args.dropout, args.logits_soft_cap = float(fields["dropout"]), float(fields["soft_cap"])
        args.drop_seed, args.drop_offset = 1, 2
        self.tensor(args.q, fields, q_len, heads, hdim_q)
        self.tensor(args.k, fields, k_len, number["nhead_k"], hdim_q)
        self.tensor(args.v, fields, k_len, number["nhead_k"], hdim_v)
        self.tensor(args.o, fields, q_len, heads, hdim_v)
        scores = 4 * batch * heads * q_len
        if number["lse"] or backward:
            args.lse.data = self.memory(scores)
        args.lse.stride_head, args.lse.stride_batch = rows, 0 if group else heads * q_len
        if fields["bias"] != "no":
            args.bias.data = self.memory(scores * k_len)
            args.bias.stride_row = k_len if fields["bias"] == "bias" else 0
        if group:
            args.seqstart_q = self.starts(batch, q_len)
            args.seqstart_k = self.starts(batch, k_len)
        if backward:
            args.deterministic, args.atomic16 = number["deterministic"], not number["atomic_fp32"]
            self.tensor(args.d_o, fields, q_len, heads, hdim_v)
            self.tensor(args.dq, fields, q_len, heads, hdim_q)
            self.tensor(args.dk, fields, k_len, heads, hdim_q)
            self.tensor(args.dv, fields, k_len, heads, hdim_v)
            if number["dbias"]:
                args.d_bias.data, args.d_bias.stride_row = self.memory(scores * k_len), k_len
        return args

    def answers(self, fields: dict[str, str]) -> dict[str, Any]:
        """Query the kernels of a problem, then launch it on a new stream."""
        direction = fields["direction"]
        args, stream = self.args(fields), self.stream()
        found, size = self.ffi.new("qola_found*"), self.ffi.new("uint64_t*")
        found.struct_size = self.ffi.sizeof("qola_found")
        find_status = self.function(direction, "find")(args, found)
        sized = self.function(direction, "workspace_size")(args, size)
        prepared = self.function(direction, "prepare")(args)
        if size[0]:
            args.workspace, args.workspace_size = self.memory(size[0]), size[0]
        status = self.function(direction)(args, stream)
        error = self.ffi.string(self.function(direction, "last_error")()).decode()
        text = self.ffi.string(self.function(direction, "status_string")(status)).decode()

        def decode(pointer: Any) -> str | None:
            return self.ffi.string(pointer).decode() if pointer else None

        return {
            "find": find_status,
            "sized": sized,
            "prepared": prepared,
            "workspace": [found.workspace_size, size[0]],
            "stages": [
                {"kernel": decode(s.kernel), "symbol": decode(s.symbol), "assembly": s.assembly}
                for s in list(found.stages)[: found.stage_count]
            ],
            "status": status,
            "text": text,
            "error": error,
        }

    def kernels(self, direction: str) -> list[str]:
        """Return the kernel names that a library lists."""
        name = self.function(direction, "kernel_name")
        count = self.function(direction, "kernel_count")()
        assert not name(count)
        return [self.ffi.string(name(number)).decode() for number in range(count)]


def main() -> None:
    """Print the answers for the table."""
    bundle, namespace, header, table = sys.argv[1:5]
    caller = Caller(Path(bundle), namespace, Path(header))
    print(json.dumps({d: caller.kernels(d) for d in caller.libraries}), flush=True)
    for line in Path(table).read_text(encoding="utf-8").splitlines():
        fields = dict(field.split("=", 1) for field in line.split())
        # Start a new line, because AITER also writes to standard output.
        print("\n" + json.dumps(caller.answers(fields)), flush=True)


if __name__ == "__main__":
    main()
