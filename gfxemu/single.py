"""Extracts a kernel from a code object, with everything that can change its results."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from dataclasses import asdict, replace

import numpy as np

from gfxemu.arrays import U32
from gfxemu.decode import sweep
from gfxemu.isa import CDNA, ISAS
from qola_base.code_object.reader import CodeObject, Kernel, Resources
from qola_base.files import sha256_of_json
from qola_base.json_types import reader

#: Instructions that read or jump to addresses of code: mask and bits of their first word.
_OF_CDNA = {
    "S_GETPC_B64": (0xFF80FF00, 0xBE801C00),
    "S_SWAPPC_B64": (0xFF80FF00, 0xBE801E00),
    "S_CALL_B64": (0xFF800000, 0xBA800000),
}
_OF_RDNA = {
    "S_GETPC_B64": (0xFF80FF00, 0xBE804700),
    "S_SWAPPC_B64": (0xFF80FF00, 0xBE804900),
    "S_CALL_B64": (0xFF800000, 0xBA000000),
}


def single(code_object: CodeObject, symbol: str) -> CodeObject:
    """Return a code object with one kernel, independent of other kernels of the same compile.

    For a kernel that takes addresses of code, the image remains complete.
    """
    kernel = code_object.kernels[symbol]
    code = code_object.image[kernel.entry : kernel.entry + kernel.size]
    descriptor = replace(kernel.descriptor, entry=0)
    own = replace(kernel, descriptor=descriptor, resources=Resources())
    if _takes_addresses(code, code_object.arch):
        text = code_object.text
        return CodeObject(code_object.arch, code_object.image, {symbol: own}, text=text)
    return CodeObject(code_object.arch, code, {symbol: replace(own, entry=0)})


def _takes_addresses(code: bytes, arch: str) -> bool:
    addressed = _OF_RDNA if ISAS.get(arch, CDNA).is_rdna else _OF_CDNA
    words = np.frombuffer(code, U32, len(code) // 4)
    # It takes long to decode a kernel, and hardly any has a word that may be one of these.
    if not any(((words & mask) == bits).any() for mask, bits in addressed.values()):
        return False
    return any(getattr(one, "name", "") in addressed for one in sweep(code, arch).values())


def digest(code_object: CodeObject) -> str:
    """Return the digest of a code object with one kernel, independent of how zlib compresses it."""
    (kernel,) = code_object.kernels.values()
    return sha256_of_json(
        [code_object.arch, hashlib.sha256(code_object.image).hexdigest(), asdict(kernel)]
    )


def to_json(code_object: CodeObject) -> str:
    """Return a code object with one kernel as a text that `from_json` reads."""
    (kernel,) = code_object.kernels.values()
    image = base64.b64encode(zlib.compress(code_object.image)).decode()
    text, arch = code_object.text, code_object.arch
    values = {"arch": arch, "image": image, "kernel": asdict(kernel), "text": text}
    return json.dumps(values, sort_keys=True)


def from_json(text: str) -> CodeObject:
    """Return the code object of a text of `to_json`."""
    values = json.loads(text)
    kernel: Kernel = reader(Kernel)(values["kernel"])
    image = zlib.decompress(base64.b64decode(values["image"]))
    begin, end = values["text"]
    return CodeObject(values["arch"], image, {kernel.symbol: kernel}, text=(begin, end))
