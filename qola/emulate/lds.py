"""Local memory (DS): reads and writes of a workgroup's own row of the LDS."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from qola.emulate.arrays import F32, I64, U8, U16, U32, U64, Array, first_of
from qola.emulate.decode import Instruction
from qola.emulate.lanes import Binder
from qola.emulate.memory import misaligned
from qola.emulate.operands import Literals, UnsupportedError, listed
from qola.emulate.waves import AGPRS, VGPRS, Step, Waves

_BYTES = {"B8": 1, "U8": 1, "I8": 1, "B16": 2, "U16": 2, "I16": 2}
_WORDS = {"B32": 1, "B64": 2, "B96": 3, "B128": 4}
_ACCESS = re.compile(r"DS_(READ|WRITE)(2ST64|2)?_([BUI]\d+)(_D16)?(_HI)?$")


def _row(w: Waves) -> Array:
    """Where each wave's LDS begins, in bytes."""
    start: Array = (w.groups * w.machine.lds_row)[:, None]
    return start


def _addresses(one: Instruction, offset: int) -> Callable[[Waves], Array]:
    address = listed(one["addr"], "u32")
    if not offset:
        return lambda w: address(w).astype(I64)
    return lambda w: address(w).astype(I64) + offset


def in_lds(
    w: Waves, one: Instruction, addresses: Array, size: int, write: bool
) -> tuple[Array, Array | None]:
    """Bytes of the LDS that may be used, and the lanes whose are their own (None for all)."""
    machine = w.machine
    active = None if w.full else w.exec
    limit = machine.lds_bytes - size
    if active is not None:
        addresses = np.where(active, addresses, 0)
    if addresses.size and (int(addresses.max()) > limit or int(addresses.min()) < 0):
        bad = (addresses > limit) | (addresses < 0)
        if active is not None:
            bad &= active
        if bad.any():
            first = int(addresses[first_of(bad)])
            detail = f"{size} bytes at {first:#x} of {machine.lds_bytes:#x} bytes of LDS"
            machine.report(w, one, "out of range", detail, bad)
            active = ~bad if active is None else active & ~bad
        addresses = np.where(bad, 0, addresses)
    places = addresses + _row(w)
    if machine.lds_written is not None:
        _check(w, one, places, size, active, write)
    return places, active


def _check(
    w: Waves, one: Instruction, places: Array, size: int, active: Array | None, write: bool
) -> None:
    """With checks: record written bytes, and report reads before a write."""
    written = w.machine.lds_written
    assert written is not None
    octets = places[..., None] + np.arange(size)
    alignment = min(size, 4)
    lanes = np.ones(places.shape, bool) if active is None else active
    crooked = lanes & (places % alignment != 0)
    if crooked.any():
        first = int(places[first_of(crooked)])
        w.machine.report(w, one, "misaligned", f"{size} bytes at {first:#x} of the LDS", crooked)
    if write:
        written[octets if active is None else octets[active]] = True
        return
    missing = lanes & ~written[octets].all(axis=-1)
    if missing.any():
        row, lane = first_of(missing)
        address = int(places[row, lane]) - int(w.groups[row]) * w.machine.lds_row
        w.machine.report(
            w, one, "uninitialised LDS", f"{size} bytes at {address:#x} of the LDS", missing
        )


def read(w: Waves, places: Array, words: int) -> Array:
    """Words of the LDS at places that may be used: (words, waves, lanes)."""
    unsigned = places.view(U64)
    if words == 4 and not misaligned(unsigned, 16):
        quads = w.machine.lds_quads[places >> 4].view(U32)
        return quads.reshape((*places.shape, 4)).transpose(2, 0, 1)
    if not misaligned(unsigned, 4):
        first = places >> 2
        if words == 1:
            return w.machine.lds_words[first][None]
        return np.stack([w.machine.lds_words[first + word] for word in range(words)])
    octets = w.machine.lds[places[..., None] + np.arange(4 * words)]
    return octets.view(U32).transpose(2, 0, 1)


def write(w: Waves, places: Array, values: Array) -> None:
    """Write words, (words, n), to n places of the LDS."""
    if not misaligned(places.view(U64), 4):
        first = places >> 2
        for word, value in enumerate(values):
            w.machine.lds_words[first + word] = value
        return
    octets = np.ascontiguousarray(np.moveaxis(values, 0, -1)).view(U8)
    w.machine.lds[places[..., None] + np.arange(4 * len(values))] = octets


def _put(w: Waves, number: int, values: Array, active: Array | None) -> None:
    """Write loaded words to registers; lanes whose address was out of range get 0."""
    if active is not None and active is not w.exec:
        values = values * active
    w.put(number, values)


def _data(one: Instruction, name: str) -> int:
    return one[name] + (AGPRS - VGPRS) * one["acc"]


def _offset(one: Instruction) -> int:
    return one["offset0"] | one["offset1"] << 8


