"""Vector memory: buffers with range checks (MUBUF), global and flat addresses, scratch memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from qola.emulate import memory
from qola.emulate.arrays import F16, F32, F64, I32, I64, U8, U32, U64, Array, first_of
from qola.emulate.decode import Instruction
from qola.emulate.lanes import Binder
from qola.emulate.numbers import bf16_bits, from_bf16
from qola.emulate.operands import Literals, UnsupportedError, listed, number_of
from qola.emulate.waves import AGPRS, LANES, M0, VGPRS, Step, Waves

_SIZES = {"UBYTE": 1, "SBYTE": 1, "BYTE": 1, "USHORT": 2, "SSHORT": 2, "SHORT": 2}
_WORDS = {"DWORD": 1, "DWORDX2": 2, "DWORDX3": 3, "DWORDX4": 4}
_ACCESS = re.compile(
    r"(BUFFER|GLOBAL|FLAT|SCRATCH)_(LOAD|STORE)_(LDS_)?([A-Z]+(?:X\d)?)(_D16)?(_HI)?$"
)
_ATOMIC = re.compile(r"(BUFFER|GLOBAL|FLAT)_ATOMIC_(.+)$")
#: No register: the address is all in the vector registers.
_OFF = 127
_HIGH_ADDRESS = U32(0xFFFF)


@dataclass(frozen=True)
class Reach:
    """Where an access goes.

    Attributes:
        addresses: of the first byte, for each lane; those of lanes that are off mean nothing.
        within: for each word of a buffer whether it is in range: an array, or None for all;
            a list of one means all words alike.
    """

    addresses: Array
    within: list[Array | None]


#: Finds where an access of some bytes goes: of 1, of 2, or of words.
Finder = Callable[[Waves, int], Reach]


def _signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> (width - 1) & 1 else value


def _buffer(one: Instruction, literals: Literals) -> Finder:
    """Addresses in a buffer, base + soffset + stride * index + offset, and the range check.

    With an index, and a stride that is not 0, the index must be less than the number of records;
    else the offset, which the scalar offset makes shorter.
    """
    resource, offset = one["srsrc"], one["offset"]
    soffset = listed(number_of(one, "soffset", "u32", literals), "i32")
    number = one["vaddr"]
    index = listed(number, "u32") if one["idxen"] else None
    vector = listed(number + one["idxen"], "u32") if one["offen"] else None

    def find(w: Waves, size: int) -> Reach:
        words = -(-size // 4)
        low, high, records, flags = (w.u[resource + word] for word in range(4))
        base = low.astype(U64) | (high & _HIGH_ADDRESS).astype(U64) << U64(32)
        if (high >> U32(31)).any() or (flags >> U32(23) & U32(1)).any():
            raise UnsupportedError("a buffer that is swizzled, or adds the lane's number")
        start = soffset(w).astype(I64)
        if vector is None:
            within = np.full((w.count, LANES), offset, I64)
        else:
            within = vector(w).astype(I64) + offset
        stride = None
        if index is not None:
            stride = (high >> U32(16) & U32(0x3FFF)).astype(I64)
            within = within + stride * index(w)
        addresses = base + (within + start).view(U64)
        if stride is not None and index is not None and stride.all():
            counted = index(w) < records
            return Reach(addresses, [None if counted.all() else counted])
        limit = records.astype(I64) - start
        last = within + 4 * (words - 1)
        if bool((last < limit).all()):
            return Reach(addresses, [None])
        if words == 1:
            return Reach(addresses, [within < limit])
        return Reach(addresses, [within + 4 * word < limit for word in range(words)])

    return find


def _global(one: Instruction, literals: Literals) -> Finder:
    """Addresses in two vector registers, or in two scalar ones with a vector offset."""
    flat = one.form == "FLAT"
    offset = one["offset"] if flat else _signed(one["offset"], 13)
    saddr = one["saddr"] & 0x7F
    address = one["addr"]
    if flat or saddr == _OFF:

        def find(w: Waves, size: int) -> Reach:
            pair = w.words(address, 2)
            found = pair[0].astype(U64) | pair[1].astype(U64) << U64(32)
            return Reach(found + np.int64(offset).view(U64), [None])

        return find

    def find_from(w: Waves, size: int) -> Reach:
        found = w.q[saddr] + w.u[address].astype(U64)
        return Reach(found + np.int64(offset).view(U64), [None])

    return find_from


def _scratch(one: Instruction, literals: Literals) -> Finder:
    """Scratch memory is each lane's own; here it is a piece of memory like others."""
    offset = _signed(one["offset"], 13)
    saddr = one["saddr"] & 0x7F
    uses_vector = bool(one["sve"])
    address = one["addr"]

    def find(w: Waves, size: int) -> Reach:
        machine = w.machine
        within = np.full((w.count, LANES), offset, I64)
        if uses_vector:
            within = within + w.u[address].astype(I64)
        if saddr != _OFF:
            within = within + w.u[saddr].astype(I64)
        bad = w.exec & ((within < 0) | (within + size > machine.scratch_row))
        if bad.any():
            detail = f"beyond {machine.scratch_row} bytes of scratch memory of a lane"
            machine.report(w, one, "out of range", detail, bad)
        within = np.where(bad, 0, within)
        wave = w.groups * machine.group_waves + w.numbers
        lane = wave[:, None] * LANES + np.arange(LANES)
        start = machine.scratch.ctypes.data
        places = (start + lane * machine.scratch_row + within).astype(U64)
        return Reach(places, [~bad])

    return find


