"""Fits the costs of `qola plan --estimate`, qola/query/costs.json, to a build.

    ./bazelw build --config=no-cache --profile=FILE.gz //:{quickstart,ci}_libmha_{fwd,bwd} \
        @qola_test_manifests//:{asm_libmha_bwd,{asm,paged,splitkv}_libmha_fwd}
    python3 -m bench.measure_costs --aiter TREE --profile FILE.gz --bin bazel-bin

It reads seconds of the profile as bench/test_costs.py does, and bytes of the objects of MANIFESTS
below bazel-bin. It replaces the costs of roles whose objects are there. `--compare` prints the
estimate and the size of each library instead. All need third_party/python/dev.txt.

    PYTHONPATH=. VENV/bin/python bench/measure_costs.py --triton   # and triton.txt: half a minute

`--record` writes the CPU seconds of a build to tests/golden/builds.json, by which tests check the
estimate. They also hold on a busy machine:

    target=@qola_test_manifests//:forward_libmha_fwd
    ./bazelw build --config=no-cache --build_event_json_file=FILE $target
    python3 -m bench.measure_costs --record FILE tests/manifests/forward.toml libmha_fwd
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from bench.setting import processor
from bench.test_costs import profile_seconds
from qola.aiter.tree import read_tree
from qola.common.folder import Folder
from qola.common.layout import KERNEL_COMPILE, TRITON
from qola.manifest.load import loads
from qola.plan.model import Plan
from qola.plan.planner import build_plan
from qola.plan.request import Request
from qola.plan.resolve import resolve
from qola.query.estimate import (
    FEATURES,
    Costs,
    RoleCost,
    batches,
    called_kernels,
    counts,
    estimate,
    hdim_of,
    load_costs,
    source_key,
    with_feature,
)
from qola.triton import own
from qola.triton.kernel import instance_name
from qola_base.code_object.elf import Elf
from qola_base.json_types import json_fields

ROOT = Path(__file__).resolve().parents[1]
ARCH = "gfx950"
COSTS = ROOT / "qola/query/costs.json"
BUILDS = ROOT / "tests/golden/builds.json"
MANIFESTS = (
    *(f"manifests/{name}.toml" for name in ("quickstart", "ci", "te")),
    *(f"tests/manifests/{name}.toml" for name in ("asm", "paged", "splitkv")),
)
#: Functions of the C++ library and of Composable Kernel in each object with kernel instances, of
#: which a library has one copy.
SHARED_BYTES = 4_600
#: Unwind index, relocations and name of a kernel instance, which the linker adds to its object.
TABLE_BYTES = 500
#: Share of a source's code that is linked: the linker drops functions that nothing calls. From the
#: libraries of ci.toml (0.52) and te.toml (0.44), less all that the other objects add.
LINKED_SHARES = {("bwd", "dispatch"): 0.46}
TRITON_HDIMS = (64, 128, 256)
#: Flag of sections that are loaded.
_ALLOCATED = 2

Key = tuple[str, str, int]
"""Direction, role and head dimension."""


@dataclass(frozen=True)
class Compile:
    """A compile of a build.

    Attributes:
        features: number of its kernel instances with each property of `FEATURES`.
        seconds: of CPU; None if the profile does not have it.
        host, device, symbols: bytes that are linked, that are code for a GPU, and others.
    """

    key: Key
    archs: int
    kernels: int
    features: Mapping[str, int]
    seconds: float | None
    host: float
    device: float
    symbols: float


class Built:
    """Libraries and objects of a directory bazel-bin, and the seconds of a profile.

    Attributes:
        batches: the object of a batch, or of a kernel instance without one, by its name.
        sources: the object of a source of a library by the plan's name and its directory.
    """

    def __init__(self, directory: Path, profile: Path | None = None) -> None:
        self._bin = directory.resolve()
        # Kernel instances and libraries have configurations of their own.
        external = list(self._bin.parent.parent.glob("*/bin/external"))
        objects = (path for d in external for path in d.glob("rules_hip*/kernels/*.pic.o"))
        self.batches = {path.name.removesuffix(".pic.o"): path for path in objects}
        objects = (path for d in external for path in d.glob("*qola_*/_objs/*/*.pic.o"))
        names = ((path.parts[-4].rpartition("qola_")[2], path.parts[-2], path) for path in objects)
        self.sources = {(plan, directory): path for plan, directory, path in names}
        self._seconds = read_profile(profile) if profile else {}

    def library(self, file: str) -> Path | None:
        """Return a linked library."""
        places = ("", "external/qola_test_manifests~")
        paths = (self._bin / place / file for place in places)
        return next((path for path in paths if path.exists()), None)

    def compiles(self, plan: Plan) -> Iterator[tuple[str, Compile]]:
        """Yield the compiles of a plan whose objects exist: ``kernels`` or ``sources``, and it."""
        for module in plan.modules:
            for (_, name), batch in batches(plan, module).items():
                if path := self.batches.get(name):
                    host, device, symbols = read_object(path)
                    key = batch[0].direction, batch[0].role, hdim_of(batch)
                    features = {feature: with_feature(batch, feature) for feature in FEATURES}
                    size = host - SHARED_BYTES + TABLE_BYTES * len(batch), device, symbols
                    archs, seconds = len(batch[0].archs), self._seconds.get(name)
                    yield "kernels", Compile(key, archs, len(batch), features, seconds, *size)
            for source in module.sources:
                path = self.sources.get((plan.name, f"{module.name}.{source.name}"))
                if path and source.archs in ((), plan.archs):
                    host, device, symbols = read_object(path)
                    linked = LINKED_SHARES.get(source_key(source), 1) * host
                    size = linked, device, symbols + host - linked
                    seconds = self._seconds.get(f"{plan.name}/{source.file}")
                    called = called_kernels(plan, module, source)
                    key = (*source_key(source), 0)
                    yield "sources", Compile(key, len(plan.archs), called, {}, seconds, *size)


def read_profile(file: Path) -> dict[str, float]:
    """Return CPU seconds of compiles: by the name of a batch, or by plan and file of a source."""
    found: dict[str, float] = {}
    for span, seconds in profile_seconds(file).items():
        name = re.match(r"Compiling (?:external/\S*qola_)?(\S+)", span.name)
        if name:
            found[name[1]] = found.get(name[1], 0.0) + seconds
    return found


def read_object(path: Path) -> tuple[float, float, float]:
    """Return the bytes of an object: host code, code for GPUs, symbols and relocations."""
    data = path.read_bytes()
    linked: dict[str, int] = {}
    for section in Elf(data).sections:
        stored = section.stored if section.flags & _ALLOCATED else 0
        linked[section.name] = linked.get(section.name, 0) + stored
    device = linked.pop(".hip_fatbin", 0)
    host = sum(linked.values())
    return host, device, len(data) - host - device


def fit(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Return coefficients of columns by least squares, at least 0.

    A column that depends on those before it gets 0.
    """
    columns, kept = np.array(rows, dtype=float), list[int]()
    for column in range(columns.shape[1]):
        if np.linalg.matrix_rank(columns[:, [*kept, column]]) > len(kept):
            kept.append(column)
    found = np.zeros(columns.shape[1])
    found[kept] = np.linalg.lstsq(columns[:, kept], np.array(values), rcond=None)[0]
    return [float(value) for value in np.maximum(found, 0)]


