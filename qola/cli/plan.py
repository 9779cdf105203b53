"""``qola plan``, ``qola list`` and ``qola explain``."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from qola.cli import options
from qola.cli.commands import PLANNING, add_command
from qola.cli.console import Console, Surroundings, align, size, table
from qola.common.folder import Folder
from qola.common.layout import TRITON, triton_file
from qola.common.processes import available_cores
from qola.plan import planner
from qola.plan.model import Plan, PlannedModule, TorchModule, TritonKernel
from qola.plan.request import Request
from qola.plan.resolve import resolve
from qola.plan.triton_kernels import plan_triton
from qola.query import estimate, planned
from qola.query.estimate import Estimate, load_costs
from qola.query.kernels import (
    KEY,
    Verdict,
    count,
    items_of,
    select,
    summary,
    triton_verdicts,
    verdicts,
)
from qola_base.errors import ExitCode
from qola_base.json_types import JsonValue
from qola_base.progress import duration

_QUERY = """\
A query is any number of
  FIELD=VALUE[,VALUE...]   such as dtype=bf16 hdim=64,192x128 mask=yes mode=group role=dq_dk_dv;
                           names of manifests and problems mean the same: has_mask, mask_type, ...
  a kernel instance's name, its file or its label
  a pattern in quotes, with * ? and []: '*_d128_bf16_*'
Every field has to fit, and of the names and patterns any one."""


_LONG = (
    *("module", "direction", "role", "arch", "dtype", "hdim", "mode"),
    *("bias", "mask", "lse", "dropout"),
)


def add_commands(commands: Any) -> None:
    """Add plan, list and explain to the parser's subcommands."""
    plan = _add_command(commands, "plan", "MANIFEST", _plan)
    plan.add_argument("--estimate", action="store_true", help="also what building it costs")
    options.add_options(plan, "jobs", help="cores to estimate for (default: all here)")
    words = "MANIFEST [QUERY...]"
    listing = _add_command(commands, "list", words, _list, _QUERY)
    listing.add_argument("--long", action="store_true", help="with their fields")
    _add_command(commands, "explain", words, _explain, _QUERY)


def _add_command(
    commands: Any,
    name: str,
    words: str,
    run: Callable[[argparse.Namespace, Surroundings], None],
    epilog: str = "",
) -> argparse.ArgumentParser:
    """Add a command with what all of them take."""
    codes = (*PLANNING, ExitCode.PIPE)
    parser = add_command(commands, name, run, codes, words=words, epilog=epilog)
    more = None if name == "plan" else (words, "the manifest is a TOML file")
    options.add_manifest(parser, more=more)
    parser.add_argument(
        "--name", metavar="NAME", help="name of the manifest (default: its file's, without .toml)"
    )
    options.add_options(parser, "aiter_root", help=options.PLANNED_TREE)
    options.add_options(
        parser, *options.AITER[1:], "skip_checkout", "archs", "mode", "require", "json"
    )
    parser.add_argument(
        "--rocm-version", metavar="VERSION", help="check the manifest's rocm_versions against it"
    )
    parser.add_argument(
        "--override-aiter-commit",
        action="store_true",
        help="plan although the manifest names another AITER; a warning says so",
    )
    return parser


def request_of(args: argparse.Namespace, around: Surroundings) -> Request:
    """Return the request of a plan.

    Raises:
        QolaError: the manifest is not valid, or no AITER tree was found.
    """
    return planned.plan_request(
        options.build_request(args, around),
        args.manifest.as_posix(),
        around.environ,
        name=getattr(args, "name", None) or "",
        rocm_version=getattr(args, "rocm_version", None),
    )


def find_verdicts(request: Request) -> list[Verdict]:
    """Return for each kernel instance of the receipts in use whether it is kept, and why."""
    found = planner.explain(request)
    manifest = request.manifest
    kernels: tuple[TritonKernel, ...] = ()
    if manifest.triton:
        kernels = plan_triton(manifest, request.triton, resolve(request).archs, Folder())
    return [*verdicts(manifest, found), *triton_verdicts(manifest, kernels)]


