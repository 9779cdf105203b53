"""Accesses of lanes: buffers with range checks, global and flat addresses, scratch memory, LDS."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from gfxemu import memory
from gfxemu.arrays import F16, F32, F64, I32, I64, U32, U64, Array, first_of_any
from gfxemu.check import check_access, check_memory, record_lds
from gfxemu.decode import Instruction
from gfxemu.isa import CDNA
from gfxemu.lanes import Binder
from gfxemu.numbers import bf16_bits, from_bf16
from gfxemu.operands import Literals, UnsupportedError, listed, number_of
from gfxemu.rdna import TYPED_UPDATES
from gfxemu.waves import (
    AGPRS,
    APERTURE,
    EXEC,
    LANES,
    M0,
    NULL,
    PRIVATE_APERTURE,
    SGPRS,
    VGPRS,
    Step,
    Waves,
)

#: Bytes of an access by the last word of its name.
SIZES = {
    **{"UBYTE": 1, "SBYTE": 1, "BYTE": 1, "USHORT": 2, "SSHORT": 2, "SHORT": 2},
    **{"DWORD": 4, "DWORDX2": 8, "DWORDX3": 12, "DWORDX4": 16},
    **{"B8": 1, "U8": 1, "I8": 1, "B16": 2, "U16": 2, "I16": 2},
    **{"B32": 4, "B64": 8, "B96": 12, "B128": 16},
}
SIGNED = ("SBYTE", "SSHORT", "I8", "I16")
ACCESS = re.compile(
    r"(BUFFER|GLOBAL|FLAT|SCRATCH|DS)_(LOAD|STORE|READ|WRITE)_(LDS_)?"
    r"([A-Z]+(?:X\d)?|[BUI]\d+)(_D16)?(_HI)?$"
)
ATOMIC = re.compile(r"(?:BUFFER|GLOBAL|FLAT)_ATOMIC_(.+)|DS_([A-Z]+)(_RTN)?_([A-Z]\d\d)$")
#: No register: the address is all in the vector registers.
OFF = 127
_HIGH_ADDRESS = U32(0xFFFF)

#: Address of the first byte for each lane, and for each word whether it is in range: an array, or
#: None for all; a list of one means all words alike. Addresses of inactive lanes are arbitrary,
#: except in the LDS and in scratch memory.
Reach = tuple[Array, list[Array | None]]
#: Finds the addresses of an access of some bytes: 1, 2, or a multiple of 4.
Finder = Callable[[Waves, int], Reach]


def signed_of(value: int, width: int) -> int:
    """Return a field of some bits as a number with a sign."""
    return value - (1 << width) if value >> (width - 1) & 1 else value


def offset_of(one: Instruction) -> int:
    """Return the offset of an access to global, generic or scratch memory."""
    if one.form == "FLAT" and one.isa is CDNA:
        return one["offset"]
    return signed_of(one["offset"], one.isa.offset_bits)


def _first_of_four(register: int) -> int:
    """Return the first of the scalar registers that describe a buffer.

    Raises:
        UnsupportedError: no four begin there, as at NULL, or at a vector register.
    """
    if register >= SGPRS:
        raise UnsupportedError(f"a buffer at operand {register}, which is not a scalar register")
    if register % 4:
        raise UnsupportedError(f"a buffer at s{register}, which is not a multiple of 4")
    return register


def _buffer(one: Instruction, literals: Literals) -> Finder:
    """Addresses in a buffer, base + soffset + stride * index + offset, and the range check.

    With an index and a stride other than 0, the index must be less than the number of records;
    else the offset, whose limit the scalar offset reduces.
    """
    resource, offset = _first_of_four(one["srsrc"]), one["offset"]
    soffset = listed(number_of(one, "soffset", "u32", literals), "i32")
    number = one["vaddr"]
    index = listed(number, "u32") if one["idxen"] else None
    vector = listed(number + one["idxen"], "u32") if one["offen"] else None
    # RDNA has two bits for kinds of swizzling, and several kinds of range checks with an index.
    swizzling = U32(30 if one.isa.is_rdna else 31)
    if one.isa.is_rdna and index is not None:
        raise UnsupportedError("an index into a buffer")

    def find(w: Waves, size: int) -> Reach:
        words = -(-size // 4)
        low, high, records, flags = (w.u[resource + word] for word in range(4))
        base = low.astype(U64) | (high & _HIGH_ADDRESS).astype(U64) << U64(32)
        start = soffset(w).astype(I64)
        if (swizzled := high >> swizzling).any() or (flags >> U32(23) & U32(1)).any():
            if not ((swizzled == 1) & (base == w.machine.scratch_start)).all():
                raise UnsupportedError("a buffer that is swizzled, or adds the lane's number")
            moved = offset + start if vector is None else offset + start + vector(w).astype(I64)
            return _own_scratch(w, one, np.broadcast_to(moved, w.exec.shape), size)
        if vector is None:
            within = np.full(w.exec.shape, offset, I64)
        else:
            within = vector(w).astype(I64) + offset
        stride = None
        if index is not None:
            stride = (high >> U32(16) & U32(0x3FFF)).astype(I64)
            within = within + stride * index(w)
        addresses = base + (within + start).view(U64)
        if stride is not None and index is not None and stride.all():
            counted = index(w) < records
            return addresses, [None if counted.all() else counted]
        limit = records.astype(I64) - start
        if bool((within + 4 * (words - 1) < limit).all()):
            return addresses, [None]
        return addresses, [within + 4 * word < limit for word in range(words)]

    return find


def _global(one: Instruction, literals: Literals) -> Finder:
    """Find addresses in two vector registers, or in two scalar registers plus a vector offset."""
    flat = one.form == "FLAT"
    offset = np.int64(offset_of(one)).view(U64)
    saddr = one["saddr"] & 0x7F
    address = one["addr"]

    def find(w: Waves, size: int) -> Reach:
        pair = w.words(address, 2)
        addresses = (pair[0].astype(U64) | pair[1].astype(U64) << U64(32)) + offset
        return (_generic(w, addresses, size) if flat else addresses), [None]

    def find_from(w: Waves, size: int) -> Reach:
        return w.q[saddr] + w.u[address].astype(U64) + offset, [None]

    return find if flat or saddr == OFF else find_from


def _generic(w: Waves, addresses: Array, size: int) -> Array:
    """Replace generic addresses of the LDS and of scratch memory; those beyond them stay."""
    addresses = _private(w, addresses, size)
    inside = addresses >> U64(48) == 1
    if not inside.any():
        return addresses
    machine, within = w.machine, addresses - U64(APERTURE)
    inside &= within + U64(size) <= U64(machine.lds_bytes)
    found = np.where(inside, within + w.lds_rows, addresses)
    if machine.checked:
        record_lds(w, found[inside & w.exec], size)
    return found


def _private(w: Waves, addresses: Array, size: int) -> Array:
    inside = addresses >> U64(48) == 2
    if not inside.any():
        return addresses
    machine, within = w.machine, addresses - U64(PRIVATE_APERTURE)
    inside &= within + U64(size) <= U64(machine.scratch_row)
    wave = w.groups * machine.group_waves + w.numbers
    lane = wave[:, None] * machine.lanes + np.arange(machine.lanes)
    places = (lane * machine.scratch_row + machine.scratch_start).view(U64) + within
    return np.where(inside, places, addresses)


def _scratch(one: Instruction, literals: Literals) -> Finder:
    """Addresses in a lane's own scratch memory."""
    offset = offset_of(one)
    saddr = one["saddr"] & 0x7F
    uses_vector = bool(one["sve"])
    address = one["addr"]

    def find(w: Waves, size: int) -> Reach:
        within = np.full(w.exec.shape, offset, I64)
        if uses_vector:
            within = within + w.u[address].astype(I64)
        if saddr != OFF:
            within = within + w.u[saddr].astype(I64)
        return _own_scratch(w, one, within, size)

    return find


