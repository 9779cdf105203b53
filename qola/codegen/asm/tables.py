"""Reads AITER's v3 configuration tables: which .co file serves which problems.

Serves the generators of AITER from 2025-11 (wheel 0.1.7.post2.dev18), whose C++ text has a
`FmhaFwdV3Buf` or `FmhaBwdV3Buf` specialisation per row, and the dispatch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from qola_base.errors import CodegenError, Finding

#: Subfolders by compute units: 304 have an MI300, 80 or 64 an MI308.
_BY_UNITS = {("gfx942", "fwd"): ("MI300/", "MI308/")}
_DTYPES = {"FwdBf16": "bf16", "FwdFp16": "fp16", "BwdBf16": "bf16", "BwdFp16": "fp16"}
#: A forward selector has one head dim for both; 192 stands for 192x128 in the dispatch.
_FWD_HDIM_V = {64: 64, 128: 128, 192: 128}

_ROW = re.compile(
    r"^template<> struct Fmha(?:Fwd|Bwd)V3Buf<\w+<(?P<traits>[^<>]*)>> "
    r'\{[^"\n]*= "(?P<file>[^"\n]+)"; \}',
    re.MULTILINE,
)
_FWD_CALL = re.compile(r"using fmha_fwd_kernel = fmha_fwd_kernel_selector<(?P<traits>[^<>]*)>;")
_BWD_STEP = re.compile(
    r"using (?P<name>dot_do_o_trait_|dq_dk_dv_v3_traits_|convert_dq_trait_) = "
    r"(?P<type>\w+)<(?P<traits>[^<>]*)>;|r = (?P<call>fmha_bwd_v3_\w*)<(?P<names>[^<>]*)>\("
)


@dataclass(frozen=True)
class AsmKernel:
    """One row of a v3 configuration table: a code object and the problems it is for.

    Attributes:
        file: tree-relative path of the .co file, which may be missing.
    """

    file: str
    arch: str
    direction: str
    dtype: str
    hdim_q: int
    hdim_v: int
    mode: str
    mask: bool


@dataclass(frozen=True)
class AsmCall:
    """One launch in a v3 dispatch.

    Attributes:
        kernels: the code objects that it may load, all for the same problems; the first ones
            differ only by compute units.
        helpers: C++ traits types of the helper kernels.
    """

    kernels: tuple[AsmKernel, ...]
    helpers: tuple[str, ...] = ()


def read_rows(text: str, folder: str) -> tuple[AsmKernel, ...]:
    """Return the rows of the table in a generator's text, in order; rows may share a code object.

    Args:
        text: the generator, or the C++ it writes.
        folder: tree-relative directory of the .co files, ``hsa/<arch>/fmha_v3_<direction>``.
    """
    return tuple(
        kernel
        for match in _ROW.finditer(text)
        for kernel in _kernels(match["traits"], match["file"], folder)
    )


def read_calls(text: str, folder: str) -> tuple[AsmCall, ...]:
    """Return the launches of a dispatch, in order.

    Raises:
        CodegenError: the table lacks the row of a launch, or nothing is launched.
    """
    is_fwd = folder.endswith("_fwd")
    files = {_traits(m["traits"], is_fwd): m["file"] for m in _ROW.finditer(text)}

    def kernels(traits: str) -> tuple[AsmKernel, ...]:
        file = files.get(_traits(traits, is_fwd))
        if file is None:
            raise _not_understood(folder, f"a launch for <{traits}> without a table row")
        return _kernels(traits, file, folder)

    if is_fwd:
        calls = [AsmCall(kernels(match["traits"])) for match in _FWD_CALL.finditer(text)]
    else:
        calls = []
        types: dict[str, tuple[str, str]] = {}
        for step in _BWD_STEP.finditer(text):
            if step["name"]:
                if step["name"] == "dq_dk_dv_v3_traits_" and step["name"] in types:
                    found = f"traits <{types[step['name']][1]}> that nothing launches"
                    raise _not_understood(folder, found)
                types[step["name"]] = (step["type"], step["traits"])
                continue
            names = [name.strip() for name in step["names"].split(",")]
            blobs = kernels(types.pop("dq_dk_dv_v3_traits_")[1])
            if step["call"].endswith("_gfx950") and "convert_dq_trait_" not in names:
                # The kernel that reorders dq, named as in `dq_shuffle_traits_`.
                group = "_group" if blobs[0].mode == "group" else ""
                file = f"{folder}/bwd_hd{blobs[0].hdim_q}_dq_shuffle{group}.co"
                blobs += (replace(blobs[0], file=file),)
            helpers = (helper_type(*types[name]) for name in names if name in types)
            calls.append(AsmCall(blobs, tuple(helpers)))
        if "dq_dk_dv_v3_traits_" in types:
            raise _not_understood(folder, "traits at its end that nothing launches")
    if not calls:
        raise _not_understood(folder, "no launch")
    return tuple(dict.fromkeys(calls))


def helper_type(name: str, traits: str) -> str:
    """Return a traits type as C++ writes it, always with the same spaces."""
    return f"{name}<{', '.join(part.strip() for part in traits.split(','))}>"


def _kernels(traits: str, name: str, folder: str) -> tuple[AsmKernel, ...]:
    *_, arch, subdir = folder.split("/")
    direction = subdir[-3:]
    parts = _traits(traits, direction == "fwd")
    if direction == "fwd":
        dtype, hdim_q, mask = parts[0], int(parts[1]), parts[2]
        hdim_v = _FWD_HDIM_V.get(hdim_q, hdim_q)
    else:
        hdim_q, hdim_v, dtype, mask = int(parts[0]), int(parts[1]), *parts[2:4]
    return tuple(
        AsmKernel(
            file=f"{folder}/{units}{name}",
            arch=arch,
            direction=direction,
            dtype=_DTYPES[dtype.removeprefix("Fmha")],
            hdim_q=hdim_q,
            hdim_v=hdim_v,
            mode="group" if parts[8] == "1" else "batch",
            mask=mask != "0",
        )
        for units in _BY_UNITS.get((arch, direction), ("",))
    )


def _traits(text: str, is_fwd: bool) -> tuple[str, ...]:
    """Return template arguments with defaults filled in and booleans as numbers."""
    parts = [part.strip() for part in text.split(",")]
    if is_fwd:
        parts += ["1", "false"][len(parts) - 7 :]
    return tuple({"false": "0", "true": "1"}.get(part, part) for part in parts)


def _not_understood(folder: str, found: str) -> CodegenError:
    expected = "tables and dispatch as AITER 0.1.7 has them"
    fix = "extend qola/codegen/asm/tables.py"
    return CodegenError(Finding(f"{folder}/codegen.py", found, expected, fix))
