"""Measures the costs that `qola plan --estimate` uses, and writes qola/query/costs.json.

    ./bazelw build @qola_rocm_sdk//:sdk/bin/hipcc           # the compiler of builds
    bench/python bench/measure_costs.py --aiter TREE --hipcc HIPCC  # C++ compiles: 8 minutes
    python3 -m venv VENV && VENV/bin/pip install --require-hashes -r third_party/python/triton.txt
    PYTHONPATH=. VENV/bin/python bench/measure_costs.py --triton          # Triton: half a minute

    PYTHONPATH=. VENV/bin/python bench/measure_costs.py --aiter TREE --scale   # then, always

`--scale` fits the seconds of kernel instances to a complete build, which bench/run measured on an
idle machine: docs/internals/performance.md has its table. Samples alone are too high by half: a
batch shares more than a few of its kernel instances show, and samples run on a busy machine.

Bytes are those of built objects, read in a virtual environment with third_party/python/dev.txt:

    ./bazelw build //:{quickstart,ci,te}_libmha_{fwd,bwd}       # te: 3 hours on two cores
    ./bazelw build @qola_test_manifests//:{asm_libmha_bwd,{asm,paged,splitkv}_libmha_fwd}
    PYTHONPATH=. VENV/bin/python bench/measure_costs.py --aiter TREE --sizes bazel-bin
    PYTHONPATH=. VENV/bin/python bench/measure_costs.py --aiter TREE --compare bazel-bin

`--record` writes the CPU seconds of a build to tests/golden/builds.json, by which tests check the
forecast. They also hold on a busy machine:

    target=@qola_test_manifests//:forward_libmha_fwd
    ./bazelw build --config=no-cache --build_event_json_file=FILE $target
    python3 -m bench.measure_costs --record FILE tests/manifests/forward.toml libmha_fwd

Compiles sample kernel instances and dispatch sources, one after the other, with the flags of
rules/rocm/flags.bzl. CPU seconds also hold on a busy machine.

`--sizes` fits bytes to the objects of MANIFESTS. `--compare` writes nothing: it prints the forecast
and the built size of each library, or of its finished batches if it is not linked yet.
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
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from importlib.metadata import version
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

from qola.aiter.tree import read_tree
from qola.common.folder import Folder
from qola.common.layout import KERNEL_COMPILE
from qola.manifest.load import loads
from qola.plan.model import KernelInstance, Plan, PlannedModule
from qola.plan.planner import build_plan
from qola.plan.request import Request
from qola.plan.resolve import resolve
from qola.query.estimate import (
    EXPORTED,
    KERNEL,
    OBJECT,
    SHARED_BYTES,
    Bytes,
    called_kernels,
    compiles,
    estimate,
    kernel_weights,
    load_costs,
    source_key,
)
from qola.repository.build_files import config_header
from qola.triton import own
from qola.triton.kernel import instance_name
from qola_base.json_types import json_fields

ROOT = Path(__file__).resolve().parents[1]

API = ROOT / "runtime/api"
ARCH = "gfx950"
COSTS = ROOT / "qola/query/costs.json"
BUILDS = ROOT / "tests/golden/builds.json"
FAMILIES = ROOT / "bench/workloads/families.toml"
PERFORMANCE = ROOT / "docs/internals/performance.md"
MANIFESTS = (
    *(f"manifests/{name}.toml" for name in ("quickstart", "ci", "te")),
    *(f"tests/manifests/{name}.toml" for name in ("asm", "paged", "splitkv")),
)
#: Share of a source's code that is linked: the linker drops functions that nothing calls. From the
#: libraries of ci.toml (0.52) and te.toml (0.44), less all that the other objects add.
LINKED_SHARES = {("bwd", "dispatch"): 0.46}
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
HOST_ONLY = ("--offload-host-only", "-Wno-unused-command-line-argument")
#: Flag of sections that are loaded.
_ALLOCATED = 2


@dataclass(frozen=True)
class Compiler:
    """A hipcc with its version and flags.

    Attributes:
        kernel_flags: further flags of kernel instances.
        source_flags: further flags of dispatch and entry points.
    """

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]
    kernel_flags: tuple[str, ...]
    source_flags: tuple[str, ...]


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
    # The pinned SDK's hipcc names no version of HIP.
    hip = re.search(r"^HIP version: (\S+)", text.stdout, re.MULTILINE)
    clang = re.search(r"^(.*?clang version \S+)", text.stdout, re.MULTILINE)
    if clang is None:
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
    version = clang[1].partition("(")[0].strip() + (f", HIP {hip[1]}" if hip else "")
    kernel_flags = (*bzl["SMALL_HOST_CODE"], *bzl["NO_GLOBALS_AA"], "--offload-compress")
    source_flags = (*bzl["DISPATCH_HOST_CODE"], "--offload-compress")
    return Compiler(command, version, tuple(flags), kernel_flags, source_flags)


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
        return _plan(self._work / name, text, self._tree)

    def compile(
        self, plan: Plan, module: PlannedModule, source: str, copts: Sequence[str] = ()
    ) -> float:
        """Compile a source of a library, below the plan's directory; return its seconds."""
        copts = [*module.copts, *self._compiler.source_flags, *copts]
        copts += [f"-I{place}" for place in (self._work / plan.name / "include", API)]
        return _cpu_seconds(self._command(plan, source, module.name, copts))

    def compile_kernels(self, plan: Plan, source: str, kernel: KernelInstance) -> dict[str, float]:
        """Compile a kernel instance or its batch; return its seconds, and the host pass's."""
        copts = [*plan.module(kernel.module).copts, *self._compiler.kernel_flags]
        command = self._command(plan, source, kernel.direction, copts)
        host_only = [*command, "--cuda-host-only", "-fsyntax-only"]
        return {"cpu_seconds": _cpu_seconds(command), "host_cpu_seconds": _cpu_seconds(host_only)}

    def _command(
        self, plan: Plan, source: str, headers: str, copts: Sequence[str]
    ) -> tuple[str, ...]:
        found = plan.header_set(headers)
        return (
            *self._compiler.command,
            *self._compiler.flags,
            *(f"-isystem{self._tree / d}" for d in found.include_dirs),
            f"--offload-arch={ARCH}",
            "-cuid=measured",
            *copts,
            *("-c", str(self._work / plan.name / source), "-o", str(self._work / "out.o")),
        )


