"""Compares a valid manifest with an AITER tree, its CK and the ROCm toolchain."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

from qola.errors import Finding
from qola.manifest.constants import describe_receipt
from qola.manifest.types import BuildMode, Manifest
from qola.manifest.values import did_you_mean, either, nearest, quote


def check_against(
    manifest: Manifest,
    *,
    modules: Collection[str],
    receipts: Callable[[str], Collection[int]],
    aiter_id: str,
    srcs_of: Callable[[str], Collection[str]],
    rocm_version: str | None = None,
    overridden: bool = False,
    mode: BuildMode | None = None,
    judged_elsewhere: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Return errors and warnings about a manifest that does not fit its AITER and ROCm.

    Args:
        modules: names in the tree's optCompilerConfig.json.
        receipts: returns those that the tree's CK knows for a module.
        aiter_id: commit or version of the AITER source; "" if unknown (a local folder).
        srcs_of: returns the source files of a known module, as paths or names.
        overridden: the user chose the AITER source although the manifest names another.
        judged_elsewhere: modules whose mode is not checked here.
    """
    known = frozenset(modules)
    return (
        *_check_aiter(manifest, aiter_id, overridden),
        *_check_rocm(manifest, rocm_version),
        *_check_modules(manifest, known),
        *_check_modes(manifest, mode, known.difference(judged_elsewhere)),
        *_check_receipts(manifest, receipts, known),
        *_check_drop_srcs(manifest, srcs_of, known),
    )


def _check_aiter(manifest: Manifest, aiter_id: str, overridden: bool) -> Iterator[Finding]:
    wanted = manifest.aiter_commit
    if wanted is None or _same_source(wanted, aiter_id):
        return
    place = manifest.place("qola", "aiter_commit")
    if not aiter_id:
        expected = "an AITER source whose commit or version is known"
        yield Finding(place, f"{quote(wanted)}, which cannot be checked", expected, "", "warning")
    elif overridden:
        found = f"{quote(wanted)}, overridden: the AITER source is {aiter_id}"
        yield Finding(place, found, "kernels of the source, not of the manifest", "", "warning")
    else:
        yield Finding(
            place,
            f"{quote(wanted)}, while the AITER source is {aiter_id}",
            "the commit or version of the AITER source",
            "--override-aiter-commit plans with the source, and so does override_aiter_commit = "
            f'True of qola.manifest; aiter_commit = "{aiter_id}" names the source',
        )


def _same_source(wanted: str, aiter_id: str) -> bool:
    """Compare commits by their common prefix (7 or more digits), other names in full."""
    commits = [re.fullmatch(r"[0-9a-f]{7,40}", text.lower()) for text in (wanted, aiter_id)]
    if all(commits):
        short, long = sorted((wanted.lower(), aiter_id.lower()), key=len)
        return long.startswith(short)
    return wanted.removeprefix("v") == aiter_id.removeprefix("v")


def _check_rocm(manifest: Manifest, version: str | None) -> Iterator[Finding]:
    wanted = manifest.rocm_versions
    if version is None or not wanted:
        return
    if not any(f"{version}.".startswith(f"{prefix}.") for prefix in wanted):
        yield Finding(
            manifest.place("qola", "rocm_versions"),
            f"ROCm {version} in use, {either(wanted)} wanted",
            "a ROCm whose version begins with one of these",
            f"use ROCm {wanted[-1]}, or add {quote('.'.join(version.split('.')[:2]))} to the list",
        )


def _check_modules(manifest: Manifest, known: frozenset[str]) -> Iterator[Finding]:
    for module in manifest.modules:
        if module.name not in known:
            yield Finding(
                manifest.place("modules", module.index, "name"),
                f"unknown module {quote(module.name)}",
                f"a module of this AITER: {either(sorted(known))}",
                did_you_mean(module.name, known),
            )


def _check_modes(
    manifest: Manifest, requested: BuildMode | None, known: frozenset[str]
) -> Iterator[Finding]:
    for module in manifest.modules:
        if module.name in known and manifest.module_mode(module, requested) == "pybind":
            yield Finding(
                manifest.place("modules", module.index, "mode"),
                f"{module.name} in mode pybind{'' if module.mode else ' (by default)'}",
                "mode cpp_itfs: AITER and qola build a C++ library in either mode",
                f'write mode = "cpp_itfs" in the [[modules]] table of {module.name}',
                "warning",
            )


def _check_receipts(
    manifest: Manifest, receipts: Callable[[str], Collection[int]], known: frozenset[str]
) -> Iterator[Finding]:
    uses = [("modules", spec.index, spec.name, spec.receipt) for spec in manifest.modules]
    for library, variants in (
        ("libmha_fwd", manifest.fwd_variants),
        ("libmha_bwd", manifest.bwd_variants),
    ):
        uses += [(variant.table, variant.index, library, variant.receipt) for variant in variants]
    for table, index, module, receipt in uses:
        if receipt is None or module not in known or receipt in receipts(module):
            continue
        choices = sorted(receipts(module))
        meant = nearest(str(receipt), map(str, choices))
        yield Finding(
            manifest.place(table, index, "receipt"),
            f"receipt {describe_receipt(receipt)}, unknown to this CK",
            f"one of {either(map(describe_receipt, choices))}",
            meant and f"did you mean {meant}?",
        )


def _check_drop_srcs(
    manifest: Manifest, srcs_of: Callable[[str], Collection[str]], known: frozenset[str]
) -> Iterator[Finding]:
    for module in manifest.modules:
        if module.name not in known or not module.drop_srcs:
            continue
        names = {src.rpartition("/")[2] for src in srcs_of(module.name)}
        if not names:
            continue  # the wheel's libraries list none, and ROCm/QoLA's manifests drop some
        for src in module.drop_srcs:
            if src not in names:
                yield Finding(
                    manifest.place("modules", module.index, "drop_srcs"),
                    f"{quote(src)}, which {module.name} does not have",
                    f"file names among {either(sorted(names))}",
                    did_you_mean(src, names) or f"remove {quote(src)}",
                    "warning",
                )
