"""What the repository rules run: a manifest's repository and the kernel repository, on disk."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from qola import emit
from qola.aiter import read_tree
from qola.archs import split
from qola.codegen.families import headers_text
from qola.digest import sha256_of_text, write_if_changed
from qola.errors import Finding, PlanError
from qola.manifest import load
from qola.patch_pins import recorded_patches
from qola.plan import from_json, to_json
from qola.plan_request import manifest_patches
from qola.planner import Request, build_plan
from qola.program import run_main
from qola.python_module import export_list
from qola.schema import BUILD_MODES
from qola.watched import watched_dirs


def pinned_id(tree: Path) -> str:
    """Commit or version a tree was pinned to as it was fetched; "" for one that states none.

    A local directory that `qola checkout` prepared has one.
    """
    try:
        source: dict[str, str] = json.loads((tree / "AITER.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return source.get("commit") or source.get("version") or ""


def manifest_repository(args: argparse.Namespace) -> None:
    """Plans a manifest and writes its repository.

    Raises:
        QolaError: as build_plan.
    """
    output: Path = args.output
    manifest = load(args.manifest, display=args.display)
    # Before anything can fail: a directory that is corrected has to be looked at again.
    own_patches = not args.override_aiter_commit
    write_if_changed(
        output / "patches_dir.txt", (manifest.patches_dir or "") if own_patches else ""
    )
    named = bool(args.arch or manifest.architectures)
    write_if_changed(output / "variables.txt", "" if named else "GPU_ARCHS\n")
    request = Request(
        name=args.name,
        manifest=manifest,
        tree=read_tree(args.aiter),
        rocm_version=args.rocm_version or None,
        aiter_id=pinned_id(args.aiter),
        overridden=args.override_aiter_commit,
        aiter_patches=recorded_patches(args.aiter),
        patches=manifest_patches(manifest, args.manifest) if own_patches else (),
        archs=tuple(args.arch),
        default_archs=split([args.gpu_archs]),
        mode=args.mode,
    )
    plan = build_plan(request, output)
    text = to_json(plan)
    data = from_json(text)
    write_if_changed(output / "plan.json", text)
    write_if_changed(output / "inputs.txt", "\n".join(plan.inputs) + "\n")
    watched = watched_dirs(request, plan.archs)
    write_if_changed(output / "watched_dirs.txt", "\n".join(watched) + "\n")
    write_if_changed(
        output / "BUILD.bazel",
        emit.manifest_build_file(data, source=args.display, aiter=args.aiter_repository),
    )
    write_if_changed(
        output / "include" / "qola_config.h", emit.config_header(data, source=args.display)
    )
    for module in plan.modules:
        write_if_changed(output / f"{module.name}.exports", emit.export_list(plan.namespace))
    for python in plan.python_modules:
        write_if_changed(output / f"{python.name}.exports", export_list(python.symbol))
    if plan.warnings:
        count = f"{len(plan.warnings)} warning{'s' if len(plan.warnings) > 1 else ''}"
        print(f"{args.display} is planned, with {count}", file=sys.stderr)
    for warning in plan.warnings:
        print(warning.render(), file=sys.stderr)


def kernel_repository(args: argparse.Namespace) -> None:
    """Writes the union of the kernel instances of several plans.

    Raises:
        PlanError: two plans have different sources, headers or flags under one name.
    """
    plans = {path: from_json(path.read_text(encoding="utf-8")) for path in args.plan}
    names = ", ".join(sorted(plan["name"] for plan in plans.values()))
    merged: dict[str, dict[str, Mapping[str, Any]]] = {}
    for path, plan in plans.items():
        for kernel in plan["kernels"]:
            merged.setdefault(kernel["package"], {}).setdefault(
                kernel["name"], {**kernel, "plan": plan, "root": path.parent}
            )
    _check_agreement(plans)
    warm = _families(plans)
    for package, kernels in sorted(merged.items()):
        settings = _settings([p for p in plans.values() if package in p["packages"]], package)
        archs = {name: tuple(kernel["archs"]) for name, kernel in sorted(kernels.items())}
        families: dict[str, list[str]] = {}
        entries: dict[str, list[str]] = {}
        for name, kernel in sorted(kernels.items()):
            if kernel["family"]:
                families.setdefault(kernel["family"], []).append(name)
            entries.setdefault(kernel["entry"], []).append(name)
        text = emit.kernel_build_file(
            settings,
            package,
            archs,
            dict(sorted(families.items())),
            dict(sorted(entries.items())),
            sources=f"the plans of {names}",
            aiter=args.aiter_repository,
        )
        write_if_changed(args.output / package / "BUILD.bazel", text)
        texts = {}
        for name, kernel in sorted(kernels.items()):
            module = _module_of(kernel["plan"], kernel)
            source = kernel["root"] / module / "kernels" / f"{name}.cpp"
            texts[name] = _read(source, kernel["sha256"])
            write_if_changed(args.output / package / f"{name}.cpp", texts[name])
        write_if_changed(args.output / package / "headers.hpp", headers_text(texts.values()))
        for root, copy in _overlay(plans, package):
            file = args.output / package / "overlay" / copy["name"]
            file.parent.mkdir(parents=True, exist_ok=True)
            write_if_changed(file, _read(root / copy["file"], copy["sha256"]))
        for name, users in entries.items():
            user = kernels[users[0]]
            (source,) = (s for s in _entry_sources(user["plan"]) if s["name"] == name)
            write_if_changed(
                args.output / package / "entries" / f"{name}.cpp",
                _read(user["root"] / source["file"], source["sha256"]),
            )
        for name in families:
            header = _read(*warm[package, name])
            write_if_changed(args.output / package / "warm" / f"{name}.hpp", header)
    write_if_changed(
        args.output / "BUILD.bazel", f"# Written by the qola repository rule from {names}.\n"
    )


def _read(file: Path, sha256: str) -> str:
    """Reads a generated file.

    Raises:
        PlanError: it is not the one that was planned.
    """
    text = file.read_text(encoding="utf-8")
    if sha256_of_text(text) != sha256:
        raise PlanError(
            Finding(
                str(file),
                "another text than the plan's digest says",
                sha256,
                "bazel fetch --force plans anew",
            )
        )
    return text


def _families(plans: Mapping[Path, Mapping[str, Any]]) -> dict[tuple[str, str], tuple[Path, str]]:
    """Returns the header of each family, by package and name, with its digest.

    Manifests of several receipts may have several sisters for a family; one will do.
    """
    headers: dict[tuple[str, str], tuple[str, Path, str]] = {}
    for path, plan in plans.items():
        for family in plan["families"]:
            key = (family["package"], family["name"])
            header = (family["sister"], path.parent / family["file"], family["sha256"])
            headers[key] = min(headers.get(key, header), header)
    return {key: (file, sha256) for key, (_, file, sha256) in headers.items()}


def _overlay(
    plans: Mapping[Path, Mapping[str, Any]], package: str
) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yields the changed headers of a package, each once, with the repository that has it."""
    seen = set()
    for path, plan in plans.items():
        for copy in plan["packages"].get(package, {}).get("overlay", ()):
            if copy["name"] not in seen:
                seen.add(copy["name"])
                yield path.parent, copy


