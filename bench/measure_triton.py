"""Measures what kernels in Triton cost to compile, for `qola plan --estimate`.

    python3 -m venv VENV && VENV/bin/pip install --require-hashes -r third_party/python/triton.txt
    PYTHONPATH=. VENV/bin/python bench/measure_triton.py

Compiles qola's kernels, each in a process of its own as triton_kernel does, and writes CPU seconds
and bytes to qola/inspect/costs.json, beside those of bench/measure_costs.py. Takes half a minute.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.measure_costs import ARCH, COSTS, cpu_model, spent, write
from qola.triton import own
from qola.triton.kernel import instance_name

HDIMS = (64, 128, 256)


def measure(function: str, hdim: int, directory: Path) -> dict[str, Any]:
    """Compile a kernel; return its cost."""
    chosen = {"HDIM": str(hdim), "dtype": "bf16"}
    code = directory / f"{instance_name(function, chosen, ARCH)}.hsaco"
    command = [sys.executable, "-m", "qola.triton", f"--name={code.stem}", f"--function={function}"]
    command += [f"--source={own.DIRECTORY / own.FILES[function]}", f"--arch={ARCH}"]
    command += [f"--choice={name}={value}" for name, value in chosen.items()]
    command += [f"--code={code}", f"--metadata={code.with_suffix('.json')}"]
    seconds, _ = spent(command)
    size = code.stat().st_size
    entry = {"kernel": function, "hdim": hdim, "dtype": "bf16", "cpu_seconds": seconds}
    return {**entry, "object_bytes": size, "linked_bytes": size}


def measured() -> Iterator[dict[str, Any]]:
    """Yield the cost of each kernel with each head dimension."""
    with tempfile.TemporaryDirectory() as directory:
        for function in sorted(own.FILES):
            for hdim in HDIMS:
                yield measure(function, hdim, Path(directory))


def main() -> None:
    """Measure and write."""
    told = json.loads(COSTS.read_text(encoding="utf-8"))
    parts = {name: value for name, value in told.items() if isinstance(value, list)}
    head = {name: value for name, value in told.items() if name not in parts}
    costs = []
    for cost in measured():
        print(json.dumps(cost), file=sys.stderr)
        costs.append(cost)
    head["triton"] = f"triton {version('triton')}; {cpu_model()}, bench/measure_triton.py"
    write(COSTS, head, {**parts, "triton_kernels": costs})


if __name__ == "__main__":
    main()
