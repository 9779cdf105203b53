"""Writes the kernels of a code object as JSON, for hip_code_object."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from qola_base.code_object.reader import CodeObject, Kernel
from qola_base.json_types import JsonObject
from qola_base.rule_main import run_main


def describe(code: CodeObject) -> JsonObject:
    """Return arch, digest and kernels of a code object; sizes and offsets are in bytes."""
    return {
        "arch": code.arch,
        "bytes": code.size,
        "sha256": code.sha256,
        "kernels": [_kernel(kernel) for kernel in code.kernels.values()],
    }


def _kernel(kernel: Kernel) -> JsonObject:
    return {
        "symbol": kernel.symbol,
        "arguments": [asdict(argument) for argument in kernel.arguments],
        "kernarg_bytes": kernel.descriptor.kernarg_bytes,
        "max_block": kernel.max_block,
        **asdict(kernel.resources),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Read the code object argv[0], write the JSON file argv[1]; return the exit code."""
    source, output = map(Path, sys.argv[1:] if argv is None else argv)
    return run_main(lambda: _write(source, output))


def _write(source: Path, output: Path) -> None:
    code = CodeObject.read(source.read_bytes(), source.name)
    output.write_text(json.dumps(describe(code), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
