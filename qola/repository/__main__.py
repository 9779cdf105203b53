"""The program of a manifest's repository rule: ``python -m qola.repository``.

Plans a manifest and writes its repository: plan.json, sources and a BUILD file.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from qola.common.extras import MissingPackagesError
from qola.common.folder import Folder
from qola.manifest.load import load
from qola.plan.inputs import watched_dirs
from qola.plan.planner import build_plan
from qola.plan.python_modules import python_exports
from qola.plan.request import make_request
from qola.plan.resolve import resolve
from qola.plan.spec import BuildSpec
from qola.plan.triton_kernels import TRITON_FILES, triton_list, triton_trees
from qola.repository.build_files import config_header, export_list, manifest_build_file
from qola_base.errors import visible
from qola_base.files import write_if_changed
from qola_base.rule_main import run_main

UNFETCHED = "unfetched"
"""File that exists until the trees of kernels in Triton are fetched."""

NEEDS_PACKAGES = "needs_packages"
"""File that exists if a generator imports packages that this Python does not have."""


def write_repository(args: argparse.Namespace) -> None:
    """Plan a manifest and write its repository.

    Raises:
        MissingPackagesError: a generator imports packages. The repository rule fetches them, and
            runs this program again.
        QolaError: as `resolve` and `build_plan`.
    """
    output: Path = args.output

    def write(file: str, text: str) -> None:
        write_if_changed(output / file, text)

    manifest = load(args.manifest, display=args.display)
    # Written before anything can fail: the repository rule watches these directories and files.
    spec = BuildSpec.from_json(args.spec, args.display) if args.spec else BuildSpec()
    own_patches = not spec.override_aiter_commit
    write("patches_dir.txt", (manifest.patches_dir or "") if own_patches else "")
    write(TRITON_FILES, triton_list(manifest))
    # If the fetch fails, the repository rule runs again.
    (output / UNFETCHED).touch()
    trees = triton_trees(manifest, os.environ)
    (output / UNFETCHED).unlink()
    write("variables.txt", "" if spec.archs or manifest.archs else "GPU_ARCHS\n")
    request = make_request(
        manifest,
        args.manifest,
        args.aiter,
        spec,
        {**os.environ, "GPU_ARCHS": args.gpu_archs},
        name=args.name,
        trees=trees,
        rocm_version=args.rocm_version or None,
        checkout=args.checkout,
    )
    git_dir = request.head.git_dir
    write("head_files.txt", f"{git_dir}/HEAD\n{git_dir}/logs/HEAD\n" if git_dir else "")
    resolved = resolve(request)
    try:
        plan = build_plan(resolved, Folder(output))
    except MissingPackagesError:
        (output / NEEDS_PACKAGES).touch()
        raise
    write("plan.json", plan.to_json())
    write("inputs.txt", "\n".join(plan.inputs) + "\n")
    write("watched_dirs.txt", "\n".join(watched_dirs(resolved)) + "\n")
    aiter = args.aiter_repository
    write("BUILD.bazel", manifest_build_file(plan, source=args.display, aiter=aiter))
    write("include/qola_config.h", config_header(plan, source=args.display))
    for module in plan.modules:
        write(f"{module.name}.exports", export_list(plan.namespace))
    symbols = {module.name: module.symbol for module in plan.python_modules}
    symbols |= {module.name: module.symbol for module in plan.torch_modules}
    for name, symbol in symbols.items():
        write(f"{name}.exports", python_exports(symbol))
    if count := len(plan.warnings):
        # One line, because Bazel shows it in every build.
        warnings = f"{count} warning{'s' if count > 1 else ''}"
        text = f"qola: {visible(args.display)} is planned with {warnings}, which `qola plan` shows"
        print(text, file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Plan a manifest and write its repository."""
    parser = argparse.ArgumentParser(prog="qola.repository", description=main.__doc__)
    parser.add_argument("--name", required=True, help="name of the manifest")
    parser.add_argument("--manifest", required=True, type=Path, help="the TOML file")
    parser.add_argument("--display", required=True, help="its path as messages name it")
    parser.add_argument("--aiter", required=True, type=Path, help="AITER tree")
    parser.add_argument("--checkout", type=Path, help="the user's tree to which AITER's links lead")
    parser.add_argument("--aiter-repository", required=True, help="its repository's name")
    parser.add_argument("--rocm-version", default="", help="HIP version of the toolchain")
    parser.add_argument("--gpu-archs", default="", help="archs if nothing else names any")
    parser.add_argument("--spec", help="JSON of qola.plan.spec.BuildSpec")
    parser.add_argument("--output", required=True, type=Path, help="directory to write to")
    args = parser.parse_args(argv)
    return run_main(lambda: write_repository(args))


if __name__ == "__main__":
    sys.exit(main())
