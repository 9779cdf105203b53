"""Gives instructions of RDNA3 and RDNA4 the names, forms and fields that those of CDNA have.

Most operations are the same with another name: the rest of the emulator knows CDNA's only. The
text of an instruction keeps its own name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from gfxemu.registers import EXEC, M0, NULL, OFF, VGPRS

#: The mark of DPP in the field of the first source: of any eight lanes, with and without FI, of 16.
_DPP8, _DPP16 = (233, 234), 250
#: The upper six bits of buffer instructions, which tinygrad's decoder leaves out, by their form.
_BUFFERS = {"VBUFFER": 0b110001, "MUBUF": 0b111000}

_NAMES = {
    **{"S_CTZ_I32_B32": "S_FF1_I32_B32", "S_CTZ_I32_B64": "S_FF1_I32_B64"},
    **{"S_CLZ_I32_U32": "S_FLBIT_I32_B32", "S_CLZ_I32_U64": "S_FLBIT_I32_B64"},
    **{"S_CLS_I32": "S_FLBIT_I32", "V_CTZ_I32_B32": "V_FFBL_B32"},
    **{"V_CLZ_I32_U32": "V_FFBH_U32", "V_CLS_I32": "V_FFBH_I32"},
    "V_CVT_PK_RTZ_F16_F32": "V_CVT_PKRTZ_F16_F32",
    **{"V_CVT_FLOOR_I32_F32": "V_CVT_FLR_I32_F32", "V_CVT_NEAREST_I32_F32": "V_CVT_RPI_I32_F32"},
    **{"GLOBAL_INV": "BUFFER_INV", "GLOBAL_WB": "BUFFER_WBL2", "GLOBAL_WBINV": "BUFFER_WBL2"},
    **{"BUFFER_GL0_INV": "BUFFER_INV", "BUFFER_GL1_INV": "BUFFER_INV"},
}
#: Names of operations by pattern.
_PATTERNS = [
    (re.compile(pattern), new)
    for pattern, new in (
        (r"^V_DUAL_", "V_"),
        (r"^(V_.+)_NC_", r"\1_"),
        (r"_NUM_", "_"),
        (r"^([VS])_ADD_CO_CI_", r"\1_ADDC_CO_"),
        (r"^([VS])_SUB(REV)?_CO_CI_", r"\1_SUBB\2_CO_"),
        (r"^S_(ADDC?|SUBB?|ADDK)_CO_", r"S_\1_"),
        (r"^V_MAD_CO_", "V_MAD_"),
        (r"^V_FMA_MIX", "V_MAD_MIX"),
        (r"^(V_CMPX?)_T_F", r"\1_TRU_F"),
        (r"_NOT0_", "N1_"),
        (r"_NOT1_", "N2_"),
        (r"^DS_LOAD", "DS_READ"),
        (r"^DS_STOREXCHG", "DS_WRXCHG"),
        (r"^DS_STORE_", "DS_WRITE_"),
        (r"_2ADDR_STRIDE64_", "2ST64_"),
        (r"_2ADDR_", "2_"),
    )
]
_ACCESS = re.compile(
    r"(BUFFER|GLOBAL|FLAT|SCRATCH|S|S_BUFFER)_(LOAD|STORE)_(D16_)?(HI_)?([UIB]\d+)$"
)
_WORDS = {32: "DWORD", **{32 * count: f"DWORDX{count}" for count in (2, 3, 4, 8, 16)}}
_SMALL = {
    **{"U8": "UBYTE", "I8": "SBYTE", "U16": "USHORT", "I16": "SSHORT"},
    **{"B8": "BYTE", "B16": "SHORT"},
}
_ATOMIC = re.compile(r"(BUFFER|GLOBAL|FLAT)_ATOMIC_(.+)$")
#: CDNA's names of integer updates of memory, by RDNA's and by those of the LDS, which have a type.
TYPED_UPDATES = {
    **{"ADD_U32": "ADD", "SUB_U32": "SUB", "AND_B32": "AND", "OR_B32": "OR", "XOR_B32": "XOR"},
    **{"MIN_I32": "SMIN", "MIN_U32": "UMIN", "MAX_I32": "SMAX", "MAX_U32": "UMAX"},
    **{"INC_U32": "INC", "DEC_U32": "DEC", "INC_U64": "INC_X2", "DEC_U64": "DEC_X2"},
    **{"ADD_U64": "ADD_X2", "SUB_U64": "SUB_X2"},
    **{"AND_B64": "AND_X2", "OR_B64": "OR_X2", "XOR_B64": "XOR_X2"},
    **{"MIN_I64": "SMIN_X2", "MAX_I64": "SMAX_X2", "MIN_U64": "UMIN_X2", "MAX_U64": "UMAX_X2"},
}
_UPDATES = {
    **TYPED_UPDATES,
    **{"SWAP_B32": "SWAP", "SWAP_B64": "SWAP_X2"},
    **{"CMPSWAP_B32": "CMPSWAP", "CMPSWAP_B64": "CMPSWAP_X2"},
    **{"MIN_NUM_F32": "MIN_F32", "MAX_NUM_F32": "MAX_F32"},
}
_FORMS = {"VBUFFER": "MUBUF", "VFLAT": "FLAT", "VGLOBAL": "GLOBAL", "VSCRATCH": "SCRATCH"}
#: Forms of 32 bits, without a field for halves of registers, and where they name registers: the
#: field and its bit of op_sel.
_SHORT_FORMS = ("VOP1", "VOP2", "VOPC")
_SHORT_FIELDS = {"src0": 0, "vsrc0": 0, "vsrc1": 1, "vdst": 3}
_TYPES = re.compile(r"_[FIUB](\d\d)(?=_|$)")
#: Forms of accesses with an address of each lane, and an optional scalar one.
LANE_FORMS = ("FLAT", "GLOBAL", "SCRATCH")
#: CDNA's names of fields, by form.
_FIELDS: dict[str, dict[str, str]] = {
    "MUBUF": {"rsrc": "srsrc", "ioffset": "offset"},
    **{form: {"vaddr": "addr", "vsrc": "data", "ioffset": "offset"} for form in LANE_FORMS},
    "SMEM": {"ioffset": "offset"},
}


def find_format(code: bytes, tables: ModuleType) -> Any:
    """Return the format of an instruction that tinygrad's decoder does not know, None for others.

    Args:
        tables: tinygrad's formats of the instruction set.
    """
    upper = int.from_bytes(code[:4], "little") >> 26
    return next((getattr(tables, n, None) for n, bits in _BUFFERS.items() if bits == upper), None)


def widen(found: Any, code: bytes, tables: ModuleType) -> Any:
    """Return a decoded instruction with the word of DPP8 behind it, which tinygrad leaves out.

    Raises:
        ValueError: a form with DPP that the tables do not have.
    """
    source = getattr(getattr(found, "src0", None), "offset", 0)
    form = type(found).__name__
    if source in _DPP8 or (source == _DPP16 and "DPP" not in form):
        wide = getattr(tables, f"{form}_DPP{8 if source in _DPP8 else 16}", None)
        if wide is None:
            raise ValueError(f"{form} with DPP")
        return wide.from_bytes(code)
    return found


def translated_name(name: str) -> str:
    """Return CDNA's name of an operation; a name that only RDNA has stays."""
    if access := _ACCESS.match(name):
        space, direction, d16, high, kind = access.groups()
        word = _SMALL.get(kind) or _WORDS[int(kind[1:])]
        return f"{space}_{direction}_{word}{'_D16' if d16 else ''}{'_HI' if high else ''}"
    if atomic := _ATOMIC.match(name):
        return f"{atomic[1]}_ATOMIC_{_UPDATES.get(atomic[2], atomic[2])}"
    for pattern, new in _PATTERNS:
        name = pattern.sub(new, name)
    return _NAMES.get(name, name)


