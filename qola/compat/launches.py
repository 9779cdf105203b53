"""Builds a small library of a tree, and sees its entry points launch: what no reading can prove."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from qola.build.bazel import BuildOptions, build, child_environment
from qola.build.events import DEFAULT_OUTPUTS
from qola.build.results import describe_failure, results_of
from qola.build.setup import BuildRequest, choose_all, set_up, workspace_locked
from qola.cache import cache_directory
from qola.compat.check import Check
from qola.compat.library import Library, manifest_text
from qola.errors import Finding
from qola.files import write_if_changed
from qola.plan.generated import GeneratedModule

#: Kernel instances of the roles that a problem is for; the others come along.
_ROLES = {"fwd", "splitkv", "batch_prefill", "dq_dk_dv"}
#: A variant's keys that are true or false, by the field of a kernel instance.
_FLAGS = {
    "has_mask": "mask",
    "has_lse": "lse",
    "has_dropout": "dropout",
    "has_skip": "skip",
    "has_sink": "sink",
    "has_dbias": "dbias",
    "deterministic": "deterministic",
}
#: More than this is a night's work, and what would be compiled where nothing can be left out.
_MOST = 200


def check_launches(
    library: Library,
    module: GeneratedModule,
    environ: Mapping[str, str],
    progress: Callable[[str], None],
) -> Check:
    """Build libraries with a few kernel instances of each direction, and run their launch tests.

    Raises:
        QolaError: Bazel cannot build on this machine.
    """
    followed = all(direction.level == "filtered" for direction in module.kernels.directions)
    if not followed and len(module.kernels.kernels) > _MOST:
        return Check("launches", library.of, "not compiled", (_too_many(library, module),))
    found = [
        _launch(library, module.spec.name, name, text, environ, progress)
        for name, text in small_manifests(library, module).items()
    ]
    return Check(
        "launches",
        library.of,
        "; ".join(check.said for check in found),
        tuple(finding for check in found for finding in check.findings),
        {"lines": [line for check in found for line in check.facts["lines"]]},
    )


def _launch(
    library: Library,
    module: str,
    name: str,
    manifest: str,
    environ: Mapping[str, str],
    progress: Callable[[str], None],
) -> Check:
    file = cache_directory(environ) / "compat" / f"{name}.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_if_changed(file, manifest)
    request = BuildRequest(file, library.resolved.request.tree.root, skip_checkout=True)
    setup = set_up(choose_all(request, environ, progress), environ)
    test = f"{module}_launch_test"
    with workspace_locked(setup.directory, progress):
        setup.write()
        progress(f"{library.of}: compiling")
        label = f"@qola_{setup.made.name}//:{test}"
        events = build(setup.bazel, setup.directory, [label], BuildOptions(), environ, progress)
        ended = {found: found for found in events.targets if found.endswith(f":{test}")}
        results = results_of(events, ended)
        if not results or not all(result.success for result in results.values()):
            said = "\n".join(describe_failure(result, events) for result in results.values())
            failed = _failed(library, said)
            return Check("launches", library.of, "cannot be built", (failed,), {"lines": []})
        (result,) = results.values()
        return _run(library, result.outputs[DEFAULT_OUTPUTS][0], environ)


def small_manifests(library: Library, module: GeneratedModule) -> dict[str, str]:
    """Return manifests by name: for each direction with kernels, one of its smallest alone.

    Of several directions in one library the head dims would have to be the same.
    """
    base = _file_name(library.of)
    of = {
        direction.name: _smallest(module, direction.name) for direction in module.kernels.directions
    }
    found: dict[str, str] = {}
    for direction, fields in of.items():
        if fields is not None:
            others = [name for name in of if name != direction]
            drop = sorted({*library.table.get("drop_directions", ()), *others})
            table = {**library.table, "drop_directions": drop}
            variants = [(f"mha_{_side(direction)}_variants", _variant(fields))]
            found[f"{base}_{direction}"] = manifest_text(table, library.resolved.archs, variants)
    return found or {base: manifest_text(library.table, library.resolved.archs)}


def _side(direction: str) -> str:
    return "bwd" if direction == "bwd" else "fwd"


def _run(library: Library, test: Path, environ: Mapping[str, str]) -> Check:
    runfiles = test.with_name(f"{test.name}.runfiles")
    run = subprocess.run(
        [test],
        cwd=runfiles / "_main",
        env={**child_environment(environ), "RUNFILES_DIR": str(runfiles)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in run.stdout.splitlines() if not line.startswith(" ")]
    facts = {"lines": run.stdout.splitlines()}
    if run.returncode == 0:
        return Check("launches", library.of, "; ".join(lines), (), facts)
    finding = Finding(
        library.of,
        (run.stdout + run.stderr).strip(),
        "a kernel for every arch and entry point that has kernels",
        "report it with the tree's commit, or leave the arch out",
    )
    return Check("launches", library.of, "an entry point launches nothing", (finding,), facts)


def _file_name(of: str) -> str:
    return "_".join(of.lower().replace(",", "").split())


def _failed(library: Library, said: str) -> Finding:
    return Finding(
        library.of,
        said or "Bazel's output above says why",
        "sources that compile and link",
        "report it with the tree's commit, or take one where this is ok",
    )


def _too_many(library: Library, module: GeneratedModule) -> Finding:
    return Finding(
        library.of,
        f"{len(module.kernels.kernels)} kernel instances, of which none can be left out",
        "directions that are filtered, so that a few will do",
        severity="warning",
    )


def _smallest(module: GeneratedModule, direction: str) -> Mapping[str, Any] | None:
    """Return the fields of the direction's smallest kernel instance; None where it has none."""
    own = (
        dict(kernel.fields)
        for kernel in module.kernels.kernels
        if kernel.direction == direction and kernel.role in _ROLES
    )
    return min(own, key=_cost, default=None)


def _cost(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what orders kernel instances: small ones, and of few features, first."""
    extras = sum(bool(fields.get(name)) != (name == "lse") for name in _FLAGS.values())
    # fp16 first: caches that qola's own tests filled have kernels of it.
    dtype = {"fp16": 0, "bf16": 1}.get(fields.get("dtype", ""), 2)
    q, v = fields.get("hdim_q", 0), fields.get("hdim_v", 0)
    return (dtype, fields.get("bias", "no") != "no", extras, q, v, json.dumps(fields))


def _variant(fields: Mapping[str, Any]) -> dict[str, Any]:
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
