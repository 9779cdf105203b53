"""Reads AITER's v3 configuration tables: which .co file serves which problems.

Serves the generators of AITER from 2025-11 (wheel 0.1.7.post2.dev18), whose C++ text has a
`FmhaFwdV3Buf` or `FmhaBwdV3Buf` specialisation per row, and the dispatch; and, for checks only, the
CSV tables of other generators and later AITERs.
"""

from __future__ import annotations

import csv
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.errors import CodegenError, Finding

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
        key: the library looks it up by ``hsa/<arch>/<subdir>/<kernel>.co``.
        file: tree-relative path of the .co file, which may be missing.
        arch: the architecture, such as ``gfx942``.
        dtype: bf16 or fp16.
    """

    key: str
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


def read_rows(text: str, arch: str, direction: str, hsa_dir: str) -> tuple[AsmKernel, ...]:
    """Return the rows of the table in a generator's text, in order; rows may share a code object.

    Args:
        text: the generator, or the C++ it writes.
        hsa_dir: tree-relative directory of the .co files.
    """
    return tuple(
        kernel
        for match in _ROW.finditer(text)
        for kernel in _kernels(match["traits"], match["file"], arch, direction, hsa_dir)
    )


def read_calls(text: str, arch: str, direction: str, hsa_dir: str) -> tuple[AsmCall, ...]:
    """Return the launches of a dispatch, in order.

    Raises:
        CodegenError: the table lacks the row of a launch, or there is no launch.
    """
    files = {_traits(m["traits"], direction): m["file"] for m in _ROW.finditer(text)}

    def kernels(traits: str) -> tuple[AsmKernel, ...]:
        normal = _traits(traits, direction)
        if normal not in files:
            raise _not_understood(arch, direction, f"a launch for <{traits}> without a table row")
        return _kernels(traits, files[normal], arch, direction, hsa_dir)

    if direction == "fwd":
        calls = [AsmCall(kernels(match["traits"])) for match in _FWD_CALL.finditer(text)]
    else:
        calls = []
        types: dict[str, tuple[str, str]] = {}
        for step in _BWD_STEP.finditer(text):
            if step["name"]:
                if step["name"] == "dq_dk_dv_v3_traits_" and step["name"] in types:
                    found = f"traits <{types[step['name']][1]}> that nothing launches"
                    raise _not_understood(arch, direction, found)
                types[step["name"]] = (step["type"], step["traits"])
                continue
            names = [name.strip() for name in step["names"].split(",")]
            blobs = kernels(types.pop("dq_dk_dv_v3_traits_")[1])
            helpers = [types[name] for name in names if name in types]
            if step["call"].endswith("_gfx950") and "convert_dq_trait_" not in names:
                blobs += (_dq_shuffle(blobs[0], hsa_dir),)
            calls.append(AsmCall(blobs, tuple(helper_type(*helper) for helper in helpers)))
        if "dq_dk_dv_v3_traits_" in types:
            raise _not_understood(arch, direction, "traits at its end that nothing launches")
    if not calls:
        raise _not_understood(arch, direction, "no launch")
    return tuple(dict.fromkeys(calls))


def read_csv(path: Path, name: str, arch: str, hsa_dir: str) -> tuple[str, ...]:
    """Return the tree-relative paths of the .co files a CSV table names.

    Args:
        path: the table; its column is called co_name or knl_file.
        hsa_dir: tree-relative directory of the module's .co files.
    """
    lines = [
        line
        for line in path.read_text(encoding="utf-8-sig").splitlines()
        if line.strip() and not line.lstrip().startswith(("//", "#", ";"))
    ]
    folder = posixpath.dirname(name)
    folders = [folder]
    if folder == hsa_dir:
        direction = hsa_dir.rpartition("_")[2]
        folders = [f"{folder}/{part}" for part in _BY_UNITS.get((arch, direction), ("",))]
    return tuple(
        posixpath.normpath(f"{place}/{(row.get('co_name') or row.get('knl_file') or '').strip()}")
        for row in csv.DictReader(lines)
        for place in folders
        if row.get("co_name") or row.get("knl_file")
    )


def helper_type(name: str, traits: str) -> str:
    """Return a traits type as C++ writes it, always with the same spaces."""
    return f"{name}<{', '.join(part.strip() for part in traits.split(','))}>"


def _kernels(
    traits: str, name: str, arch: str, direction: str, hsa_dir: str
) -> tuple[AsmKernel, ...]:
    parts = _traits(traits, direction)
    if direction == "fwd":
        dtype, hdim_q, mask, group = parts[0], int(parts[1]), parts[2], parts[8]
        hdim_v = _FWD_HDIM_V.get(hdim_q, hdim_q)
    else:
        hdim_q, hdim_v, dtype, mask, group = int(parts[0]), int(parts[1]), *parts[2:4], parts[8]
    return tuple(
        AsmKernel(
            key=f"{_key_dir(hsa_dir)}/{units}{name}",
            file=f"{hsa_dir}/{units}{name}",
            arch=arch,
            direction=direction,
            dtype=_DTYPES[dtype.removeprefix("Fmha")],
            hdim_q=hdim_q,
            hdim_v=hdim_v,
            mode="group" if group == "1" else "batch",
            mask=mask != "0",
        )
        for units in _BY_UNITS.get((arch, direction), ("",))
    )


def _dq_shuffle(kernel: AsmKernel, hsa_dir: str) -> AsmKernel:
    """Return the kernel that reorders dq, named as in `dq_shuffle_traits_`."""
    group = "_group" if kernel.mode == "group" else ""
    name = f"bwd_hd{kernel.hdim_q}_dq_shuffle{group}.co"
    values = {**vars(kernel), "key": f"{_key_dir(hsa_dir)}/{name}", "file": f"{hsa_dir}/{name}"}
    return AsmKernel(**values)


def _key_dir(hsa_dir: str) -> str:
    return hsa_dir[hsa_dir.index("hsa/") :]


def _traits(text: str, direction: str) -> tuple[str, ...]:
    """Return template arguments with defaults filled in and booleans as numbers."""
    parts = [part.strip() for part in text.split(",")]
    if direction == "fwd":
        parts += ["1", "false"][len(parts) - 7 :]
    values: Sequence[str] = [{"false": "0", "true": "1"}.get(part, part) for part in parts]
    return tuple(values)


def _not_understood(arch: str, direction: str, found: str) -> CodegenError:
    return CodegenError(
        Finding(
            place=f"fmha_v3_{direction}/codegen.py for {arch}",
            found=found,
            expected="tables and dispatch as AITER 0.1.7 has them",
            fix="extend qola/codegen/asm/tables.py",
        )
    )
