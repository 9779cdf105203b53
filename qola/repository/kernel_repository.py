"""The kernel repository: the union of the kernel instances of several plans, on disk."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from qola.codegen.ck.families import headers_text
from qola.errors import Finding, PlanError
from qola.files import sha256_of_text, write_if_changed
from qola.plan.model import from_json
from qola.repository import build_files as emit


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
