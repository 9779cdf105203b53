"""Measures the compile costs that `qola plan --estimate` uses, and writes qola/inspect/costs.json.

    bench/python bench/measure_costs.py --aiter TREE        # C++: 8 minutes
    python3 -m venv VENV && VENV/bin/pip install --require-hashes -r third_party/python/triton.txt
    PYTHONPATH=. VENV/bin/python bench/measure_costs.py --triton          # Triton: half a minute

Compiles sample kernel instances and dispatch sources, one after the other, with the flags of
rules/rocm/flags.bzl. CPU seconds also hold on a busy machine.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from qola.aiter.tree import read_tree
from qola.folder import Folder
from qola.manifest.load import loads
from qola.plan.model import KernelInstance, Plan
from qola.plan.planner import build_plan
from qola.plan.request import Request
from qola.plan.resolve import resolve
from qola.triton import own
from qola.triton.kernel import instance_name

ROOT = Path(__file__).resolve().parents[1]

ARCH = "gfx950"
COSTS = ROOT / "qola/inspect/costs.json"
TRITON_HDIMS = (64, 128, 256)
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
# A larger dispatch of each direction: the cost of an entry is the slope between the two.
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
# A dispatch of the full set takes minutes; the two directions suffice to estimate it.
DISPATCHES = ("fwd", "bwd")


@dataclass(frozen=True)
class Compiler:
    """A hipcc with its version and flags, and llvm-size."""

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]
    size_tool: str


def _constants(path: Path) -> dict[str, Any]:
    """Return the constants of a .bzl file, whose literals are also Python's."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


def find_compiler(hipcc: str) -> Compiler:
    """Return the compiler with the flags that it accepts, like rules/rocm/detect.bzl."""
    bzl = _constants(ROOT / "rules/rocm/flags.bzl")
    settings = ("HIP_PLATFORM=amd", *(f"{k}={v}" for k, v in bzl["BUNDLE_FORMAT"].items()))
    command = ("env", "-u", "ROCM_PATH", *settings, hipcc)
    text = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    found = dict(re.findall(r"^(HIP version|InstalledDir): (\S+)", text.stdout, re.MULTILINE))
    clang = re.search(r"^(.*?clang version \S+)", text.stdout, re.MULTILINE)
    if clang is None or len(found) != 2:
        sys.exit(f"{hipcc} --version names no clang:\n{text.stdout}")
    flags = [*bzl["BASE_FLAGS"], *bzl["AITER_FLAGS"], *bzl["SMALL_HOST_FLAGS"]]
    flags.append("--offload-compress")
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


def _cpu_model() -> str:
    match = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match[1] if match else "unknown processor"