def _plan(directory: Path, text: str, tree: Path) -> Plan:
    """Plan a manifest with the name of a new directory, and write its sources there."""
    directory.mkdir()
    request = Request(directory.name, loads(text, file=directory.name), read_tree(tree))
    plan = build_plan(resolve(request), Folder(directory))
    Folder(directory).write("include/qola_config.h", config_header(plan, source=directory.name))
    return plan


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
        cost = bench.compile_kernels(plan, kernel.source, kernel)
        cost |= _further(bench, plan, kernel, cost)
        entry = {"direction": direction, "role": role, "hdim": hdim}
        yield {**entry, "dtype": kernel.fields["dtype"], **cost, "name": kernel.name}


def _further(
    bench: Bench, plan: Plan, kernel: KernelInstance, single: Mapping[str, float]
) -> dict[str, float]:
    """Return the additional seconds of a kernel instance within its batch.

    Args:
        single: its seconds in a compile of its own.
    """
    name = "cpu_seconds"
    for batch in plan.batches:
        members = [plan.kernels[index] for index in batch.kernels]
        if kernel in members:
            cost = bench.compile_kernels(plan, batch.file, kernel)
            more = (cost[name] - single[name]) / (len(members) - 1)
            return {f"further_{name}": round(max(0.0, more), 1)}
    return {f"further_{name}": single[name]}