def _plan(args: argparse.Namespace, around: Surroundings) -> None:
    """``qola plan``."""
    console = around.console
    plan = planner.plan(request_of(args, around))
    cores = args.jobs or available_cores()
    expected = estimate.estimate(plan, load_costs(), cores) if args.estimate else None
    if args.json:
        for warning in plan.warnings:
            console.note(warning.render())
        more = {"estimate": expected.to_dict()} if expected else {}
        console.line(plan.to_json(**more).removesuffix("\n"))
        return
    _print_plan(plan, console)
    if expected:
        console.line()
        if expected.rows:
            console.line(cost_table(expected))
            console.line()
        libraries = {m.name: m.library for m in plan.with_kernels}
        libraries[TRITON] = f"packs of {triton_file(plan.namespace)}"
        console.line("\n".join(to_lines(expected, libraries)))
    for warning in plan.warnings:
        console.line(f"\n{warning.render()}")


def _print_plan(plan: Plan, console: Console) -> None:
    versions = dict.fromkeys(filter(None, (plan.aiter.version, plan.aiter.id)))
    aiter = " ".join(versions) or "of unknown version"
    scope = f"qola::{plan.namespace}" if plan.namespace else "qola"
    console.line(f"{plan.name}: namespace {scope}, {', '.join(plan.archs)}, AITER {aiter}")
    # Kernels in Triton are counted below.
    rows = count(items_of(plan)[: len(plan.kernels)])
    dtypes = sorted({dtype for row in rows for dtype in row.by_dtype})
    modes = sorted({mode for row in rows for mode in row.by_mode})
    for module in plan.with_kernels:
        console.line()
        numbers = [
            (*(row.by_dtype[t] for t in dtypes), *(row.by_mode[m] for m in modes), row.total)
            for row in rows
            if row.key[0] == module.name
        ]
        if not numbers:
            console.line(f"{module.name}: {module.library}, {_without_kernels(module)}")
            continue
        keys = [row.key[1:] for row in rows if row.key[0] == module.name]
        receipt = "" if module.receipt is None else f", receipt {module.receipt}"
        text = table(
            f"{module.name}: {module.library}{receipt}, {len(module.kernels)} kernel instances",
            (*KEY[1:], *dtypes, *modes, "total"),
            [(*key, *map(str, row)) for key, row in zip(keys, numbers, strict=True)],
            ("total", "", "", "", *(str(sum(column)) for column in zip(*numbers, strict=True))),
            numbers=len(dtypes) + len(modes) + 1,
        )
        console.line(text)
        if module.code_objects:
            console.line(_code_objects(module))
    for python in plan.python_modules:
        kind = f"{python.call} of csrc/cpp_itfs" if python.call else "a Python module"
        console.line(f"\n{python.name}: {python.library}, {kind}")
    for kernel in plan.triton:
        number, archs = len(kernel.instances), ", ".join(kernel.archs)
        console.line(f"\n{kernel.name}: in Triton, {number} code objects for {archs}")


def _without_kernels(module: PlannedModule | TorchModule) -> str:
    """Say what a library is that has no kernel instance of CK's."""
    if isinstance(module, PlannedModule):
        return f"assembly kernels alone\n{_code_objects(module)}"
    made = sum(source.role in ("batch", "generated") for source in module.sources)
    generated = f", {made} generated" if made else ""
    sources = f"a torch module, sources: {len(module.sources) - made} of AITER's{generated}"
    return f"{sources}\n{_code_objects(module)}" if module.code_objects else sources


def _code_objects(module: PlannedModule | TorchModule) -> str:
    """Say how many code objects of assembly kernels a library embeds."""
    by_arch = Counter(code_object.arch for code_object in module.code_objects)
    total = sum(code_object.size for code_object in module.code_objects)
    parts = ", ".join(f"{number} for {arch}" for arch, number in sorted(by_arch.items()))
    return f"code objects of assembly kernels: {parts} ({size(total)})"


def _list(args: argparse.Namespace, around: Surroundings) -> None:
    """``qola list``."""
    console = around.console
    plan = planner.plan(request_of(args, around))
    items = items_of(plan)
    found = select(items, args.words)
    if args.json:
        every = [*plan.kernels, *(one for kernel in plan.triton for one in kernel.instances)]
        _print_json(console, [vars(every[i]) for i in found])
        return
    lines = [items[i].name for i in found]
    if args.long:
        cells = [(*map(items[i].show, _LONG), items[i].name) for i in found]
        lines = align([(*_LONG, "name"), *cells], len(_LONG) + 1)
    for line in lines:
        console.line(line)