def _own_scratch(w: Waves, one: Instruction, within: Array, size: int) -> Reach:
    """Addresses by offsets into the scratch memory of each lane."""
    machine = w.machine
    good = (within >= 0) & (within + size <= machine.scratch_row)
    if (w.exec & ~good).any():
        detail = f"beyond {machine.scratch_row} bytes of scratch memory of a lane"
        machine.report(w, one, "out of range", detail, w.exec & ~good)
    wave = w.groups * machine.group_waves + w.numbers
    lane = wave[:, None] * machine.lanes + np.arange(machine.lanes)
    places = lane * machine.scratch_row + np.where(good & w.exec, within, 0)
    return (places + machine.scratch_start).view(U64), [good]


def _lds(one: Instruction, literals: Literals) -> Finder:
    return lds_finder(one, one["offset0"] | one["offset1"] << 8)


def lds_finder(one: Instruction, offset: int) -> Finder:
    """Addresses in a workgroup's row of the LDS."""
    if one["gds"]:
        raise UnsupportedError("global data share")
    address, added = listed(one["addr"], "u32"), U64(offset)

    def find(w: Waves, size: int) -> Reach:
        machine = w.machine
        places = address(w).astype(U64)
        if offset:
            # 32 bits: compilers add an offset to a negative number.
            places = places + added & U64(0xFFFFFFFF)
        if not w.full:
            places = np.where(w.exec, places, U64(0))
        good = None
        limit = machine.lds_bytes - size
        if int(np.max(places)) > limit:
            good = places <= limit
            if bad := first_of_any(w.exec & ~good):
                detail = f"{size} bytes at {int(places[bad]):#x} of {machine.lds_bytes:#x} bytes"
                machine.report(w, one, "out of range", f"{detail} of LDS", w.exec & ~good)
            places = np.where(good, places, U64(0))
        return places + w.lds_rows, [good]

    return find