def measure_dispatches(bench: Bench, plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield the cost of each dispatch source, with the number of kernels that it calls."""
    for module in plan.modules:
        for source in module.sources:
            if source.role == "dispatch" and source.direction in DISPATCHES:
                yield {
                    "direction": source.direction,
                    "role": source.role,
                    "kernels": called_kernels(plan.kernels_of(module))[source.direction],
                    "cpu_seconds": bench.compile(plan, module, source.file, HOST_ONLY),
                }


def measure_entries(bench: Bench, plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield the cost of AITER's entry points, and of the exported ones that call them."""
    for module in plan.modules:
        for source in module.sources:
            if source.role == "entry":
                row: dict[str, Any] = {"direction": source.direction, "role": "entry", "kernels": 0}
                row["cpu_seconds"] = bench.compile(plan, module, source.file)
                row["host_cpu_seconds"] = bench.compile(plan, module, source.file, HOST_ONLY)
                yield row
                copts = [*HOST_ONLY, f"-DQOLA_ARCHS={ARCH}"]
                seconds = bench.compile(plan, module, module.entry_source.file, copts)
                yield {**row, "role": EXPORTED, "cpu_seconds": seconds, "host_cpu_seconds": seconds}


def record_build(events: str, manifest: str, module: str) -> dict[str, Any]:
    """Return the CPU seconds of a build of one module.

    Args:
        events: of Bazel's option --build_event_json_file.
        manifest: text of the manifest.
    """
    parsed = map(json.loads, events.splitlines())
    metrics = [event["buildMetrics"] for event in parsed if "buildMetrics" in event]
    seconds = dict.fromkeys(("kernels", "others"), 0.0)
    for action in metrics[-1]["actionSummary"]["actionData"]:
        part = "kernels" if action["mnemonic"] == KERNEL_COMPILE else "others"
        for name in ("userTime", "systemTime"):
            seconds[part] += float(action.get(name, "0s").removesuffix("s"))
    found = {f"{part}_cpu_seconds": round(n, 1) for part, n in seconds.items()}
    return {"module": module, "manifest": manifest, "cpu": _cpu_model(), **found}


def measured_kernels(page: str) -> dict[str, float]:
    """Return the CPU seconds of a kernel instance of each library of FAMILIES, from its table."""
    rows = re.findall(
        r"^\| kernel (forward|backward) vs AITER with ninja \| ([\d.]+) s", page, re.M
    )
    modules = {"forward": "libmha_fwd", "backward": "libmha_bwd"}
    return {modules[direction]: float(seconds) for direction, seconds in rows}


def scale(kernels: Sequence[dict[str, Any]], plan: Plan, page: str) -> Iterator[dict[str, Any]]:
    """Yield the costs of kernel instances, so that the forecast of a plan's kernels is as measured.

    Args:
        page: the table of the plan's build.
    """
    listed = [one for one in compiles(plan, load_costs()) if one.kernels]
    factors = {}
    for module, seconds in measured_kernels(page).items():
        own = [one for one in listed if one.module == module]
        forecast = sum(one.cost.cpu_seconds for one in own) / sum(one.kernels for one in own)
        factors[module] = seconds / forecast
    for kernel in kernels:
        factor = factors["libmha_bwd" if kernel["direction"] == "bwd" else "libmha_fwd"]
        yield {k: round(v * factor, 1) if k.endswith("seconds") else v for k, v in kernel.items()}


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


class Built:
    """Libraries and objects of directories bazel-bin.

    Attributes:
        batches: the object of a batch, or of a kernel instance without one, by its name.
        sources: the object of a source of a library by the plan's name and its directory.
    """

    def __init__(self, directories: Iterable[Path]) -> None:
        self._bins = [directory.resolve() for directory in directories]
        # Kernel instances and libraries have configurations of their own.
        external = [path for d in self._bins for path in d.parent.parent.glob("*/bin/external")]
        objects = (path for d in external for path in d.glob("qola_compile*/*.pic.o"))
        self.batches = {path.name.removesuffix(".pic.o"): path for path in objects}
        objects = (path for d in external for path in d.glob("*qola_*/_objs/*/*.pic.o"))
        names = ((path.parts[-4].rpartition("qola_")[2], path.parts[-2], path) for path in objects)
        self.sources = {(plan, directory): path for plan, directory, path in names}

    def library(self, file: str) -> Path | None:
        """Return a linked library."""
        places = ("", "external/qola_test_manifests~")
        paths = (d / place / file for d in self._bins for place in places)
        return next((path for path in paths if path.exists()), None)


_Observed = tuple[Mapping[str, int], Bytes]
_Groups = dict[tuple[str, str], dict[Path, _Observed]]


def read_object(path: Path) -> Bytes:
    """Return the bytes of an object by their use."""
    from qola_base.code_object.elf import Elf  # noqa: PLC0415 - bench/python has no pyelftools

    data = path.read_bytes()
    linked: Counter[str] = Counter()
    for section in Elf(data).sections:
        linked[section.name] += section.stored if section.flags & _ALLOCATED else 0
    device = linked.pop(".hip_fatbin", 0)
    host = linked.total()
    return Bytes(host, device, len(data) - host - device)


def measure_sizes(plans: Sequence[Plan], built: Built) -> dict[str, list[dict[str, Any]]]:
    """Return the bytes of kernel instances and sources by role, fitted to built objects."""
    kernels: _Groups = {}
    sources: _Groups = {}
    for plan in plans:
        for module in plan.modules:
            for name, batch in _objects(plan, module).items():
                if path := built.batches.get(name):
                    size = read_object(path)
                    host, device = size.host - SHARED_BYTES, size.device / len(batch[0].archs)
                    observed = kernel_weights(batch), Bytes(host, device, size.symbols)
                    key = batch[0].direction, batch[0].role
                    kernels.setdefault(key, {})[path] = observed
            called = called_kernels(plan.kernels_of(module))
            for source in module.sources:
                path = built.sources.get((plan.name, f"{module.name}.{source.name}"))
                if path and source.archs in ((), plan.archs):
                    number = called[source.direction] if source.role == "dispatch" else 0
                    key, size = source_key(source), read_object(path)
                    dropped = (1 - LINKED_SHARES.get(key, 1)) * size.host
                    size = Bytes(size.host - dropped, size.device, size.symbols + dropped)
                    sources.setdefault(key, {})[path] = {OBJECT: 1, KERNEL: number}, size
    return {"kernel_sizes": list(_rows(kernels)), "source_sizes": list(_rows(sources))}


def _objects(plan: Plan, module: PlannedModule) -> dict[str, list[KernelInstance]]:
    """Return the kernel instances of each object of a module."""
    found: dict[str, list[KernelInstance]] = {}
    for name, kernel in zip(plan.compiled_as(module), plan.kernels_of(module), strict=True):
        found.setdefault(name, []).append(kernel)
    return found


def _rows(groups: _Groups) -> Iterator[dict[str, Any]]:
    for (direction, role), objects in sorted(groups.items()):
        for per, size in fit(list(objects.values())).items():
            bytes_ = {f"{name}_bytes": round(n) for name, n in json_fields(size).items()}
            row = {"direction": direction, "role": role, "per": per}
            yield {**row, **bytes_, "objects": len(objects)}


def fit(observed: Sequence[_Observed]) -> dict[str, Bytes]:
    """Return the bytes of each weight, by least squares.

    A weight that is the same share of the first one in all objects is part of it.

    Raises:
        LinAlgError: other weights depend on each other.
    """
    import numpy as np  # noqa: PLC0415 - bench/python has none

    first, *others = observed[0][0]
    shares = {name: {row[name] / row[first] for row, _ in observed} for name in others}
    names = [first, *(name for name in others if len(shares[name]) > 1)][: len(observed)]
    rows = np.array([[weights[name] for name in names] for weights, _ in observed])
    sizes = np.array([astuple(size) for _, size in observed])
    # The normal equations: unlike lstsq, it refuses columns that depend on each other.
    fitted = np.linalg.solve(rows.T @ rows, rows.T @ sizes)
    return {name: Bytes(*size) for name, size in zip(names, fitted.tolist(), strict=True)}


def compare(plans: Sequence[Plan], built: Built) -> Iterator[str]:
    """Yield the lines of a table of forecast and built sizes."""
    yield "| Library | Kernels | Forecast | Built | Difference |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    costs = load_costs()
    for plan in plans:
        forecast = estimate(plan, costs, 1).library_bytes()
        for module in plan.modules:
            listed = [c for c in compiles(plan, costs) if c.module == module.name and c.kernels]
            paths = {c: built.batches.get(c.name.rpartition(":")[2]) for c in listed}
            objects = {c: read_object(path) for c, path in paths.items() if path}
            if library := built.library(module.library):
                name, kernels = module.library, len(module.kernels)
                expected, size = forecast[module.name], float(library.stat().st_size)
            elif objects:
                name = f"{module.library}: kernels of {len(objects)} of {len(listed)} batches"
                kernels = sum(c.kernels for c in objects)
                expected = sum(c.cost.linked_bytes for c in objects)
                size = sum(o.host + o.device - SHARED_BYTES for o in objects.values())
            else:
                continue
            more = 100 * (expected / size - 1)
            yield f"| {name} | {kernels} | {expected:,.0f} | {size:,.0f} | {more:+.1f} % |"


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
    measured.add_argument(
        "--record", nargs=3, metavar=("EVENTS", "MANIFEST", "MODULE"), help="record a build"
    )
    built = parser.add_mutually_exclusive_group()
    built.add_argument("--scale", action="store_true", help="with --aiter: fit seconds to a build")
    for name, help_ in (
        ("--sizes", "with --aiter: measure the bytes of the objects of bazel-bin instead"),
        ("--compare", "with --aiter: compare forecasts with the libraries of bazel-bin"),
    ):
        built.add_argument(name, nargs="+", type=Path, metavar="BIN", help=help_)
    parser.add_argument("--hipcc", default="hipcc", help="compiler to measure (default: hipcc)")
    parser.add_argument("--output", type=Path, default=COSTS, help="file")
    args = parser.parse_args()
    if args.record:
        events, text = (Path(file).read_text(encoding="utf-8") for file in args.record[:2])
        build = record_build(events, text, args.record[2])
        builds = json.loads(BUILDS.read_text(encoding="utf-8")) if BUILDS.is_file() else []
        identity = itemgetter("module", "manifest")
        builds = [*(one for one in builds if identity(one) != identity(build)), build]
        BUILDS.write_text(json.dumps(builds, indent=2) + "\n", encoding="utf-8")
        return
    costs: dict[str, Any] = json.loads(COSTS.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as work:
        directory = Path(work)
        if args.triton:
            costs["triton"] = f"triton {version('triton')}; {_cpu_model()}"
            costs["triton_kernels"] = list(_logged(measure_triton(directory)))
        elif args.scale:
            plan = _plan(directory / "families", FAMILIES.read_text(encoding="utf-8"), args.aiter)
            page = PERFORMANCE.read_text(encoding="utf-8")
            costs["kernels"] = list(scale(costs["kernels"], plan, page))
        elif directories := args.sizes or args.compare:
            files = [ROOT / manifest for manifest in MANIFESTS]
            plans = [
                _plan(directory / file.stem, file.read_text(encoding="utf-8"), args.aiter)
                for file in files
            ]
            if args.compare:
                print("\n".join(compare(plans, Built(directories))))
                return
            costs |= measure_sizes(plans, Built(directories))
        else:
            os.environ.pop("ROCM_PATH", None)
            compiler = find_compiler(args.hipcc)
            bench = Bench(compiler, args.aiter.resolve(), directory)
            plans = [bench.plan("small", SMALL), bench.plan("large", LARGE)]
            costs |= {"compiler": compiler.version, "cpu": _cpu_model(), "arch": ARCH}
            costs["kernels"] = list(_logged(measure_kernels(bench, plans[0])))
            sources = (measure_dispatches(bench, plan) for plan in plans)
            costs["sources"] = list(_logged(chain(*sources, measure_entries(bench, plans[0]))))
    lists = {key: value for key, value in costs.items() if isinstance(value, list)}
    texts = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in costs.items() if k not in lists]
    for key, entries in lists.items():
        lines = ",\n".join(f"    {json.dumps(entry)}" for entry in entries)
        texts.append(f"  {json.dumps(key)}: [\n{lines}\n  ]")
    args.output.write_text("{\n" + ",\n".join(texts) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