#: Columns of `counts` by priority: of linearly dependent ones, `fit` gives the costs to the first.
_COLUMNS = {"kernels": (1, 3, 0, 2), "sources": (0, 2, 1, 3)}


def measure(costs: Costs, compiles: Iterable[tuple[str, Compile]]) -> Costs:
    """Return the costs with those of all roles that were compiled."""
    groups: dict[str, dict[Key, list[Compile]]] = {"kernels": {}, "sources": {}}
    for table, one in compiles:
        groups[table].setdefault(one.key, []).append(one)
    features = {(one.direction, one.role): one for one in costs.features}
    tables: dict[str, tuple[RoleCost, ...]] = {}
    for table, keys in groups.items():
        known: tuple[RoleCost, ...] = getattr(costs, table)
        found = [row for key, own in keys.items() for row in _fit_role(table, known, key, own)]
        roles = {(key[0], key[1]) for key in keys}
        rows = [row for row in known if (row.direction, row.role) not in roles]
        rows += [row for row in found if row.role not in FEATURES]
        tables[table] = tuple(sorted(rows, key=lambda row: (row.direction, row.role, row.hdim)))
        added = [row for row in found if row.role in FEATURES and any(row.linked_bytes)]
        features |= {(row.direction, row.role): row for row in added}
    return replace(
        costs,
        features=tuple(features.values()),
        kernels=tables["kernels"],
        sources=tables["sources"],
    )


def _fit_role(
    table: str, known: Sequence[RoleCost], key: Key, compiles: Sequence[Compile]
) -> Iterator[RoleCost]:
    """Yield the costs of a role, and those of properties of its kernel instances."""
    rows = [[float(table == "sources"), one.kernels, *one.features.values()] for one in compiles]
    device_rows = [
        [n * one.archs for n in row[1:]] for row, one in zip(rows, compiles, strict=True)
    ]
    host = fit(rows, [one.host for one in compiles])
    symbols = fit(rows, [one.symbols for one in compiles])
    device = fit(device_rows, [one.device for one in compiles])
    shared = SHARED_BYTES if table == "kernels" else 0
    timed = [one for one in compiles if one.seconds is not None]
    same = [row for row in known if (row.direction, row.role) == key[:2]]
    seconds = min(same, key=lambda row: abs(row.hdim - key[2])).cpu_seconds if same else (0.0,) * 4
    if timed:
        order = _COLUMNS[table]
        numbers = [[counts(one.archs, one.kernels)[place] for place in order] for one in timed]
        fitted = fit(numbers, [one.seconds or 0.0 for one in timed])
        a, b, c, d = (fitted[order.index(place)] for place in range(4))
        seconds = a, b, c, d
    linked = host[0], 0.0, host[1], device[0]
    objects = host[0] + symbols[0] + shared, 0.0, host[1] + symbols[1], device[0]
    yield RoleCost(*key, seconds, objects, linked)
    for number, feature in enumerate(compiles[0].features):
        more, stored = host[2 + number], symbols[2 + number]
        linked = 0.0, 0.0, more, device[1 + number]
        objects = 0.0, 0.0, more + stored, device[1 + number]
        yield RoleCost(key[0], feature, 0, (0.0,) * 4, objects, linked)