_FINDERS = {
    **{"BUFFER": _buffer, "GLOBAL": _global, "FLAT": _global},
    **{"SCRATCH": _scratch, "DS": _lds},
}


def data_register(one: Instruction, name: str) -> int:
    """Number of the first register with the data of an access."""
    return one[name] + (AGPRS - VGPRS) * one["acc"]


def _active(w: Waves, within: Array | None) -> Array | None:
    """Lanes that are on and in range; None for all."""
    if within is None:
        return None if w.full else w.exec
    return within if w.full else within & w.exec


def _checked(
    w: Waves, one: Instruction, addresses: Array, size: int, active: Array | None
) -> tuple[Array, Array | None]:
    """Addresses that may be used, and the lanes whose are their own (None for all)."""
    if one.form not in ("SCRATCH", "DS"):
        reporter = w.machine.reporter(w, one)
        addresses, active = w.machine.map.checked(addresses, size, active, reporter)
    if w.known:
        check_access(w, one, addresses, size, active)
    if one.form == "DS" and "WRITE" not in one.name:
        found = w.machine.races.read(w, one, addresses, size, active)
        w.machine.report_disorders(w, one, found)
    return addresses, active


def _accesses(
    w: Waves, one: Instruction, finder: Finder, size: int
) -> Iterator[tuple[int, int, Array, Array | None]]:
    """Yield first word, number of words, checked addresses and lanes of each part of an access."""
    start, within = finder(w, size)
    if len(within) == 1:
        yield 0, size // 4, *_checked(w, one, start, size, _active(w, within[0]))
    else:
        for word, good in enumerate(within):
            at = start + U64(4 * word)
            yield word, 1, *_checked(w, one, at, 4, _active(w, good))


def _kept(w: Waves, values: Array, used: Array | None) -> Array:
    """Loaded values, 0 for lanes without an address; registers of inactive lanes stay anyway."""
    return values if used is None or used is w.exec else values * used


