"""What the rule prebuilt_repository runs: fetches a bundle, or writes targets that build it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from qola import cache as locking
from qola import starlark
from qola.aiter.attention import ATTENTION
from qola.build import workspace
from qola.build.forms import Forms
from qola.cache import cache_directory
from qola.errors import Finding, NoPrebuiltError, PrebuiltError
from qola.fetch.pins import patch_files, pin_patches
from qola.layout import RECORD
from qola.manifest.archs import resolve, split
from qola.manifest.fields import BUILD_MODES
from qola.manifest.load import Manifest, load
from qola.manifest.native_archs import native_archs
from qola.prebuilt import identity, signature, store
from qola.prebuilt.archive import unpack
from qola.prebuilt.fetch import client_of
from qola.prebuilt.key import Key, make_key
from qola.prebuilt.options import NamedSource, PrebuiltOptions
from qola.prebuilt.sources import parse_source
from qola.prebuilt.store import Found, Outcome
from qola.rule_main import run_main
from qola.ruleset import ruleset_root
from qola.version import __version__

_DIRECTORY = "prebuilt"
_HEADER = "# Written by @qola//rules/private/repositories:prebuilt_repository.bzl: {what}."
_VISIBLE = 'package(default_visibility = ["//visibility:public"])'


def prebuilt_repository(args: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Write the repository: the files of a bundle, or nothing but targets that build it.

    Raises:
        PrebuiltError: a source has a bundle that must not be used.
        QolaError: the manifest is not valid, or names no library of a bundle.
    """
    manifest = load(args.manifest, display=args.display)
    modules = [module for module in manifest.modules if module.name in ATTENTION]
    if not modules:
        raise NoPrebuiltError(
            Finding(
                args.place,
                f"no {' or '.join(ATTENTION)} in {args.display}",
                "a manifest with a library of a bundle",
            )
        )
    names = [module.name for module in modules]
    aiter = json.loads(args.aiter)
    if args.look_up == "no" or aiter["kind"] == "local":
        # A tree on this machine is edited, which nobody would notice here.
        _write_misses(args.output, args.repository, names)
        return
    key = _key(args, manifest, aiter)
    found = _find(args, manifest, key, environ)
    if not isinstance(found, Found):
        outcomes = "\n".join(f"  {outcome.source}: {outcome.words}" for outcome in found)
        _say(f"qola: no prebuilt {key.text}, its targets build\n{outcomes}")
        _write_misses(args.output, args.repository, names)
        return
    directory: Path = args.output / _DIRECTORY
    files = unpack(found.archive, directory, found.unpacked_size, found.source)
    libraries = _libraries(files, names, found.source)
    (args.output / "BUILD.bazel").write_text(hit_file(key.text, libraries), encoding="utf-8")
    _say(f"qola: prebuilt {key.text} from {found.source}")


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _key(args: argparse.Namespace, manifest: Manifest, aiter: Mapping[str, str]) -> Key:
    """Returns the key, which is the one of `qola publish` for the same manifest."""
    root = ruleset_root()
    archs = resolve(split(args.arch), manifest, split([args.gpu_archs]), native_archs)
    return make_key(
        # Not the tag's name: who publishes knows the file alone.
        name=workspace.repository_name(args.manifest),
        version=__version__,
        ruleset=identity.ruleset_digest(root),
        manifest=manifest,
        modules=[module for module in manifest.modules if module.name in ATTENTION],
        archs=archs,
        mode=args.mode,
        aiter=aiter,
        patches=pin_patches(patch_files(args.patches_dir)) if args.patches_dir else (),
        rocm=identity.detected_rocm(args.rocm, root),
        forms=vars(Forms()),
        settings=(),
    )


def _find(
    args: argparse.Namespace, manifest: Manifest, key: Key, environ: Mapping[str, str]
) -> Found | list[Outcome]:
    """Returns the bundle, or why no source has it."""
    named = [NamedSource(url, args.folder, args.place) for url in args.url]
    if not named:
        place, folder = manifest.place("prebuilt", "urls"), args.manifest.parent
        named = [NamedSource(url, folder, place) for url in manifest.prebuilt.urls]
    options = PrebuiltOptions(redirects=tuple(args.allow_redirect))
    client = client_of(options, environ, _say)
    sources = [parse_source(s.text, s.folder, client, s.place) for s in named]
    text = args.public_key or manifest.prebuilt.public_key
    public_key = signature.read_public_key(text, args.folder) if text else None
    cache = cache_directory(environ) / "prebuilt" / key.digest
    with locking.locked(cache, "fetch of this bundle", _say):
        return store.find(
            key, sources, cache, public_key, offline=args.look_up == "offline", note=_say
        )


