"""Measures what kernels cost to compile, for `qola plan --estimate`.

    bench/python bench/measure_costs.py --aiter TREE

Compiles a handful of kernel instances and dispatch sources of small plans, one after the other,
with the flags of rules/rocm/flags.bzl, and writes CPU seconds and bytes to qola/inspect/costs.json.
CPU seconds, because they hold on a busy machine too. Takes some eight minutes.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qola.aiter.tree import read_tree
from qola.folder import Folder
from qola.manifest.load import loads
from qola.plan.model import KernelInstance, Plan
from qola.plan.planner import build_plan
from qola.plan.request import Request
from qola.plan.resolve import resolve

ROOT = Path(__file__).resolve().parents[1]

ARCH = "gfx950"
COSTS = ROOT / "qola/inspect/costs.json"
PARTS = ("kernels", "sources")
SMALL = """
[build]
architectures = ["gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
[[modules]]
name = "libmha_bwd"
[[mha_fwd_variants]]
dtype = "bf16"
hdim = [64, 128, 256]
has_bias = false
has_alibi = false
has_dropout = false
has_skip = false
has_lse = true
[[mha_bwd_variants]]
dtype = "bf16"
hdim = [64, 128]
has_bias = false
has_alibi = false
has_dropout = false
deterministic = false
"""
# A larger dispatch of each direction: what an entry costs is the slope between the two.
LARGE = """
[build]
architectures = ["gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
receipt = 700
[[modules]]
name = "libmha_bwd"
receipt = 700
[[mha_bwd_variants]]
dtype = "bf16"
hdim = [64, 128]
has_bias = false
has_alibi = false
"""
# (direction, role, hdim) of the kernel instances to compile.
KERNELS = (
    ("fwd", "fwd", 64),
    ("fwd", "fwd", 128),
    ("fwd", "fwd", 256),
    ("fwd_splitkv", "splitkv", 128),
    ("fwd_splitkv", "splitkv_combine", 128),
    ("batch_prefill", "batch_prefill", 128),
    ("bwd", "dq_dk_dv", 64),
    ("bwd", "dq_dk_dv", 128),
    ("bwd", "dot_do_o", 128),
    ("bwd", "convert_dq", 128),
)
# A dispatch of the full set is a matter of minutes, and known from these two.
DISPATCHES = ("fwd", "bwd")


@dataclass(frozen=True)
class Compiler:
    """A hipcc and what it is given."""

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]
    size_tool: str


def constants(path: Path) -> dict[str, Any]:
    """Return the lists and dicts a .bzl file assigns: Starlark's literals are Python's."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


def find_compiler(hipcc: str) -> Compiler:
    """Return the compiler with every flag it accepts, as rules/rocm/detect.bzl does."""
    bzl = constants(ROOT / "rules/rocm/flags.bzl")
    command = ("env", "-u", "ROCM_PATH", "HIP_PLATFORM=amd", hipcc)
    text = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    found = dict(re.findall(r"^(HIP version|InstalledDir): (\S+)", text.stdout, re.MULTILINE))
    clang = re.search(r"^(.*?clang version \S+)", text.stdout, re.MULTILINE)
    if clang is None or len(found) != 2:
        sys.exit(f"{hipcc} --version names no clang:\n{text.stdout}")
    flags = [*bzl["BASE_FLAGS"], *bzl["AITER_FLAGS"]]
    flags += [f"-D{define}" for define in bzl["ARCH_DEFINES"].get(ARCH, [])]
    for flag in bzl["OPTIONAL_FLAGS"]:
        if flag in bzl["AMD_CLANG_ONLY"] and "AMD" not in clang[1]:
            continue
        probe = [*command, *flag, "-x", "hip", "-E", f"--offload-arch={ARCH}"]
        probe += ["/dev/null", "-o", "/dev/null"]
        done = subprocess.run(probe, capture_output=True, check=False)
        flags += flag if done.returncode == 0 else []
    version = f"{clang[1].partition('(')[0].strip()}, HIP {found['HIP version']}"
    return Compiler(command, version, tuple(flags), f"{found['InstalledDir']}/llvm-size")


def cpu_model() -> str:
    """Return the processor's name."""
    match = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match[1] if match else "unknown processor"


def spent(command: Sequence[str]) -> tuple[float, int]:
    """Run a command; return the CPU seconds of its processes, and the most bytes one of them had.

    Raises:
        CalledProcessError: it failed.
    """
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(command))
    return round(usage.ru_utime + usage.ru_stime, 1), usage.ru_maxrss * 1024


class Bench:
    """Compiles sources of plans and takes the time.

    Attributes:
        peak_bytes: most memory that a process of the last compile had.
    """

    def __init__(self, compiler: Compiler, tree: Path, work: Path) -> None:
        self.peak_bytes = 0
        self._compiler, self._tree, self._work = compiler, tree, work

    def plan(self, name: str, text: str) -> Plan:
        """Plan a manifest below the working directory."""
        (self._work / name).mkdir()
        request = Request(name, loads(text, file=name), read_tree(self._tree))
        return build_plan(resolve(request), Folder(self._work / name))

    def compile(
        self, plan: Plan, source: str, headers: str, copts: Sequence[str], *, host: bool
    ) -> dict[str, Any]:
        """Compile one source as Bazel does; return its cost.

        Args:
            source: path below the plan's directory.
            host: take the time of the host pass alone as well.
        """
        object_file = self._work / "out.o"
        command = [
            *self._flags(plan, headers, copts),
            *("-c", str(self._work / plan.name / source), "-o", str(object_file)),
        ]
        cost = {"cpu_seconds": self._cpu_seconds(command)}
        if host:
            host_only = [*command, "--cuda-host-only", "-fsyntax-only"]
            cost["host_cpu_seconds"] = self._cpu_seconds(host_only)
        size = subprocess.run(
            [self._compiler.size_tool, object_file], capture_output=True, text=True, check=True
        )
        return {
            **cost,
            "object_bytes": object_file.stat().st_size,
            # Fourth column: what ends up in a library, without relocations and symbols.
            "linked_bytes": int(size.stdout.splitlines()[1].split()[3]),
        }

    def _flags(self, plan: Plan, headers: str, copts: Sequence[str]) -> list[str]:
        found = plan.header_set(headers)
        return [
            *self._compiler.command,
            *self._compiler.flags,
            *(f"-isystem{self._tree / d}" for d in found.include_dirs),
            f"--offload-arch={ARCH}",
            "-cuid=measured",
            *copts,
        ]

    def _cpu_seconds(self, command: Sequence[str]) -> float:
        seconds, self.peak_bytes = spent(command)
        return seconds


def middle(kernels: Sequence[KernelInstance]) -> KernelInstance:
    """Return one kernel instance that stands for the others: neither first nor last by name."""
    return sorted(kernels, key=lambda kernel: kernel.name)[len(kernels) // 2]


def _hdim(kernel: KernelInstance) -> object:
    return kernel.fields.get("hdim_q", kernel.fields.get("hdim_v"))


def measure_kernels(bench: Bench, plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield the cost of each entry of KERNELS."""
    for direction, role, hdim in KERNELS:
        wanted = (direction, role, hdim)
        alike = [k for k in plan.kernels if (k.direction, k.role, _hdim(k)) == wanted]
        if not alike:
            sys.exit(f"the plan has no {role} with hdim {hdim}")
        kernel = middle(alike)
        copts = plan.module(kernel.module).copts
        cost = bench.compile(plan, kernel.source, direction, copts, host=True)
        cost["further_cpu_seconds"] = further_seconds(bench, plan, kernel, cost["cpu_seconds"])
        entry = {"direction": direction, "role": role, "hdim": hdim}
        yield {**entry, "dtype": kernel.fields["dtype"], **cost, "name": kernel.name}


def further_seconds(bench: Bench, plan: Plan, kernel: KernelInstance, alone: float) -> float:
    """Return what a kernel instance costs as a further one in the batch that it is in."""
    for batch in plan.batches:
        members = [plan.kernels[index] for index in batch.kernels]
        if kernel in members:
            copts = plan.module(kernel.module).copts
            cost = bench.compile(plan, batch.file, kernel.direction, copts, host=False)
            seconds = (float(cost["cpu_seconds"]) - alone) / (len(members) - 1)
            return round(max(0.0, seconds), 1)
    return alone


def measure_sources(bench: Bench, plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield the cost of the dispatch sources, with the number of kernels each one calls."""
    for module in plan.modules:
        for source in module.sources:
            if source.role == "dispatch" and source.direction in DISPATCHES:
                yield {
                    "direction": source.direction,
                    "role": source.role,
                    "kernels": sum(
                        k.direction == source.direction for k in plan.kernels_of(module)
                    ),
                    **bench.compile(plan, source.file, module.name, module.copts, host=False),
                }


def lines(values: Sequence[dict[str, Any]]) -> str:
    """Return a JSON list with one entry a line."""
    return "[\n" + ",\n".join(f"    {json.dumps(value)}" for value in values) + "\n  ]"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--aiter", type=Path, required=True, help="AITER source tree")
    parser.add_argument("--output", type=Path, default=COSTS, help="file")
    args = parser.parse_args()
    compiler = find_compiler("hipcc")
    costs: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(compiler, args.aiter.resolve(), Path(directory))
        small = bench.plan("small", SMALL)
        measured: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
            "kernels": lambda: measure_kernels(bench, small),
            "sources": lambda: (
                cost
                for plan in (small, bench.plan("large", LARGE))
                for cost in measure_sources(bench, plan)
            ),
        }
        for part in PARTS:
            costs[part] = []
            for cost in measured[part]():
                print(json.dumps(cost), file=sys.stderr)
                costs[part].append(cost)
    command = "bench/python bench/measure_costs.py --aiter TREE"
    cpu = cpu_model()
    head = {"schema": 1, "command": command, "compiler": compiler.version, "cpu": cpu}
    # Of bench/measure_triton.py, which has its own.
    kept = json.loads(COSTS.read_text(encoding="utf-8"))
    if "triton" in kept:
        head["triton"], costs["triton_kernels"] = kept["triton"], kept["triton_kernels"]
    write(args.output, {**head, "arch": ARCH}, costs)


def write(
    file: Path, head: Mapping[str, object], parts: Mapping[str, Sequence[dict[str, Any]]]
) -> None:
    """Write a file of costs, an entry a line."""
    texts = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    texts += [f"  {json.dumps(part)}: {lines(entries)}" for part, entries in parts.items()]
    file.write_text("{\n" + ",\n".join(texts) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ.pop("ROCM_PATH", None)
    main()