def read(w: Waves, one: Instruction, finder: Finder, words: int) -> Array:
    """Words from memory, (words, waves, lanes); those that are out of range are 0."""
    parts = [
        _kept(w, memory.read_words(addresses, count), used)
        for _, count, addresses, used in _accesses(w, one, finder, 4 * words)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def write(w: Waves, one: Instruction, finder: Finder, values: Array) -> None:
    """Write words, (words, waves, lanes)."""
    for word, count, addresses, used in _accesses(w, one, finder, 4 * len(values)):
        part = values[word : word + count]
        if one.form == "DS":
            for some, found in w.machine.races.write(w, one, addresses, part, used):
                w.machine.report_disorders(w, one, found)
                memory.write_words(addresses[some], part[:, some])
        elif used is None:
            memory.write_words(addresses, part)
        else:
            memory.write_words(addresses[used], part[:, used])


def bind_access(one: Instruction, literals: Literals) -> Step:
    """A load or store of words, or of 8 or 16 bits."""
    found = ACCESS.match(one.name)
    assert found
    space, direction, to_lds, kind, half, high = found.groups()
    finder, size = _FINDERS[space](one, literals), SIZES[kind]
    if to_lds or one["lds"]:
        return _to_lds(one, finder, size)
    loads = direction in ("LOAD", "READ")
    stored = {"BUFFER": "vdata", "DS": "data0"}.get(space, "data")
    data = data_register(one, "vdst" if loads and space != "BUFFER" else stored)
    if size >= 4:
        words = size // 4
        if loads:
            return lambda w: w.put(data, read(w, one, finder, words))
        return lambda w: write(w, one, finder, w.words(data, words))
    if not loads:
        distance = U32(16 if high else 0)

        def store(w: Waves) -> None:
            for _, _, addresses, used in _accesses(w, one, finder, size):
                value = w.words(data, 1)[0] >> distance
                if one.form == "DS":
                    value = value & U32((1 << 8 * size) - 1)
                    lanes = w.machine.races.write(w, one, addresses, value, used, size)
                    for some, found in lanes:
                        w.machine.report_disorders(w, one, found)
                        memory.write_small(addresses[some], value[some], size)
                elif used is None:
                    memory.write_small(addresses, value, size)
                else:
                    memory.write_small(addresses[used], value[used], size)

        return store
    signed = kind in SIGNED

    def load(w: Waves) -> None:
        for _, _, addresses, used in _accesses(w, one, finder, size):
            value = _kept(w, memory.read_small(addresses, size), used)
            if signed:
                value = value.astype(np.int16 if size == 2 else np.int8).astype(I32).view(U32)
            if half:
                old = w.words(data, 1)[0]
                value = value & U32(0xFFFF)
                if high:
                    value = value << U32(16) | old & U32(0xFFFF)
                else:
                    value = value | old & U32(0xFFFF0000)
            w.put(data, value[None])

    return load


def _to_lds(one: Instruction, finder: Finder, size: int) -> Step:
    """From memory to the LDS: each lane's words follow those of the lane before it.

    An inactive lane leaves its place unchanged; values out of a buffer's range are 0.
    """
    if size < 4:
        raise UnsupportedError("bytes or halves loaded to the LDS")
    offset = one["offset"] if one.form == "MUBUF" else offset_of(one)

    def run(w: Waves) -> None:
        machine = w.machine
        values = read(w, one, finder, size // 4)
        places = (w.u[M0] & U32(0x3FFFF)).astype(I64) + offset + np.arange(LANES) * size
        bad = w.exec & ((places < 0) | (places + size > machine.lds_bytes))
        if bad.any():
            detail = f"{size} bytes loaded to {machine.lds_bytes:#x} bytes of LDS"
            machine.report(w, one, "out of range", detail, bad)
        used = w.exec & ~bad
        addresses = places.view(U64) + w.lds_rows
        for some, found in machine.races.write(w, one, addresses, values, used):
            machine.report_disorders(w, one, found)
            memory.write_words(addresses[some], values[:, some])
        if w.known:
            record_lds(w, addresses[used], size)

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


def _increment(old: Array, limit: Array) -> Array:
    return np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1))


def _decrement(old: Array, limit: Array) -> Array:
    return np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1))


#: By name: type in memory, and the new number of an old one and the operand.
UPDATES: dict[str, tuple[type[np.generic], Callable[[Array, Array], Array]]] = {
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
    **{
        f"{name}{wide}": (kind, function)
        for wide, kinds in (("", (U32, I32)), ("_X2", (U64, I64)))
        for name, kind, function in (
            *(("INC", kinds[0], _increment), ("DEC", kinds[0], _decrement)),
            *(("SUB", kinds[0], np.subtract), ("AND", kinds[0], np.bitwise_and)),
            *(("OR", kinds[0], np.bitwise_or), ("XOR", kinds[0], np.bitwise_xor)),
            *(("SMIN", kinds[1], np.minimum), ("SMAX", kinds[1], np.maximum)),
            *(("UMIN", kinds[0], np.minimum), ("UMAX", kinds[0], np.maximum)),
        )
        if wide or name in ("INC", "DEC")
    },
    "CMPSWAP": (U32, lambda old, value: value),
    "CMPSWAP_X2": (U64, lambda old, value: value),
}


