"""The generator process: drives one of CK's op modules and writes kernels and dispatch.

Run as ``python -B -S -m qola.codegen.ck.driver REQUEST``, in an empty directory with a fixed hash
seed. REQUEST is a JSON file; the answer is written to the path it names. A problem a user can
solve is an answer with an ``error``; a traceback on stderr is a bug, here or in CK.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qola.codegen.ck.adapter import Adapter, Kernel, Row, UnservedCkError
from qola.codegen.ck.batch_prefill import BatchPrefillAdapter
from qola.codegen.ck.bwd import BwdAdapter
from qola.codegen.ck.families import Family, family_name, find_families
from qola.codegen.ck.fwd import FwdAdapter
from qola.codegen.ck.fwd_splitkv import FwdSplitKvAdapter
from qola.codegen.ck.hazards import DispatchRow, find_hazards
from qola.codegen.ck.predicates import Wanted
from qola.codegen.ck.receipts import OPS
from qola.codegen.ck.selector import Selector
from qola.files import write_if_changed

ADAPTERS: Mapping[str, Callable[[Any], Adapter]] = {
    "fwd": FwdAdapter,
    "fwd_splitkv": FwdSplitKvAdapter,
    "batch_prefill": BatchPrefillAdapter,
    "bwd": BwdAdapter,
}


def _dispatch_row(row: Row, keepers: Iterable[Wanted] = ()) -> DispatchRow:
    return DispatchRow(
        arch=row.arch or "",
        dtype=str(row.fields["dtype"]),
        bucket=row.bucket,
        problem=row.problem,
        steps=row.steps,
        bm0=row.bm0,
        conditional=row.conditional,
        labels=tuple(w.label for w in keepers if w.index >= 0),
    )


def run(request: Mapping[str, Any]) -> dict[str, Any]:
    """Generate one direction and return what was generated.

    Raises:
        UnservedCkError: CK differs from what the direction's adapter serves.
    """
    sys.path.insert(0, request["fmha_dir"])
    direction = request["direction"]
    adapter = ADAPTERS[direction](importlib.import_module(f"codegen.ops.{OPS[direction]}"))
    archs: list[str] = request["archs"]
    tags = {arch: adapter.arch_tag(arch) for arch in archs}
    selector = Selector(adapter, archs, request)
    keepers = (
        {} if request["dropped"] else {row.key: selector.keepers(row) for row in selector.rows}
    )
    rows = [row for row in selector.rows if keepers.get(row.key)]
    kept: dict[str, tuple[Kernel, set[int]]] = {
        name: (kernel, set())
        for name, (kernel, keep) in selector.loose().items()
        if keep and not request["dropped"]
    }
    for row in rows:
        for kernel in row.kernels:
            _, indices = kept.setdefault(kernel.name, (kernel, set()))
            indices.update(w.index for w in keepers[row.key] if w.index >= 0)

    out = Path(request["out_dir"])
    families = _families(selector, [kernel for kernel, _ in kept.values()])
    kernels = [
        {
            "name": kernel.name,
            "direction": direction,
            "role": kernel.role,
            "archs": _archs_of(kernel, tags),
            "file": f"kernels/{kernel.name}.cpp",
            "sha256": write_if_changed(out / "kernels" / f"{kernel.name}.cpp", kernel.render()),
            "fields": dict(kernel.fields),
            "kept_by": sorted(indices),
            "family": name if (name := family_name(kernel)) in families else "",
        }
        for kernel, indices in kept.values()
    ]
    sources = []
    for chosen, folder in request["folders"]:
        reached = {tags[arch] for arch in chosen}
        text = adapter.api([row for row in rows if row.arch is None or row.arch in reached])
        sources.append(
            {
                "name": adapter.api_file,
                "file": f"{folder}/{adapter.api_file}",
                "sha256": write_if_changed(out / folder / adapter.api_file, text),
                "direction": direction,
                "role": "dispatch",
                "archs": chosen,
            }
        )
    findings = find_hazards(
        direction,
        [_dispatch_row(row) for row in selector.rows],
        [_dispatch_row(row, keepers[row.key]) for row in rows],
        request["origin"],
    )
    wanted = [Wanted.from_json(w) for w in request["wanted"]]
    counts = {str(w.index): sum(w in keepers[row.key] for row in rows) for w in wanted}
    return {
        "kernels": kernels,
        "families": [_write_family(out, direction, family) for family in families.values()],
        "sources": sources,
        "findings": [asdict(f) for f in findings],
        "counts": counts,
        "blame": {
            str(w.index): ["the direction is dropped"] if request["dropped"] else selector.blame(w)
            for w in wanted
            if not counts[str(w.index)]
        },
        "unserved": {str(w.index): selector.hdims[w.index][1] for w in wanted},
        "buckets": sorted({row.bucket for row in selector.rows}),
        "explanations": _explain(selector, kept, tags, request) if request["explain"] else [],
    }


def _families(selector: Selector, kept: Sequence[Kernel]) -> dict[str, Family]:
    """Return the families of the kernels that are kept, with sisters from all there are."""
    offered = [kernel for row in [*selector.rows, *selector.outside] for kernel in row.kernels]
    return find_families([*offered, *(kernel for kernel, _ in selector.loose().values())], kept)


def _write_family(out: Path, direction: str, family: Family) -> dict[str, Any]:
    """Write a family's header and return what describes it."""
    name = f"{family.name}.hpp"
    return {
        "name": family.name,
        "direction": direction,
        "role": family.role,
        "sister": family.sister,
        "size": family.size,
        "file": f"warm/{name}",
        "sha256": write_if_changed(out / "warm" / name, family.header),
    }


def _archs_of(kernel: Kernel, tags: Mapping[str, str | None]) -> list[str]:
    """Return the architectures a kernel is compiled for, of those with the given tags."""
    return [arch for arch, tag in tags.items() if kernel.arch_tag in (None, tag)]


def _explain(
    selector: Selector,
    kept: Mapping[str, tuple[Kernel, set[int]]],
    tags: Mapping[str, str | None],
    request: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return, for every kernel of the receipts in use, who keeps it or what drops it."""
    reasons: dict[str, tuple[Kernel, str]] = {}
    for row in [*selector.rows, *selector.outside]:
        dropped = [kernel for kernel in row.kernels if kernel.name not in kept]
        reason = selector.reason(row) if dropped else ""
        for kernel in row.kernels:
            reasons.setdefault(kernel.name, (kernel, reason))
    for name, (kernel, _) in selector.loose().items():
        reasons.setdefault(name, (kernel, "no entry of the dispatch calls it"))
    return [
        {
            "name": name,
            "direction": request["direction"],
            "role": kernel.role,
            "archs": _archs_of(kernel, tags),
            "fields": dict(kernel.fields),
            "kept_by": sorted(kept[name][1]) if name in kept else [],
            "dropped_by": ""
            if name in kept
            else "the direction is dropped"
            if request["dropped"]
            else reason,
        }
        for name, (kernel, reason) in reasons.items()
    ]


def main(path: str) -> int:
    """Read the request at `path` and write the answer; returns the exit code."""
    request = json.loads(Path(path).read_text(encoding="utf-8"))
    try:
        answer = run(request)
    except UnservedCkError as error:
        answer = {"error": {"found": error.found, "expected": error.expected}}
    Path(request["answer"]).write_text(json.dumps(answer), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
