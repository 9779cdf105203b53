"""The program of the rule prebuilt_repository: fetches a bundle, or writes targets to build it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from qola.aiter.attention import ATTENTION
from qola.build.setup import ResolvedBuild
from qola.checkout.source import AiterSource, GitSource, WheelSource
from qola.common import starlark
from qola.common.layout import TRITON
from qola.common.ruleset import ruleset_root
from qola.manifest.archs import native_archs, resolve_archs, split
from qola.manifest.constants import BUILD_MODES
from qola.manifest.load import Manifest, ModuleSpec, load
from qola.plan.spec import BuildSpec
from qola.plan.triton_kernels import TRITON_FILES, triton_list
from qola.prebuilt import fetch
from qola.prebuilt.archive import unpack
from qola.prebuilt.key import Key, detected_rocm, make_key, ruleset_files
from qola.prebuilt.options import NamedSource, PrebuiltOptions
from qola.prebuilt.store import Found
from qola_base.errors import Finding, NoPrebuiltError
from qola_base.files import write_if_changed
from qola_base.progress import log
from qola_base.rule_main import run_main

_DIRECTORY = "prebuilt"
_HEADER = "# Written by @qola//rules/private/repositories:prebuilt_repository.bzl: {what}."
_VISIBLE = 'package(default_visibility = ["//visibility:public"])'


def prebuilt_repository(args: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Write the repository: the files of a bundle, or targets that build it."""
    # Watch the other inputs of the key: an edit changes the bundle.
    inputs = "".join(f"{name}\n" for name in ruleset_files(ruleset_root()))
    write_if_changed(args.output / "inputs.txt", inputs)
    manifest = load(args.manifest, display=args.display)
    write_if_changed(args.output / TRITON_FILES, triton_list(manifest))
    modules = [module for module in manifest.modules if module.name in ATTENTION]
    if not modules and not manifest.triton:
        found = f"no {' or '.join(ATTENTION)} in {args.display}"
        raise NoPrebuiltError(Finding(args.place, found, "a manifest with a library of a bundle"))
    names = [module.name for module in modules]
    looked_up = _look_up(args, manifest, modules, environ)
    if looked_up is None:
        misses = miss_file(args.repository, names, with_triton=bool(manifest.triton))
        write_if_changed(args.output / "BUILD.bazel", misses)
        return
    key, bundle = looked_up
    directory: Path = args.output / _DIRECTORY
    files = unpack(bundle.archive, directory, bundle.unpacked_size, bundle.source)
    record = fetch.bundle_record(files, bundle.source)
    in_triton = [TRITON] if manifest.triton else []
    libraries = fetch.libraries_of(record, [*names, *in_triton], files, bundle.source)
    libraries.pop(TRITON, None)  # It is in the bundle alone, as where it is built.
    write_if_changed(args.output / "BUILD.bazel", hit_file(key.text, libraries))
    log.info(f"prebuilt {key.text} from {bundle.source}")


def _look_up(
    args: argparse.Namespace,
    manifest: Manifest,
    modules: Sequence[ModuleSpec],
    environ: Mapping[str, str],
) -> tuple[Key, Found] | None:
    """Return the bundle that `qola publish` publishes for the same manifest, None for a miss."""
    pin = json.loads(args.aiter)
    kind = pin.pop("kind")
    if args.look_up == "no" or kind == "local":
        # Nothing would notice an edit of a local tree.
        return None
    # The remote is not part of a key.
    source = WheelSource(**pin) if kind == "wheel" else GitSource(remote="", **pin)
    archs = resolve_archs(split(args.archs), manifest, split([args.gpu_archs]), native_archs)
    chosen = ResolvedBuild(
        manifest,
        args.manifest,
        tuple(modules),
        AiterSource(source, args.patches_dir),
        BuildSpec(archs, args.mode),
        triton=bool(manifest.triton),
    )
    rocm = detected_rocm(args.rocm, ruleset_root(), environ)
    key = make_key(chosen, rocm)
    named = [NamedSource(url, args.folder, args.place) for url in args.url]
    if not named:
        place, folder = manifest.place("prebuilt", "urls"), args.manifest.parent
        named = [NamedSource(url, folder, place) for url in manifest.prebuilt.urls]
    options = PrebuiltOptions(
        offline=args.look_up == "offline", public_key=args.public_key, directory=args.folder
    )
    found = fetch.find(chosen, key, named, options, environ)
    if isinstance(found, Found):
        return key, found
    outcomes = "\n".join(f"  {outcome.source}: {outcome.words}" for outcome in found)
    log.info(f"no prebuilt {key.text}, its targets build\n{outcomes}")
    return None


