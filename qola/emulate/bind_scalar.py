"""Scalar operations of the table as functions of waves."""

from __future__ import annotations

from collections.abc import Iterator

from qola.emulate.arrays import Array
from qola.emulate.decode import Instruction, family
from qola.emulate.operands import (
    Literals,
    Read,
    Write,
    applied,
    listed,
    number_of,
    special,
    wide,
    write_scalar,
)
from qola.emulate.table import TYPES, Operation
from qola.emulate.waves import EXEC, Step, Waves

_SOURCES: dict[str, tuple[str, ...]] = {
    "SOP1": ("ssrc0",),
    "SOP2": ("ssrc0", "ssrc1"),
    "SOPC": ("ssrc0", "ssrc1"),
    "SOPK": (),
}


def bind_scalar(one: Instruction, operation: Operation, literals: Literals) -> Step:
    """A scalar operation."""
    sources = iter(_SOURCES[family(one)])
    result_kind = operation.outputs[0]
    reads = [_scalar_read(one, kind, result_kind, sources, literals) for kind in operation.inputs]
    writes: list[Write] = []
    for kind in operation.outputs:
        if kind == "scc":
            writes.append(_write_scc)
        elif kind == "exec":
            writes.append(write_scalar(EXEC, "u64"))
        else:
            writes.append(write_scalar(one["sdst"], kind))
    function = operation.function
    if len(writes) == 1:
        return applied(function, reads, writes[0])
    if len(writes) == 2 and len(reads) == 2:
        first, second = reads
        into, flag = writes

        def run(w: Waves) -> None:
            result, scc = function(first(w), second(w))
            into(w, result)
            flag(w, scc)

        return run

    def run_all(w: Waves) -> None:
        for write, value in zip(writes, function(*[read(w) for read in reads]), strict=True):
            write(w, value)

    return run_all


def _write_scc(w: Waves, value: Array) -> None:
    w.scc[...] = value


def _scalar_read(
    one: Instruction, kind: str, result: str, sources: Iterator[str], literals: Literals
) -> Read:
    if kind.startswith("dst"):
        kind = kind.partition(":")[2] or result
        return listed(one["sdst"], kind)
    if kind == "scc":
        return lambda w: w.scc
    if kind == "exec":
        return lambda w: w.q[EXEC]
    if kind in ("k", "ku"):
        bits = one["simm16"]
        if kind == "k" and bits & 0x8000:
            bits |= 0xFFFF0000
        number = literals.number(bits)
        return listed(number, "u32" if kind == "ku" else "i32")
    name = next(sources)
    if TYPES[kind]().itemsize == 8:
        return wide(one, name, kind)
    flag = special(one.fields[name])
    if flag is not None:
        return flag
    return listed(number_of(one, name, kind, literals), kind)
