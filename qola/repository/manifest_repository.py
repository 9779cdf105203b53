"""Plans a manifest and writes its repository: plan.json, sources and a BUILD file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from qola.errors import Finding, visible
from qola.files import write_if_changed
from qola.folder import Folder
from qola.manifest.load import load
from qola.plan.inputs import watched_dirs
from qola.plan.planner import build_plan
from qola.plan.python_modules import python_exports
from qola.plan.request import make_request
from qola.plan.resolve import resolve
from qola.plan.spec import BuildSpec
from qola.plan.triton_kernels import TRITON_FILES, triton_list, triton_trees
from qola.repository import build_files

UNFETCHED = "unfetched"
"""File that exists until the trees of kernels in Triton are fetched."""


def manifest_repository(args: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Plan a manifest and write its repository.

    Raises:
        QolaError: as `resolve` and `build_plan`.
    """
    output: Path = args.output
    manifest = load(args.manifest, display=args.display)
    # Written before anything can fail: the repository rule watches these directories and files.
    spec = BuildSpec.from_json(args.spec, args.display) if args.spec else BuildSpec()
    own_patches = not spec.override_aiter_commit
    write_if_changed(
        output / "patches_dir.txt", (manifest.patches_dir or "") if own_patches else ""
    )
    write_if_changed(output / TRITON_FILES, triton_list(manifest))
    # If the fetch fails, the repository rule runs again.
    (output / UNFETCHED).touch()
    trees = triton_trees(manifest, environ)
    (output / UNFETCHED).unlink()
    named = bool(spec.archs or manifest.architectures)
    write_if_changed(output / "variables.txt", "" if named else "GPU_ARCHS\n")
    request = make_request(
        manifest,
        args.manifest,
        args.aiter,
        spec,
        {**environ, "GPU_ARCHS": args.gpu_archs},
        name=args.name,
        trees=trees,
        rocm_version=args.rocm_version or None,
    )
    resolved = resolve(request)
    plan = build_plan(resolved, Folder(output))
    write_if_changed(output / "plan.json", plan.to_json())
    write_if_changed(output / "inputs.txt", "\n".join(plan.inputs) + "\n")
    write_if_changed(output / "watched_dirs.txt", "\n".join(watched_dirs(resolved)) + "\n")
    write_if_changed(
        output / "BUILD.bazel",
        build_files.manifest_build_file(plan, source=args.display, aiter=args.aiter_repository),
    )
    write_if_changed(
        output / "include" / "qola_config.h", build_files.config_header(plan, source=args.display)
    )
    for module in plan.modules:
        write_if_changed(output / f"{module.name}.exports", build_files.export_list(plan.namespace))
    symbols = {module.name: module.symbol for module in plan.python_modules}
    symbols |= {module.name: module.symbol for module in plan.torch_modules}
    for name, symbol in symbols.items():
        write_if_changed(output / f"{name}.exports", python_exports(symbol))
    if plan.warnings:
        print(_warning_line(args.display, plan.warnings), file=sys.stderr)


def _warning_line(display: str, warnings: Sequence[Finding]) -> str:
    """Return one line, because Bazel shows it in every build."""
    count = f"{len(warnings)} warning{'s' if len(warnings) > 1 else ''}"
    return f"qola: {visible(display)} is planned with {count}, which `qola plan` shows"