#: Operations of the LDS, without _RTN, by the names of the others.
LDS_UPDATES = {
    **TYPED_UPDATES,
    "ADD_F32": "ADD_F32",
    **{"WRXCHG_B32": "SWAP", "WRXCHG_B64": "SWAP_X2"},
    **{"CMPST_B32": "CMPSWAP", "CMPST_B64": "CMPSWAP_X2"},
    **{"CMPSTORE_B32": "CMPSWAP", "CMPSTORE_B64": "CMPSWAP_X2"},
}


def atomic_sources(one: Instruction, words: int) -> tuple[int, int]:
    """Return the first registers of an atomic's operand, and of the number to compare with.

    DS_CMPST of CDNA has them in the other order than DS_CMPSTORE of RDNA.
    """
    space = one.name.partition("_")[0]
    if space != "DS":
        source = data_register(one, "vdata" if space == "BUFFER" else "data")
        return source, source + words
    first = data_register(one, "data0")
    if "CMPST" not in one.name:
        return first, first
    second = data_register(one, "data1")
    return (first, second) if "CMPSTORE" in one.name else (second, first)


def bind_atomic(one: Instruction, literals: Literals) -> Step:
    """An operation that reads, changes and writes memory, lane by lane."""
    found = ATOMIC.match(one.name)
    assert found
    space = one.name.partition("_")[0]
    finder = _FINDERS[space](one, literals)
    name = found[1] or LDS_UPDATES[f"{found[2]}_{found[4]}"]
    kind, update = UPDATES[name]
    compares = name.startswith("CMPSWAP")
    words = np.dtype(kind).itemsize // 4
    source, other = atomic_sources(one, words)
    target = source if space == "BUFFER" else data_register(one, "vdst")
    returns = bool(found[3] if space == "DS" else one["sc0"])

    def run(w: Waves) -> None:
        start, within = finder(w, 4 * words)
        addresses, used = _checked(w, one, start, 4 * words, _active(w, within[-1]))
        lanes = np.ones(addresses.shape, bool) if used is None else used
        crooked = lanes & (addresses % U64(4 * words) != 0)
        if bad := first_of_any(crooked):
            place = "of the LDS" if space == "DS" else f"at {int(addresses[bad]):#x}"
            detail = f"{4 * words} bytes {place}"
            w.machine.report(w, one, "misaligned", detail, crooked)
            lanes = lanes & ~crooked
        values = _numbers(w, source, words)[lanes].view(kind)
        compared = _numbers(w, other, words)[lanes] if compares else None
        if isinstance(update, np.ufunc) and not returns:
            memory.update_numbers(addresses[lanes], update, values)
            return
        old = np.zeros(addresses.shape, kind)
        old[lanes] = _in_order(addresses[lanes], update, values, compared)
        if returns:
            bits: Array = old.view(U32 if words == 1 else U64)
            parts = [bits] if words == 1 else [bits.astype(U32), (bits >> U64(32)).astype(U32)]
            w.put(target, np.stack(parts))

    return run


def _numbers(w: Waves, register: int, words: int) -> Array:
    """Return registers, or pairs of them, as numbers of 32 or 64 bits."""
    raw = w.words(register, words)
    return raw[0] if words == 1 else raw[0].astype(U64) | raw[1].astype(U64) << U64(32)


def _in_order(
    addresses: Array,
    update: Callable[[Array, Array], Array],
    values: Array,
    compared: Array | None = None,
) -> Array:
    """Update numbers in memory, only those equal to `compared` if given; return the old ones."""
    old = np.empty_like(values)
    # Of lanes that share an address the first, then the next, ...
    rest = np.arange(len(addresses))
    while len(rest):
        now = rest[np.unique(addresses[rest], return_index=True)[1]]
        old[now] = memory.read_numbers(addresses[now], values.dtype)
        new = update(old[now], values[now]).astype(values.dtype, copy=False)
        if compared is not None:
            new = np.where(old[now] == compared[now], new, old[now])
        memory.write_numbers(addresses[now], new)
        rest = np.setdiff1d(rest, now, assume_unique=True)
    return old