_FINDERS = {"BUFFER": _buffer, "GLOBAL": _global, "FLAT": _global, "SCRATCH": _scratch}


def _data(one: Instruction, name: str) -> int:
    return one[name] + (AGPRS - VGPRS) * one["acc"]


def _active(w: Waves, within: Array | None) -> Array | None:
    """Lanes that are on and in range; None for all."""
    if within is None:
        return None if w.full else w.exec
    return within if w.full else within & w.exec


def _checked(
    w: Waves, one: Instruction, addresses: Array, size: int, active: Array | None
) -> tuple[Array, Array | None]:
    machine = w.machine
    if one.form == "SCRATCH":
        # It was checked where it was found; lanes that are off are sent to the first row.
        if active is not None:
            addresses = np.where(active, addresses, U64(machine.scratch.ctypes.data))
        return addresses, active
    found = machine.map.checked(addresses, size, active, machine.reporter(w, one))
    if machine.checked and memory.misaligned(found[0], min(size, 4)):
        crooked = found[0] % U64(min(size, 4)) != 0
        if active is not None:
            crooked = crooked & active
        if crooked.any():
            first = int(found[0][first_of(crooked)])
            machine.report(w, one, "misaligned", f"{size} bytes at {first:#x}", crooked)
    return found


def _read(w: Waves, one: Instruction, reach: Reach, words: int) -> Array:
    """Words from memory; those that are out of a buffer's range are 0."""
    if len(reach.within) == 1:
        addresses, used = _checked(w, one, reach.addresses, 4 * words, _active(w, reach.within[0]))
        values = memory.read_words(addresses, words)
        return values if used is None else values * used
    parts = []
    for word, within in enumerate(reach.within):
        at = reach.addresses + U64(4 * word)
        addresses, used = _checked(w, one, at, 4, _active(w, within))
        value = memory.read_words(addresses, 1)[0]
        parts.append(value if used is None else value * used)
    return np.stack(parts)