def swapped(number: int) -> int:
    """Return the number that a register of RDNA has in the emulator: M0 and NULL change places."""
    return {NULL: M0, M0: NULL}.get(number, number)


def _halves(name: str, fields: dict[str, int]) -> None:
    """Rename registers from v128 on in operands of 16 bits: upper halves of v0 to v127."""
    widths = _TYPES.findall(name)
    for field, bit in _SHORT_FIELDS.items():
        # A conversion names its result's type first.
        width = widths[0 if field == "vdst" else -1] if widths else ""
        if width == "16" and fields.get(field, 0) >= VGPRS + 128:
            fields[field] -= 128
            fields["opsel"] = fields.get("opsel", 0) | 1 << bit


def translated(
    name: str, form: str, fields: dict[str, int], words: Mapping[str, int]
) -> tuple[str, str, dict[str, int], dict[str, int]]:
    """Return name, form, fields and words of an instruction as CDNA would have them."""
    form = _FORMS.get(form, form)
    names = _FIELDS.get(form, {})
    fields = {names.get(field, field): value for field, value in fields.items()}
    # For a source that may come from another lane, the tables have the name of that field.
    names = names | ({"vsrc0": "src0"} if "vsrc0" not in fields else {})
    words = {names.get(field, field): count for field, count in words.items()}
    if form in LANE_FORMS:
        words["addr"] = 1
        fields["saddr"] = OFF if fields["saddr"] == NULL else fields["saddr"]
    if name.endswith("CMPSWAP_B64"):
        # The tables have one word.
        words["vdst"] = 2
    if form in (*LANE_FORMS, "MUBUF"):
        # The bit by which an atomic returns the old number.
        fields["sc0"] = fields.get("th", 0) & 1 | fields.get("glc", 0)
    if form == "SMEM":
        fields |= {"imm": 1, "soffset_en": int(fields["soffset"] != NULL)}
    if form.startswith(_SHORT_FORMS):
        _halves(name, fields)
    if name.startswith("V_CMPX"):
        # It writes EXEC only.
        fields["vdst"] = EXEC
    name = translated_name(name)
    if name in ("BUFFER_INV", "BUFFER_WBL2"):
        # Its fields for registers mean nothing.
        words = {}
    if name == "S_BARRIER_WAIT" and fields["simm16"] == 0xFFFF:
        name = "S_BARRIER"
    return name, form, fields, words


def dual_parts(
    names: Sequence[str], fields: Mapping[str, int]
) -> list[tuple[str, str, dict[str, int], dict[str, int]]]:
    """Return name, form, fields and words of the two operations of a VOPD instruction."""
    found = []
    for name, which in zip(map(translated_name, names), "xy", strict=True):
        own = {"src0": f"src{which}0", "vsrc1": f"vsrc{which}1", "vdst": f"vdst{which}"}
        if name == "V_MOV_B32":
            # It has one source: the other field means nothing.
            del own["vsrc1"]
        part = {field: fields[place] for field, place in own.items()}
        found.append((name, "VOP2", part, dict.fromkeys(part, 1)))
    return found