def _print_json(console: Console, values: Sequence[Mapping[str, JsonValue]]) -> None:
    """Print a JSON list with one entry a line."""
    lines = ",\n".join(f"  {json.dumps(value, sort_keys=True)}" for value in values)
    console.line(f"[\n{lines}\n]" if lines else "[]")


def _explain(args: argparse.Namespace, around: Surroundings) -> None:
    """``qola explain``."""
    console = around.console
    found = find_verdicts(request_of(args, around))
    if not args.words:
        _print_summary(found, args.json, console)
        return
    found = [found[i] for i in select([verdict.item for verdict in found], args.words)]
    if args.json:
        _print_json(console, [verdict.to_dict() for verdict in found])
    elif len(found) == 1:
        _print_verdict(found[0], console)
    else:
        cells = [(v.word, v.item.name, ", ".join(v.reasons)) for v in found]
        for line in align(cells, 3):
            console.line(line)
        kept = sum(verdict.kept for verdict in found)
        console.note(f"{kept} in, {len(found) - kept} out")


def _print_verdict(verdict: Verdict, console: Console) -> None:
    fields = " ".join(f"{key}={verdict.item.show(key)}" for key in verdict.item.values)
    console.line(f"{verdict.item.name}: {verdict.word}")
    console.line(f"  {'kept by' if verdict.kept else 'dropped'}  {', '.join(verdict.reasons)}")
    console.line(f"  fields   {fields}")


def _print_summary(found: Sequence[Verdict], as_json: bool, console: Console) -> None:
    rules = summary(found)
    if as_json:
        _print_json(
            console, [{("in" if k == "kept" else k): v for k, v in vars(r).items()} for r in rules]
        )
        return
    kept = sum(verdict.kept for verdict in found)
    text = table(
        f"{kept} kernel instances in, {len(found) - kept} out",
        ("module", "direction", "role", "", "rule", "count"),
        [
            (r.module, r.direction, r.role, "in" if r.kept else "out", r.rule, str(r.count))
            for r in rules
        ],
        numbers=1,
    )
    console.line(text)


def cost_table(found: Estimate) -> str:
    """Return the estimate's parts as a table."""
    rows = [
        (
            row.module,
            row.direction,
            row.role if row.measured else f"{row.role} (borrowed)",
            str(row.kernels),
            str(row.compiles),
            duration(row.cost.cpu_seconds / row.compiles),
            duration(row.cost.cpu_seconds),
            size(row.cost.object_bytes),
        )
        for row in found.rows
    ]
    sums = (sum(row.kernels for row in found.rows), sum(row.compiles for row in found.rows))
    total = ("total", "", "", *map(str, sums), "")
    return table(
        "Estimated cost",
        ("module", "direction", "role", "kernels", "compiles", "each", "CPU time", "objects"),
        rows,
        (*total, duration(found.cpu_seconds), size(found.object_bytes)),
        numbers=5,
    )


def to_lines(found: Estimate, libraries: Mapping[str, str]) -> list[str]:
    """Return what the table does not say: time on the cores at hand, sizes, and their origin."""
    lines = _cost_lines(found, libraries) if found.rows else []
    if found.not_estimated:
        number, names = sum(found.not_estimated.values()), ", ".join(found.not_estimated)
        words = "seconds to minutes of compiling each, and bytes of the libraries"
        sources = "source" if number == 1 else "sources"
        lines.append(f"not estimated: {number} {sources} ({words}) of {names}")
    return lines


def _cost_lines(found: Estimate, libraries: Mapping[str, str]) -> list[str]:
    sizes = ", ".join(f"{libraries[m]} {size(n)}" for m, n in found.library_bytes().items())
    cores = f"{found.cores} core{'s' if found.cores > 1 else ''}"
    start = f"{duration(found.start_seconds)} of it to unpack the compiler, plan and start Bazel"
    lines = [f"about {duration(found.wall_seconds)} on {cores}, from an empty cache; {sizes}"]
    lines.append(f"{start}; downloads take longer")
    if found.longest_seconds * found.cores > found.cpu_seconds:
        lines.append("the longest compile decides, not the number of cores")
    if any(not row.measured for row in found.rows):
        lines.append(
            "(borrowed): not measured; the cost is that of a similar role, or the highest one"
        )
    return [*lines, f"an estimate, from costs measured on {found.cpu}"]