def _bind_access(one: Instruction, literals: Literals) -> Step:
    found = _ACCESS.match(one.name)
    assert found
    space, direction, to_lds, kind = found[1], found[2], found[3], found[4]
    finder = _FINDERS[space](one, literals)
    if to_lds or one["lds"]:
        return _to_lds(one, finder, kind)
    data = _data(one, "vdata" if space == "BUFFER" else "vdst" if direction == "LOAD" else "data")
    if kind in _WORDS:
        words = _WORDS[kind]
        if direction == "LOAD":
            return lambda w: w.put(data, _read(w, one, finder(w, 4 * words), words))
        return lambda w: _write(w, one, finder(w, 4 * words), w.words(data, words))
    size = _SIZES[kind]
    high = bool(found[6])
    if direction == "STORE":
        distance = U32(16 if high else 0)

        def store(w: Waves) -> None:
            reach = finder(w, size)
            active = _active(w, reach.within[0])
            addresses, used = _checked(w, one, reach.addresses, size, active)
            value = w.words(data, 1)[0] >> distance
            if used is None:
                memory.write_small(addresses, value, size)
            else:
                memory.write_small(addresses[used], value[used], size)

        return store
    half, signed = bool(found[5]), kind.startswith("S") and kind != "SHORT"

    def load(w: Waves) -> None:
        reach = finder(w, size)
        addresses, used = _checked(w, one, reach.addresses, size, _active(w, reach.within[0]))
        value = memory.read_small(addresses, size)
        if used is not None:
            value = value * used
        if signed:
            value = value.astype(np.int16 if size == 2 else np.int8).astype(I32).view(U32)
        if half:
            old = w.words(data, 1)[0]
            value = value & U32(0xFFFF)
            value = value << U32(16) | old & U32(0xFFFF) if high else value | old & U32(0xFFFF0000)
        w.put(data, value[None])

    return load


def _write(w: Waves, one: Instruction, reach: Reach, values: Array) -> None:
    if len(reach.within) == 1:
        active = _active(w, reach.within[0])
        addresses, used = _checked(w, one, reach.addresses, 4 * len(values), active)
        if used is None:
            memory.write_words(addresses, values)
        else:
            memory.write_words(addresses[used], values[:, used])
        return
    for word, within in enumerate(reach.within):
        at = reach.addresses + U64(4 * word)
        addresses, used = _checked(w, one, at, 4, _active(w, within))
        if used is None:
            memory.write_words(addresses, values[word : word + 1])
        else:
            memory.write_words(addresses[used], values[word : word + 1, used])


def _to_lds(one: Instruction, finder: Finder, kind: str) -> Step:
    """From memory to the LDS: each lane's words follow those of the lane before it.

    An inactive lane leaves its place unchanged; values out of a buffer's range are 0.
    """
    if kind not in _WORDS:
        raise UnsupportedError("bytes or halves loaded to the LDS")
    words = _WORDS[kind]
    offset = one["offset"] if one.form == "MUBUF" else _signed(one["offset"], 13)

    def run(w: Waves) -> None:
        machine = w.machine
        values = _read(w, one, finder(w, 4 * words), words)
        base = (w.u[M0] & U32(0x3FFFF)).astype(I64) + offset
        places = base + np.arange(LANES) * (4 * words)
        bad = w.exec & ((places < 0) | (places + 4 * words > machine.lds_bytes))
        if bad.any():
            detail = f"{4 * words} bytes loaded to {machine.lds_bytes:#x} bytes of LDS"
            machine.report(w, one, "out of range", detail, bad)
        used = w.exec & ~bad
        places = (places + (w.groups * machine.lds_row)[:, None])[used]
        octets = places[:, None] + np.arange(4 * words)
        machine.lds[octets] = np.ascontiguousarray(values[:, used].T).view(U8)
        if machine.lds_written is not None:
            machine.lds_written[octets] = True

    return run


# ---------------------------------------------------------------------------------------------
# Atomics: lanes one after the other


def _bf16_sum(old: Array, value: Array) -> Array:
    """The sum of two pairs of bf16, in the halves of u32."""
    halves = [
        bf16_bits(from_bf16(old >> U32(at)) + from_bf16(value >> U32(at))).astype(U32) << U32(at)
        for at in (0, 16)
    ]
    return halves[0] | halves[1]


def _f16_sum(old: Array, value: Array) -> Array:
    pairs = np.ascontiguousarray(old).view(F16) + np.ascontiguousarray(value).view(F16)
    result: Array = pairs.view(U32)
    return result