def measure_triton(directory: Path) -> Iterator[RoleCost]:
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
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            size = float(code.stat().st_size), 0.0, 0.0, 0.0
            yield RoleCost(TRITON, function, hdim, (round(seconds, 1), 0.0, 0.0, 0.0), size, size)


def compare(plans: Iterable[Plan], built: Built) -> Iterator[str]:
    """Yield the lines of a table of estimated and built sizes."""
    yield "| Library | Kernels | Estimate | Built | Difference |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    costs = load_costs()
    for plan in plans:
        estimated = estimate(plan, costs, 1).library_bytes()
        for module in plan.modules:
            if library := built.library(module.library):
                expected, size = estimated[module.name], library.stat().st_size
                more = f"{100 * (expected / size - 1):+.1f} %"
                row = (
                    module.library,
                    str(len(module.kernels)),
                    f"{expected:,.0f}",
                    f"{size:,}",
                    more,
                )
                yield f"| {' | '.join(row)} |"


def make_plans(tree: Path) -> Iterator[Plan]:
    """Yield the plans of MANIFESTS."""
    aiter = read_tree(tree)
    for file in map(Path, MANIFESTS):
        manifest = loads((ROOT / file).read_text(encoding="utf-8"), file=file.stem)
        yield build_plan(resolve(Request(file.stem, manifest, aiter)), Folder())


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
    return {"module": module, "manifest": manifest, "cpu": processor(), **found}


def _rounded(row: RoleCost) -> dict[str, Any]:
    return {
        name: [round(n, 0 if "bytes" in name else 4) for n in value]
        if isinstance(value, tuple)
        else value
        for name, value in json_fields(row).items()
    }


def to_text(costs: Costs) -> str:
    """Return the text of costs.json."""
    texts = []
    for name, value in json_fields(costs).items():
        if isinstance(value, tuple):
            rows = ",\n".join(f"    {json.dumps(_rounded(row))}" for row in value)
            text = f"[\n{rows}\n  ]"
        else:
            text = json.dumps(value)
        texts.append(f"  {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(texts) + "\n}\n"


def main() -> None:
    """Measure, and replace the measured part of the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    measured = parser.add_mutually_exclusive_group(required=True)
    measured.add_argument("--bin", type=Path, help="bazel-bin: fit the costs of C++ to its objects")
    measured.add_argument("--triton", action="store_true", help="measure kernels in Triton")
    measured.add_argument(
        "--record", nargs=3, metavar=("EVENTS", "MANIFEST", "MODULE"), help="record a build"
    )
    parser.add_argument("--aiter", type=Path, help="with --bin: AITER source tree")
    parser.add_argument("--profile", type=Path, help="with --bin: fit seconds, too")
    parser.add_argument("--compare", action="store_true", help="with --bin: only print a table")
    args = parser.parse_args()
    if args.record:
        events, text = (Path(file).read_text(encoding="utf-8") for file in args.record[:2])
        build = record_build(events, text, args.record[2])
        builds = json.loads(BUILDS.read_text(encoding="utf-8")) if BUILDS.is_file() else []
        identity = itemgetter("module", "manifest")
        builds = [*(one for one in builds if identity(one) != identity(build)), build]
        BUILDS.write_text(json.dumps(builds, indent=2) + "\n", encoding="utf-8")
        return
    costs = load_costs()
    if args.triton:
        with tempfile.TemporaryDirectory() as work:
            costs = replace(costs, triton=tuple(measure_triton(Path(work))))
        costs = replace(costs, measured_triton=f"triton {version('triton')}; {processor()}")
    else:
        built, plans = Built(args.bin, args.profile), list(make_plans(args.aiter))
        if args.compare:
            print("\n".join(compare(plans, built)))
            return
        costs = measure(costs, (one for plan in plans for one in built.compiles(plan)))
        if args.profile:
            costs = replace(costs, cpu=processor())
    COSTS.write_text(to_text(costs), encoding="utf-8")


if __name__ == "__main__":
    main()