def _names() -> dict[str, Binder]:
    halves = [f"{kind}_D16{high}" for kind in ("UBYTE", "SBYTE", "SHORT") for high in ("", "_HI")]
    words = ["DWORD", "DWORDX2", "DWORDX3", "DWORDX4"]
    loads = ["UBYTE", "SBYTE", "USHORT", "SSHORT", *words, *halves]
    stores = ["BYTE", "SHORT", *words, "BYTE_D16_HI", "SHORT_D16_HI"]
    spaces = ("BUFFER", "GLOBAL", "FLAT", "SCRATCH")
    names = [f"{space}_LOAD_{kind}" for space in spaces for kind in loads]
    names += [f"{space}_STORE_{kind}" for space in spaces for kind in stores]
    names += [f"GLOBAL_LOAD_LDS_{kind}" for kind in ("DWORD", "DWORDX3", "DWORDX4")]
    atomics = [f"{space}_ATOMIC_{kind}" for space in spaces[:3] for kind in UPDATES]
    return {**dict.fromkeys(names, bind_access), **dict.fromkeys(atomics, bind_atomic)}


BUFFERS = _names()


SCALAR_LOAD = re.compile(r"S_(BUFFER_)?LOAD_(?:DWORD(?:X(\d+))?|([US])(BYTE|SHORT))$")
_COUNTS = (1, 2, 3, 4, 8, 16)


def _bind(one: Instruction, literals: Literals) -> Step:
    found = SCALAR_LOAD.match(one.name)
    assert found
    words = int(found[2] or 1)
    # Bytes of a number of 8 or 16 bits.
    small = {"BYTE": 1, "SHORT": 2}.get(found[4], 0)
    signed = found[3] == "S"
    base, target = one["sbase"], one["sdata"]
    buffer = bool(found[1])
    if buffer:
        _first_of_four(base)
    raw = one["offset"] if one["imm"] else 0
    offset = signed_of(raw, one.isa.scalar_offset_bits)
    register = one["soffset"] if one["soffset_en"] else None
    if not one["imm"] and register is None:
        # Without both, the offset field is a register's number.
        register = one["offset"] & 0x7F
    is_null, drops = (one.isa.is_rdna and number == NULL for number in (base, target))
    changes_exec = not drops and target <= EXEC + 1 and target + words > EXEC

    def run(w: Waves) -> None:
        distance: Array | int = offset
        if register is not None:
            distance = w.u[register].astype(I64) + offset
        start = np.zeros((w.count, 1), U64) if is_null else w.q[base]
        within: list[Array] = []
        if buffer:
            records = w.u[base + 2].astype(I64)
            within = [distance + 4 * word + max(small - 1, 0) < records for word in range(words)]
            start = start & U64(0xFFFFFFFFFFFF)
        addresses = start + np.asarray(distance, I64).view(U64)
        if not small:
            # The two lowest bits of an address are ignored.
            addresses = addresses & ~U64(3)
        # Of a buffer each word by itself: those out of its range are 0, whatever lies there.
        step = 1 if buffer else words
        parts = []
        for word in range(0, words, step):
            checked, used = w.machine.map.checked(
                addresses + U64(4 * word),
                small or 4 * step,
                within[word] if within else None,
                w.machine.reporter(w, one),
            )
            if w.known:
                lanes = np.ones(checked.shape, bool) if used is None else used
                check_memory(w, one, checked, small or 4 * step, lanes)
            if small:
                found = memory.read_small(checked, small)[None]
                if signed:
                    found = found.astype(np.int16 if small == 2 else np.int8).astype(I32).view(U32)
            else:
                found = memory.read_words(checked, step)
            parts.append(found if used is None else found * used)
        if drops:
            return
        values = np.concatenate(parts)
        w.s[:, target : target + words] = values[:, :, 0].T
        if changes_exec:
            w.update_exec()

    return run


SCALAR_MEMORY: dict[str, Binder] = {
    f"S_{buffer}LOAD_{kind}": _bind
    for buffer in ("", "BUFFER_")
    for kind in (
        *(f"DWORD{f'X{count}' if count > 1 else ''}" for count in _COUNTS),
        *("UBYTE", "SBYTE", "USHORT", "SSHORT"),
    )
}