def _cpu_seconds(command: Sequence[str]) -> float:
    """Run a command; return the CPU seconds of its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return round(used, 1)


class Bench:
    """Compiles sources of plans and measures their cost."""

    def __init__(self, compiler: Compiler, tree: Path, work: Path) -> None:
        self._compiler, self._tree, self._work = compiler, tree, work

    def plan(self, name: str, text: str) -> Plan:
        """Plan a manifest, below the working directory."""
        (self._work / name).mkdir()
        request = Request(name, loads(text, file=name), read_tree(self._tree))
        return build_plan(resolve(request), Folder(self._work / name))

    def compile(
        self, plan: Plan, source: str, headers: str, copts: Sequence[str], *, host: bool
    ) -> dict[str, Any]:
        """Compile one source as Bazel does; return its cost.

        Args:
            source: path below the plan's directory.
            host: also measure the host pass separately.
        """
        object_file = self._work / "out.o"
        command = [
            *self._flags(plan, headers, copts),
            *("-c", str(self._work / plan.name / source), "-o", str(object_file)),
        ]
        cost = {"cpu_seconds": _cpu_seconds(command)}
        if host:
            host_only = [*command, "--cuda-host-only", "-fsyntax-only"]
            cost["host_cpu_seconds"] = _cpu_seconds(host_only)
        # Fourth column: the part that ends up in a library, without relocations and symbols.
        linked = self._sizes(object_file)[1].split()[3]
        sections = dict(line.split()[:2] for line in self._sizes(object_file, "-A") if line.strip())
        return {
            **cost,
            "object_bytes": object_file.stat().st_size,
            "linked_bytes": int(linked),
            "device_bytes": int(sections.get(".hip_fatbin", 0)),
        }

    def _sizes(self, file: Path, *options: str) -> list[str]:
        command = [self._compiler.size_tool, *options, str(file)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        return run.stdout.splitlines()

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


def _hdim(kernel: KernelInstance) -> object:
    return kernel.fields.get("hdim_q", kernel.fields.get("hdim_v"))


def measure_kernels(bench: Bench, plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield the cost of each entry of KERNELS."""
    for direction, role, hdim in KERNELS:
        wanted = (direction, role, hdim)
        matching = [k for k in plan.kernels if (k.direction, k.role, _hdim(k)) == wanted]
        if not matching:
            sys.exit(f"the plan has no {role} with hdim {hdim}")
        kernel = sorted(matching, key=lambda k: k.name)[len(matching) // 2]
        copts = plan.module(kernel.module).copts
        cost = bench.compile(plan, kernel.source, direction, copts, host=True)
        cost |= _further(bench, plan, kernel, cost)
        entry = {"direction": direction, "role": role, "hdim": hdim}
        yield {**entry, "dtype": kernel.fields["dtype"], **cost, "name": kernel.name}


def _further(
    bench: Bench, plan: Plan, kernel: KernelInstance, single: dict[str, Any]
) -> dict[str, Any]:
    """Return the additional cost of a kernel instance within its batch.

    Args:
        single: its cost in a compile of its own.
    """
    fields = ("cpu_seconds", "linked_bytes", "device_bytes")
    for batch in plan.batches:
        members = [plan.kernels[index] for index in batch.kernels]
        if kernel in members:
            copts = plan.module(kernel.module).copts
            cost = bench.compile(plan, batch.file, kernel.direction, copts, host=False)
            more = {name: (cost[name] - single[name]) / (len(members) - 1) for name in fields}
            return {f"further_{name}": round(max(0.0, n), 1) for name, n in more.items()}
    return {f"further_{name}": single[name] for name in fields}


def measure_sources(bench: Bench, plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield the cost of each dispatch source, with the number of kernels that it calls."""
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


def measure_triton(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the cost of each of qola's Triton kernels, each compiled in its own process."""
    for function in sorted(own.FILES):
        for hdim in TRITON_HDIMS:
            constexprs = {"HDIM": str(hdim), "dtype": "bf16"}
            code = directory / f"{instance_name(function, constexprs, ARCH)}.hsaco"
            command = [sys.executable, "-m", "qola.triton", f"--name={code.stem}"]
            command += [f"--function={function}", f"--arch={ARCH}"]
            command += [f"--source={own.DIRECTORY / own.FILES[function]}"]
            command += [f"--choice={name}={value}" for name, value in constexprs.items()]
            command += [f"--code={code}", f"--metadata={code.with_suffix('.json')}"]
            seconds, size = _cpu_seconds(command), code.stat().st_size
            entry = {"kernel": function, "hdim": hdim, "dtype": "bf16", "cpu_seconds": seconds}
            yield {**entry, "object_bytes": size, "linked_bytes": size}


def _logged(costs: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for cost in costs:
        print(json.dumps(cost), file=sys.stderr)
        yield cost


def main() -> None:
    """Measure, and replace the measured part of the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    measured = parser.add_mutually_exclusive_group(required=True)
    measured.add_argument("--aiter", type=Path, help="AITER source tree: measure C++ kernels")
    measured.add_argument("--triton", action="store_true", help="measure kernels in Triton")
    parser.add_argument("--output", type=Path, default=COSTS, help="file")
    args = parser.parse_args()
    costs: dict[str, Any] = json.loads(COSTS.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if args.triton:
            costs["triton"] = f"triton {version('triton')}; {_cpu_model()}"
            costs["triton_kernels"] = list(_logged(measure_triton(directory)))
        else:
            os.environ.pop("ROCM_PATH", None)
            compiler = find_compiler("hipcc")
            bench = Bench(compiler, args.aiter.resolve(), directory)
            plans = bench.plan("small", SMALL), bench.plan("large", LARGE)
            costs |= {"compiler": compiler.version, "cpu": _cpu_model(), "arch": ARCH}
            costs["kernels"] = list(_logged(measure_kernels(bench, plans[0])))
            costs["sources"] = [c for plan in plans for c in _logged(measure_sources(bench, plan))]
    lists = {key: value for key, value in costs.items() if isinstance(value, list)}
    texts = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in costs.items() if k not in lists]
    for key, entries in lists.items():
        lines = ",\n".join(f"    {json.dumps(entry)}" for entry in entries)
        texts.append(f"  {json.dumps(key)}: [\n{lines}\n  ]")
    args.output.write_text("{\n" + ",\n".join(texts) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
