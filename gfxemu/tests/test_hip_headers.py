"""Functions of HIP's device headers, each compiled as a kernel, and the instructions they need."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gfxemu.launch import ARCHS
from gfxemu.program import Program
from gfxemu.tests.programs import not_covered
from gfxemu.tests.sdk import compiler_of
from qola_base.code_object.reader import CodeObject

pytestmark = pytest.mark.thorough

SDK = Path(os.environ.get("QOLA_TEST_CLANG", "/")).absolute().parent.parent
HEADERS = [
    "resource/include/__clang_hip_math.h",
    *(
        f"rocm/include/hip/amd_detail/amd_{name}.h"
        for name in ("device_functions", "hip_atomic", "hip_bf16", "hip_fp16")
    ),
    *(
        f"rocm/include/hip/amd_detail/amd_{name}.h"
        for name in ("hip_unsafe_atomics", "warp_functions", "warp_sync_functions")
    ),
]
_TYPE = (
    r"(?:const )?(?:unsigned |signed )?(?:long long int|long long|long int|long|int|short|char"
    r"|float|double|__half2?|__hip_bfloat162?|bool|uint|size_t)(?: unsigned| int)?"
)
_QUALIFIERS = (
    r"(?:(?:__DEVICE__|__device__|__HIP_\w+__|__host__|static|inline|constexpr|__forceinline__"
    r"|__attribute__\(\([^)]*\)\)|__hip_\w+)\s+)+"
)
_FUNCTION = re.compile(
    rf"^\s*(?:template\s*<[^>]*>\s*)?{_QUALIFIERS}({_TYPE}|void) (\w+)\(([^)]*)\)", re.MULTILINE
)
_PARAMETER = re.compile(
    rf"(?:volatile |const )*({_TYPE}|void)\s*(\*?)\s*(?:__restrict(?:__)? )?\w*$"
)
_INCLUDES = [f"#include <hip/hip_{name}.h>" for name in ("runtime", "fp16", "bf16")]


def kernels() -> Iterator[str]:
    """Yield a line with a kernel for each function of the headers with simple parameters."""
    found: dict[tuple[str, str], str] = {}
    for header in HEADERS:
        text = re.sub(r"[ \t]+", " ", (SDK / header).read_text(encoding="utf-8"))
        found |= {(m[2], re.sub(r"\s+", " ", m[3])): m[1] for m in _FUNCTION.finditer(text)}
    for number, ((name, parameters), result) in enumerate(found.items()):
        arguments = []
        for place, word in enumerate(parameters.split(",") if parameters.strip() else ()):
            known = _PARAMETER.match(word.partition("=")[0].strip())
            if not known:
                break
            pointer = f"({known[1]} *)(p + {64 * place} + threadIdx.x * 8)"
            arguments.append(pointer if known[2] else f"*{pointer}")
        else:
            call = f"{name}({', '.join(arguments)})"
            body = call if result == "void" else f"*({result} *)(q + threadIdx.x * 8) = {call}"
            yield f'extern "C" __global__ void k{number}_{name}(char *p, char *q) {{ {body}; }}'


@pytest.mark.parametrize("arch", ARCHS)
def test_functions_of_hip_are_emulated(arch: str, tmp_path: Path) -> None:
    """Prevents: a function of HIP, such as atomicMax of a double, refused by the emulator."""
    lines, output = [*kernels()], tmp_path / "code.co"
    assert len(lines) > 500
    command = [*compiler_of(SDK), "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output"]
    command += ["-O2", "-w", "-ferror-limit=0", f"--offload-arch={arch}", "-c", "functions.hip"]
    for _ in range(4):
        (tmp_path / "functions.hip").write_text("\n".join([*_INCLUDES, *lines, ""]), "utf-8")
        done = subprocess.run(
            [*command, "-o", str(output)], cwd=tmp_path, text=True, capture_output=True, check=False
        )
        if not done.returncode:
            break
        # The arch lacks some functions, and others are not meant for callers.
        bad = {int(line) for line in re.findall(r"functions\.hip:(\d+):\d+: error", done.stderr)}
        assert bad, done.stderr
        lines = [line for n, line in enumerate(lines, len(_INCLUDES) + 1) if n not in bad]
    assert len(lines) > 500
    code_object = CodeObject.read(output.read_bytes())
    refused = set()
    for name, kernel in code_object.kernels.items():
        for text in not_covered(Program(code_object, kernel)):
            # Functions that a kernel does not call may use more registers than it has, and nothing
            # runs the padding between functions.
            if " is beyond the " not in text and "s_code_end" not in text:
                refused.add(f"{name}: {text.partition(' ')[2]}")
    assert not refused, "\n".join(sorted(refused))
