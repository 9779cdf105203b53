"""Builds a small library of a tree, and sees its entry points launch: what no reading can prove."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from qola.aiter.attention import MAIN_ROLE
from qola.build.bazel import BuildOptions, build, child_environment
from qola.build.events import DEFAULT_OUTPUTS
from qola.build.results import describe_failure, results_of
from qola.build.setup import resolve_build
from qola.build.workspace import set_up
from qola.checkout.request import AiterOptions
from qola.codegen.types import FieldValue, KernelInstance
from qola.manifest.fields import BWD_VARIANTS, FWD_VARIANTS, flags
from qola.manifest.toml import TomlTable
from qola.plan.generate import GeneratedModule
from qola.plan.spec import BuildRequest
from qola_base.cache import cache_directory, own_directory
from qola_base.errors import Finding
from qola_base.files import write_if_changed
from qola_base.progress import log
from qola_lab.trees.check import Check, Library, manifest_text

#: Tables of variants, by the direction that they are for, fwd or bwd.
Variants = Sequence[tuple[str, TomlTable]]
#: A variant's keys that are true or false, by the field of a kernel instance.
_FLAGS = {**flags(FWD_VARIANTS), **flags(BWD_VARIANTS)}
#: A direction that is not filtered is not tried with more kernel instances.
_MOST = 200


def check_launches(library: Library, module: GeneratedModule, environ: Mapping[str, str]) -> Check:
    """Build small libraries of each direction and of assembly kernels; run their launch tests.

    Raises:
        QolaError: Bazel cannot build on this machine.
    """
    texts, findings = small_manifests(library, module)
    found = [
        _launch(library, module.spec.name, name, text, environ) for name, text in texts.items()
    ]
    said = [check.said for check in found]
    findings += [finding for check in found for finding in check.findings]
    lines = [line for check in found for line in check.facts["lines"]]
    return Check("launches", library.of, "; ".join(said), tuple(findings), {"lines": lines})


def _launch(
    library: Library, module: str, name: str, manifest: str, environ: Mapping[str, str]
) -> Check:
    file = cache_directory(environ) / "compat" / f"{name}.toml"
    own_directory(file.parent)
    write_if_changed(file, manifest)
    request = BuildRequest(
        file, aiter=AiterOptions(library.resolved.request.tree.root, skip_checkout=True)
    )
    workspace = set_up(resolve_build(request, environ), environ)
    test = f"{module}_launch_test"
    with workspace.opened():
        log.info(f"{library.of}: compiling")
        label = workspace.label(test)
        events = build(workspace.bazel, workspace.directory, [label], BuildOptions(), environ)
        ended = {found: found for found in events.targets if found.endswith(f":{test}")}
        results = results_of(events, ended)
        if not results or not all(result.success for result in results.values()):
            said = "\n".join(describe_failure(result, events) for result in results.values())
            found, expected = said or f"{events.output} says why", "sources that compile and link"
            fix = "report it with the tree's commit, or take one where this is ok"
            failed = Finding(library.of, found, expected, fix)
            return Check("launches", library.of, "cannot be built", (failed,), {"lines": []})
        (result,) = results.values()
        return _run(library, result.outputs[DEFAULT_OUTPUTS][0], environ)


def small_manifests(
    library: Library, module: GeneratedModule
) -> tuple[dict[str, str], list[Finding]]:
    """Return manifests by name, and what is not tried.

    Of each direction its smallest kernel instances, for all archs that have some, in a library of
    its own: of several directions in one the head dims would have to be the same. And all assembly
    kernels, without directions.
    """
    base, found, findings = "_".join(library.of.lower().replace(",", "").split()), {}, []
    names = [direction.name for direction in module.kernels.directions]

    def add(name: str, archs: Sequence[str], kept: str, variants: Variants = ()) -> None:
        drop = {*library.table.get("drop_directions", ()), *names} - {kept}
        table = {**library.table, "drop_directions": sorted(drop)}
        tables = {f"mha_{of}_variants": [variant] for of, variant in variants}
        found[f"{base}_{name}"] = manifest_text(table, archs, tables)

    for direction in module.kernels.directions:
        own = [k for k in module.kernels.kernels if k.direction == direction.name]
        if direction.level == "filtered":
            for archs, variant in _smallest(k for k in own if k.role == MAIN_ROLE[direction.name]):
                of = "bwd" if direction.name == "bwd" else "fwd"
                add("_".join([direction.name, *archs]), archs, direction.name, [(of, variant)])
        elif len(own) > _MOST:
            reason = f"not compiled: {len(own)} kernel instances, of which none can be left out"
            expected = "a direction that is filtered, so that a few will do"
            findings.append(Finding(direction.name, reason, expected, severity="warning"))
        elif own:
            add(direction.name, library.resolved.archs, direction.name)
    if module.kernels.code_objects or not names:
        add("assembly", library.resolved.archs, "")
    return found, findings


def _run(library: Library, test: Path, environ: Mapping[str, str]) -> Check:
    run = subprocess.run(
        [test], env=child_environment(environ), capture_output=True, text=True, check=False
    )
    lines = [line for line in run.stdout.splitlines() if not line.startswith(" ")]
    facts = {"lines": run.stdout.splitlines()}
    if run.returncode == 0:
        return Check("launches", library.of, "; ".join(lines), (), facts)
    expected = "a kernel for every arch and entry point that has kernels"
    fix = "report it with the tree's commit, or leave the arch out"
    finding = Finding(library.of, (run.stdout + run.stderr).strip(), expected, fix)
    return Check("launches", library.of, "an entry point launches nothing", (finding,), facts)


def _smallest(
    kernels: Iterable[KernelInstance],
) -> Iterator[tuple[tuple[str, ...], TomlTable]]:
    """Yield variants of few kernel instances, and the archs of each, until all archs are there."""
    archs: dict[str, set[str]] = {}
    costs: dict[str, tuple[Any, ...]] = {}
    for kernel in kernels:
        fields = dict(kernel.fields)
        text = json.dumps(_variant(fields))
        archs.setdefault(text, set()).update(kernel.archs)
        costs[text] = min(costs.get(text, _cost(fields)), _cost(fields))
    left = set().union(*archs.values())
    while left:
        best = min(archs, key=lambda text: (-len(archs[text] & left), costs[text]))
        yield tuple(sorted(archs[best] & left)), json.loads(best)
        left -= archs[best]


def _cost(fields: Mapping[str, FieldValue]) -> tuple[Any, ...]:
    """Return what orders kernel instances: small ones, and of few features, first."""
    extras = sum(bool(fields.get(name)) != (name == "lse") for name in _FLAGS.values())
    # fp16 first: caches that qola's own tests filled have kernels of it.
    dtype = {"fp16": 0, "bf16": 1}.get(str(fields.get("dtype")), 2)
    q, v = fields.get("hdim_q", 0), fields.get("hdim_v", 0)
    return (dtype, fields.get("bias", "no") != "no", extras, q, v, json.dumps(fields))


def _variant(fields: Mapping[str, FieldValue]) -> TomlTable:
    bias = fields.get("bias", "no")
    flags = {key: fields[name] for key, name in _FLAGS.items() if name in fields}
    return {
        "dtype": fields["dtype"],
        "hdim": [[fields["hdim_q"], fields["hdim_v"]]],
        "mode": fields["mode"],
        "has_bias": bias == "bias",
        "has_alibi": bias == "alibi",
        **{key: value not in (False, "no") for key, value in flags.items()},
    }