def _libraries(files: Mapping[str, Path], names: Sequence[str], place: str) -> Mapping[str, str]:
    """Returns the path of each module's library in a bundle."""
    try:
        record = json.loads(files[RECORD].read_text(encoding="utf-8"))
        known = {module["name"]: module["library"] for module in record["modules"]}
        found = {name: str(known[name]) for name in names}
    except (LookupError, ValueError, TypeError) as error:
        words = f"no {RECORD} with {' and '.join(names)} in it: {error}"
        raise PrebuiltError(Finding(place, words, "a bundle (docs/guide/bundle.md)")) from None
    absent = [path for path in found.values() if path not in files]
    if absent:
        raise PrebuiltError(Finding(place, f"no {', '.join(absent)}", f"what {RECORD} names"))
    return found


def hit_file(key: str, libraries: Mapping[str, str]) -> str:
    """Return BUILD.bazel for the files of a bundle.

    Args:
        key: the bundle's key.
        libraries: path of each module's library in the bundle.
    """
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
    # The same as where it is built: one directory, called as its target.
    copied = {
        "name": starlark.string("bundle"),
        "src": starlark.string(f":{_DIRECTORY}"),
        "out": starlark.string("bundle"),
    }
    loads = [
        'load("@bazel_skylib//rules:copy_directory.bzl", "copy_directory")',
        'load("@qola//rules:defs.bzl", "prebuilt_library")',
    ]
    head = [_HEADER.format(what=f"prebuilt {key}"), "\n".join(loads), _VISIBLE]
    return "\n\n".join([*head, *calls, starlark.call("copy_directory", copied)]) + "\n"


def miss_file(repository: str, names: Sequence[str]) -> str:
    """Return BUILD.bazel for libraries that are built.

    Args:
        repository: the manifest's.
        names: the modules.
    """
    calls = [
        starlark.call(
            "qola_library",
            {
                "name": starlark.string(name),
                "library": starlark.string(f"@{repository}//:{name}"),
            },
        )
        for name in sorted(names)
    ]
    libraries = starlark.string_list([f":{name}" for name in sorted(names)], 4)
    bundle = {"name": starlark.string("bundle"), "libraries": libraries}
    load = 'load("@qola//rules:defs.bzl", "qola_bundle", "qola_library")'
    head = [_HEADER.format(what="there is no prebuilt bundle, it is built"), load, _VISIBLE]
    return "\n\n".join([*head, *calls, starlark.call("qola_bundle", bundle)]) + "\n"


def _write_misses(output: Path, repository: str, names: Sequence[str]) -> None:
    (output / "BUILD.bazel").write_text(miss_file(repository, names), encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of the prebuilt_repository repository rule."""
    parser = argparse.ArgumentParser(prog="qola.prebuilt.repository_rule", description=__doc__)
    parser.add_argument("--manifest", required=True, type=Path, help="the TOML manifest")
    parser.add_argument("--display", required=True, help="its path as its user knows it")
    parser.add_argument("--repository", required=True, help="the manifest's repository")
    parser.add_argument("--aiter", required=True, help="identity of the AITER source as JSON")
    parser.add_argument("--patches-dir", type=Path, help="patches on top of it")
    parser.add_argument("--rocm", required=True, type=Path, help="rocm.json")
    parser.add_argument("--arch", action="append", default=[], help="instead of the manifest's")
    parser.add_argument("--gpu-archs", default="", help="value of GPU_ARCHS")
    parser.add_argument("--mode", choices=BUILD_MODES, help="instead of [build].mode")
    parser.add_argument("--url", action="append", default=[], help="a source")
    parser.add_argument("--folder", required=True, type=Path, help="what directories are below")
    parser.add_argument("--place", required=True, help="where the tag stands, for messages")
    parser.add_argument("--public-key", default="", help="who has to have signed")
    parser.add_argument("--allow-redirect", action="append", default=[], help="a host")
    parser.add_argument("--look-up", choices=("yes", "offline", "no"), default="yes", help="where")
    parser.add_argument("--output", required=True, type=Path, help="the repository's directory")
    args = parser.parse_args(argv)
    return run_main(lambda: prebuilt_repository(args, os.environ))


if __name__ == "__main__":
    sys.exit(main())