def _entry_sources(plan: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [source for module in plan["modules"] for source in module["entry_sources"]]


def _module_of(plan: Mapping[str, Any], kernel: Mapping[str, Any]) -> str:
    """Module whose generators wrote a kernel: the one that has its direction."""
    for module in plan["modules"]:
        if any(source["direction"] == kernel["direction"] for source in module["sources"]):
            return str(module["name"])
    raise KeyError(kernel["name"])


def _check_agreement(plans: Mapping[Path, Mapping[str, Any]]) -> None:
    """Refuses plans that mean different things by one name: they are of different trees."""
    seen: dict[tuple[str, ...], tuple[object, str]] = {}
    for plan in plans.values():
        named: dict[tuple[str, ...], object] = {
            (f"package {name}", "settings"): (package["copts"], package["headers"])
            for name, package in plan["packages"].items()
        }
        named.update(
            ((f"kernel instance {k['name']}", f"sources in package {k['package']}"), k["sha256"])
            for k in plan["kernels"]
        )
        named.update(
            ((f"entry source {source['name']}", "texts"), source["sha256"])
            for source in _entry_sources(plan)
        )
        for key, value in named.items():
            first = seen.setdefault(key, (value, plan["name"]))
            if first[0] != value:
                raise PlanError(
                    Finding(
                        key[0],
                        f"two {key[1]}: in the plans of {first[1]} and {plan['name']}",
                        "one: manifests that share a kernel repository share an AITER tree",
                        "declare an AITER source of its own for one of them",
                    )
                )


def _settings(plans: Sequence[Mapping[str, Any]], package: str) -> dict[str, Any]:
    """Returns flags and headers of a package, in plan.json's form, for the kernels of all plans.

    A plan names the headers that its own kernel instances include.
    """
    settings = plans[0]["packages"][package]
    sets = [h for plan in plans for h in plan["header_sets"] if h["name"] == settings["headers"]]
    headers = {
        "name": settings["headers"],
        "include_dirs": _merged(h["include_dirs"] for h in sets),
        "files": sorted({file for h in sets for file in h["files"]}),
    }
    # A plan changes what is among its own headers.
    overlay = {c["name"]: c for plan in plans for c in plan["packages"][package]["overlay"]}
    merged = {
        **settings,
        "overlay": [overlay[name] for name in sorted(overlay)],
        "precompile": all(plan["packages"][package]["precompile"] for plan in plans),
    }
    return {"packages": {package: merged}, "header_sets": [headers]}


def _merged(orders: Iterable[Sequence[str]]) -> list[str]:
    """Returns the union of lists that leave out different parts of one order, in that order."""
    merged: list[str] = []
    for order in orders:
        position = 0
        for item in order:
            if item not in merged:
                merged.insert(position, item)
            position = merged.index(item) + 1
    return merged


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of the repository rules."""
    parser = argparse.ArgumentParser(prog="qola.repository", description=__doc__)
    commands = parser.add_subparsers(required=True)
    manifest = commands.add_parser("manifest", help="plan a manifest and write its repository")
    manifest.add_argument("--name", required=True, help="name of the manifest")
    manifest.add_argument("--manifest", required=True, type=Path, help="the TOML file")
    manifest.add_argument("--display", required=True, help="its path as messages name it")
    manifest.add_argument("--aiter", required=True, type=Path, help="AITER tree")
    manifest.add_argument("--aiter-repository", required=True, help="its repository's name")
    manifest.add_argument("--rocm-version", default="", help="HIP version of the toolchain")
    manifest.add_argument("--arch", action="append", default=[], help="instead of the manifest's")
    manifest.add_argument("--gpu-archs", default="", help="archs where the manifest names none")
    manifest.add_argument("--mode", choices=BUILD_MODES, help="instead of the manifest's")
    manifest.add_argument(
        "--override-aiter-commit", action="store_true", help="the tree wins over aiter_commit"
    )
    manifest.add_argument("--output", required=True, type=Path, help="directory to write to")
    manifest.set_defaults(run=manifest_repository)
    kernels = commands.add_parser("kernels", help="write the kernel repository of several plans")
    kernels.add_argument("--plan", action="append", default=[], type=Path, help="a plan.json")
    kernels.add_argument("--aiter-repository", required=True, help="the tree's repository's name")
    kernels.add_argument("--output", required=True, type=Path, help="directory to write to")
    kernels.set_defaults(run=kernel_repository)
    args = parser.parse_args(argv)
    return run_main(lambda: args.run(args))


if __name__ == "__main__":
    sys.exit(main())