def _bind_access(one: Instruction, literals: Literals) -> Step:
    found = _ACCESS.match(one.name)
    assert found
    direction, pair, kind = found[1], found[2], found[3]
    if one["gds"]:
        raise UnsupportedError("global data share")
    if kind in _BYTES:
        return _small(one, direction, kind, bool(found[4]), bool(found[5]))
    words = _WORDS[kind]
    if pair:
        step = 4 * words * (64 if pair == "2ST64" else 1)
        offsets = [one["offset0"] * step, one["offset1"] * step]
    else:
        offsets = [_offset(one)]
    addresses = [_addresses(one, offset) for offset in offsets]
    if direction == "READ":
        target = _data(one, "vdst")

        def load(w: Waves) -> None:
            # Both addresses before any write: they may share a register with the destination.
            parts = []
            for address in addresses:
                places, active = in_lds(w, one, address(w), 4 * words, False)
                parts.append((read(w, places, words), active))
            for number, (values, active) in enumerate(parts):
                _put(w, target + number * words, values, active)

        return load
    sources = [_data(one, "data0"), _data(one, "data1")]

    def store(w: Waves) -> None:
        for address, source in zip(addresses, sources, strict=False):
            places, active = in_lds(w, one, address(w), 4 * words, True)
            values = w.words(source, words)
            if active is None:
                write(w, places, values)
            else:
                write(w, places[active], values[:, active])

    return store


def _small(one: Instruction, direction: str, kind: str, half: bool, high: bool) -> Step:
    """Values of 8 or 16 bits: extended, or half of a register with the other half kept."""
    size = _BYTES[kind]
    address = _addresses(one, _offset(one))
    signed = kind.startswith("I")
    if direction == "WRITE":
        source = _data(one, "data0")
        distance = U32(16 if high else 0)

        def store(w: Waves) -> None:
            places, active = in_lds(w, one, address(w), size, True)
            value = w.words(source, 1)[0] >> distance
            if active is not None:
                places, value = places[active], value[active]
            for byte in range(size):
                w.machine.lds[places + byte] = (value >> U32(8 * byte)).astype(U8)

        return store
    target = _data(one, "vdst")

    def load(w: Waves) -> None:
        places, active = in_lds(w, one, address(w), size, False)
        value = w.machine.lds[places].astype(U32)
        if size == 2:
            value = value | w.machine.lds[places + 1].astype(U32) << U32(8)
        if signed:
            narrow = value.astype(U16).view(np.int16) if size == 2 else value.astype(np.int8)
            value = narrow.astype(np.int32).view(U32)
        if half:
            old = w.words(target, 1)[0]
            value = value & U32(0xFFFF)
            value = value << U32(16) | old & U32(0xFFFF) if high else value | old & U32(0xFFFF0000)
        _put(w, target, value[None], active)

    return load


def _bind_transposed(one: Instruction, literals: Literals) -> Step:
    """Four rows of 16 values of 16 bits in 16 lanes; each lane gets a column.

    Lane l reads four values of row l / 4, and gets value l of each of the four rows.
    """
    address, target = _addresses(one, _offset(one)), _data(one, "vdst")
    lane = np.arange(64)
    group, column = lane // 16 * 16, lane % 16
    # For each of the four rows, the lane that read the column's value, and which of its four.
    sources = np.stack([group + 4 * row + column // 4 for row in range(4)], axis=-1)
    which = np.broadcast_to((column % 4)[:, None], (64, 4))

    def run(w: Waves) -> None:
        places, active = in_lds(w, one, address(w), 8, False)
        halves = np.ascontiguousarray(np.moveaxis(read(w, places, 2), 0, -1)).view(U16)
        turned = np.ascontiguousarray(halves[:, sources, which]).view(U32)
        _put(w, target, np.moveaxis(turned, -1, 0), active)

    return run


def _bind_add_f32(one: Instruction, literals: Literals) -> Step:
    address, source = _addresses(one, _offset(one)), _data(one, "data0")

    def run(w: Waves) -> None:
        places, active = in_lds(w, one, address(w), 4, True)
        lanes = np.ones(places.shape, bool) if active is None else active
        crooked = lanes & (places % 4 != 0)
        if crooked.any():
            first = int(places[first_of(crooked)])
            w.machine.report(w, one, "misaligned", f"4 bytes at {first:#x} of the LDS", crooked)
            lanes = lanes & ~crooked
        values = w.words(source, 1)[0].view(F32)
        np.add.at(w.machine.lds_words.view(F32), places[lanes] >> 2, values[lanes])

    return run


def _names() -> list[str]:
    single = [f"DS_{d}_{k}" for d in ("READ", "WRITE") for k in _WORDS]
    double = [
        f"DS_{d}{p}_{k}" for d in ("READ", "WRITE") for p in ("2", "2ST64") for k in ("B32", "B64")
    ]
    small = [f"DS_READ_{k}" for k in ("U8", "I8", "U16", "I16")] + ["DS_WRITE_B8", "DS_WRITE_B16"]
    halves = [f"DS_READ_{k}_D16{h}" for k in ("U8", "I8", "U16") for h in ("", "_HI")]
    return [*single, *double, *small, *halves, "DS_WRITE_B8_D16_HI", "DS_WRITE_B16_D16_HI"]


LDS: dict[str, Binder] = dict.fromkeys(_names(), _bind_access)
LDS |= {"DS_READ_B64_TR_B16": _bind_transposed, "DS_ADD_F32": _bind_add_f32}