def hit_file(key: str, libraries: Mapping[str, str]) -> str:
    """Return BUILD.bazel for a bundle's files, with the path of each module's library."""
    calls = [
        starlark.call(
            "prebuilt_library",
            {
                "name": starlark.string(name),
                "headers": f'glob(["{_DIRECTORY}/include/**"])',
                "include": starlark.string(f"{_DIRECTORY}/include"),
                "library": starlark.string(f"{_DIRECTORY}/{path}"),
            },
        )
        for name, path in sorted(libraries.items())
    ]
    # Like in a build: one directory, named like its target.
    bundle = starlark.rule("copy_directory", name="bundle", src=f":{_DIRECTORY}", out="bundle")
    loads = [
        'load("@bazel_skylib//rules:copy_directory.bzl", "copy_directory")',
        'load("@qola//rules/private:generated.bzl", "prebuilt_library")',
    ]
    head = [_HEADER.format(what=f"prebuilt {key}"), "\n".join(loads), _VISIBLE]
    return "\n\n".join([*head, *calls, bundle]) + "\n"


def miss_file(repository: str, names: Sequence[str], *, with_triton: bool) -> str:
    """Return BUILD.bazel with aliases to the built targets in the manifest's repository."""
    calls = [
        starlark.rule("qola_library", name=name, library=f"@{repository}//:{name}")
        for name in sorted(names)
    ]
    libraries = [f":{name}" for name in sorted(names)]
    triton = f"@{repository}//:triton_library" if with_triton else None
    calls.append(starlark.rule("qola_bundle", name="bundle", libraries=libraries, triton=triton))
    load = 'load("@qola//rules:defs.bzl", "qola_bundle", "qola_library")'
    head = [_HEADER.format(what="no prebuilt bundle, it is built"), load, _VISIBLE]
    return "\n\n".join([*head, *calls]) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of the prebuilt_repository repository rule."""
    parser = argparse.ArgumentParser(prog="qola.prebuilt.repository_rule", description=__doc__)
    parser.add_argument("--manifest", required=True, type=Path, help="the TOML manifest")
    parser.add_argument("--display", required=True, help="its path as its user knows it")
    parser.add_argument("--repository", required=True, help="the manifest's repository")
    parser.add_argument("--aiter", required=True, help="identity of the AITER source as JSON")
    parser.add_argument("--patches-dir", type=Path, help="patches on top of it")
    parser.add_argument("--rocm", required=True, type=Path, help="rocm.json")
    parser.add_argument("--archs", action="append", default=[], help="instead of the manifest's")
    parser.add_argument("--gpu-archs", default="", help="value of GPU_ARCHS")
    parser.add_argument("--mode", choices=BUILD_MODES, help="instead of [build].mode")
    parser.add_argument("--url", action="append", default=[], help="a source")
    parser.add_argument("--folder", required=True, type=Path, help="root of relative paths")
    parser.add_argument("--place", required=True, help="location of the tag, for errors")
    parser.add_argument("--public-key", default="", help="public key that must have signed")
    choices = ("yes", "offline", "no")
    parser.add_argument("--look-up", choices=choices, default="yes", help="use of the network")
    parser.add_argument("--output", required=True, type=Path, help="the repository's directory")
    args = parser.parse_args(argv)
    return run_main(lambda: prebuilt_repository(args, os.environ), quiet=False)


if __name__ == "__main__":
    sys.exit(main())