#: By name: type in memory, and the new number of an old one and the operand.
_UPDATES: dict[str, tuple[type[np.generic], Callable[[Array, Array], Array]]] = {
    "SWAP": (U32, lambda old, value: value),
    "ADD": (U32, np.add),
    "SUB": (U32, np.subtract),
    "SMIN": (I32, np.minimum),
    "UMIN": (U32, np.minimum),
    "SMAX": (I32, np.maximum),
    "UMAX": (U32, np.maximum),
    "AND": (U32, np.bitwise_and),
    "OR": (U32, np.bitwise_or),
    "XOR": (U32, np.bitwise_xor),
    "ADD_F32": (F32, np.add),
    "PK_ADD_F16": (U32, _f16_sum),
    "PK_ADD_BF16": (U32, _bf16_sum),
    "ADD_F64": (F64, np.add),
    "ADD_X2": (U64, np.add),
    "SWAP_X2": (U64, lambda old, value: value),
}


def _bind_atomic(one: Instruction, literals: Literals) -> Step:
    found = _ATOMIC.match(one.name)
    assert found
    finder = _FINDERS[found[1]](one, literals)
    kind, update = _UPDATES[found[2]]
    words = np.dtype(kind).itemsize // 4
    source = _data(one, "vdata" if found[1] == "BUFFER" else "data")
    # With sc0 the operation returns the previous value.
    target = (source if found[1] == "BUFFER" else _data(one, "vdst")) if one["sc0"] else None

    def run(w: Waves) -> None:
        reach = finder(w, 4 * words)
        active = _active(w, reach.within[-1])
        addresses, used = _checked(w, one, reach.addresses, 4 * words, active)
        lanes = np.ones(addresses.shape, bool) if used is None else used
        crooked = lanes & (addresses % U64(4 * words) != 0)
        if crooked.any():
            first = int(addresses[first_of(crooked)])
            w.machine.report(w, one, "misaligned", f"{4 * words} bytes at {first:#x}", crooked)
            lanes = lanes & ~crooked
        raw = w.words(source, words)
        pair = raw[0] if words == 1 else raw[0].astype(U64) | raw[1].astype(U64) << U64(32)
        old = np.zeros(addresses.shape, kind)
        with w.machine.lock:
            old[lanes] = _in_order(addresses[lanes], kind, update, pair[lanes].view(kind))
        if target is not None:
            bits: Array = old.view(U32 if words == 1 else U64)
            parts = [bits] if words == 1 else [bits.astype(U32), (bits >> U64(32)).astype(U32)]
            w.put(target, np.stack(parts))

    return run


def _in_order(
    addresses: Array,
    kind: type[np.generic],
    update: Callable[[Array, Array], Array],
    values: Array,
) -> Array:
    """Update numbers in memory, and return the old ones."""
    old = np.empty(addresses.shape, kind)
    # Of lanes that share an address the first, then the next, ...
    rest = np.arange(len(addresses))
    while len(rest):
        now = rest[np.unique(addresses[rest], return_index=True)[1]]
        before = memory.read_numbers(addresses[now], kind)
        old[now] = before
        memory.write_numbers(addresses[now], update(before, values[now]).astype(kind, copy=False))
        rest = np.setdiff1d(rest, now, assume_unique=True)
    return old


def _names() -> dict[str, Binder]:
    names: dict[str, Binder] = {}
    halves = [f"{kind}_D16{high}" for kind in ("UBYTE", "SBYTE", "SHORT") for high in ("", "_HI")]
    loads = ["UBYTE", "SBYTE", "USHORT", "SSHORT", *_WORDS, *halves]
    stores = ["BYTE", "SHORT", *_WORDS, "BYTE_D16_HI", "SHORT_D16_HI"]
    for space in _FINDERS:
        names |= {f"{space}_LOAD_{kind}": _bind_access for kind in loads}
        names |= {f"{space}_STORE_{kind}": _bind_access for kind in stores}
    for kind in ("DWORD", "DWORDX3", "DWORDX4"):
        names[f"GLOBAL_LOAD_LDS_{kind}"] = _bind_access
    for space in ("BUFFER", "GLOBAL", "FLAT"):
        names |= {f"{space}_ATOMIC_{kind}": _bind_atomic for kind in _UPDATES}
    return names


BUFFERS = _names()
