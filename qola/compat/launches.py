"""Builds a small library of a tree, and sees its entry points launch: what no reading can prove."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
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
    """Build a library with a few kernel instances of each direction, and run its launch test.

    Raises:
        QolaError: Bazel cannot build on this machine.
    """
    name = module.spec.name
    followed = all(direction.level == "filtered" for direction in module.kernels.directions)
    if not followed and len(module.kernels.kernels) > _MOST:
        return Check("launches", library.of, "not compiled", (_too_many(library, module),))
    file = cache_directory(environ) / "compat" / f"{_file_name(library.of)}.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_if_changed(file, small_manifest(library, module))
    request = BuildRequest(file, library.resolved.request.tree.root, skip_checkout=True)
    setup = set_up(choose_all(request, environ, progress), environ)
    label = f"@qola_{setup.made.name}//:{name}_launch_test"
    with workspace_locked(setup.directory, progress):
        setup.write()
        progress(f"{library.of}: compiling")
        events = build(setup.bazel, setup.directory, [label], BuildOptions(), environ, progress)
        ended = {found: found for found in events.targets if found.endswith(f":{name}_launch_test")}
        results = results_of(events, ended)
        if not results or not all(result.success for result in results.values()):
            said = "\n".join(describe_failure(result, events) for result in results.values())
            return Check("launches", library.of, "cannot be built", (_failed(library, said),))
        (result,) = results.values()
        return _run(library, result.outputs[DEFAULT_OUTPUTS][0], environ)


def small_manifest(library: Library, module: GeneratedModule) -> str:
    """Return a manifest of a library with the smallest kernel instances of each direction."""
    return manifest_text(library.table, library.resolved.archs, _variants(module))


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


def _variants(module: GeneratedModule) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a variant for each direction: of its smallest kernel instance, and the like."""
    found: list[Mapping[str, Any]] = []
    for direction in module.kernels.directions:
        own = [
            dict(kernel.fields)
            for kernel in module.kernels.kernels
            if kernel.direction == direction.name and kernel.role in _ROLES
        ]
        if own and not any(_variant(fields) in map(_variant, found) for fields in own):
            found.append(min(own, key=_cost))
    table = "mha_bwd_variants" if module.spec.name == "libmha_bwd" else "mha_fwd_variants"
    yield from ((table, _variant(fields)) for fields in found)


def _cost(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what orders kernel instances: small ones, and of few features, first."""
    extras = sum(bool(fields.get(name)) for name in _FLAGS.values() if name != "lse")
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
