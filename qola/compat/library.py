"""A candidate library of a tree, and the checks of its sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qola.aiter.attention import ATTENTION
from qola.aiter.includes import includes
from qola.aiter.known_faults import known_faults
from qola.aiter.missing_names import Includer
from qola.aiter.preprocess import UNKNOWN
from qola.aiter.tree import AiterTree
from qola.codegen.ck.receipts import known_receipts
from qola.compat.check import Check, guarded
from qola.compat.rows import check_v3, direction_of
from qola.compat.upstream import directions_of
from qola.errors import Finding
from qola.folder import Folder
from qola.manifest.load import loads
from qola.manifest.toml import toml_document
from qola.plan.configure import configure
from qola.plan.entry_macros import EntryMacros, entry_macros, v3_off
from qola.plan.generate import GeneratedModule, generate_module
from qola.plan.module_entry import missing_includes, missing_types, module_functions
from qola.plan.request import Request, ResolvedModule, ResolvedRequest


@dataclass(frozen=True)
class Library:
    """A candidate library: the manifest of one module.

    Attributes:
        of: how its checks call it.
        table: its [[modules]] table.
    """

    of: str
    table: Mapping[str, Any]
    module: ResolvedModule
    resolved: ResolvedRequest

    @property
    def direction(self) -> str:
        """The main direction of the library's module."""
        return ATTENTION[self.module.spec.name].direction


def library(tree: AiterTree, name: str, archs: tuple[str, ...], of: str, **keys: Any) -> Library:
    """Return a module as a library of all its kernels.

    Args:
        keys: of its ``[[modules]]`` table.

    Raises:
        QolaError: the tree's entry for it cannot be used.
    """
    table = {"name": name, **keys}
    # Upstream's own dispatch has all of them.
    text = manifest_text(table, archs, keep_unreachable=True)
    manifest = loads(text, file=f"a manifest of {of}")
    module = ResolvedModule(manifest.modules[0], configure(tree, manifest, manifest.modules[0]))
    resolved = ResolvedRequest(
        Request("compat", manifest, tree), tuple(sorted(archs)), (module,), ()
    )
    return Library(of, table, module, resolved)


def manifest_text(
    table: Mapping[str, Any],
    archs: Sequence[str],
    variants: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    **build: Any,
) -> str:
    """Return the manifest of one module.

    Args:
        table: its ``[[modules]]`` table.
        variants: tables of variants by their name.
        build: further keys of its ``[build]``.
    """
    keys = {"architectures": sorted(archs), "mode": "cpp_itfs", **build}
    return toml_document({"build": keys, "modules": [table], **(variants or {})})


def check_library(library: Library, folder: Folder) -> tuple[GeneratedModule | None, list[Check]]:
    """Generate the sources of a library, and run the checks of a plan on them.

    Args:
        folder: for the generated files.
    """
    tree, archs = library.resolved.request.tree, library.resolved.archs
    made: list[GeneratedModule] = []

    def generation() -> Check:
        made.append(generate_module(library.resolved, library.module, folder))
        kernels = made[0].kernels
        facts = {
            "archs": list(archs),
            "kernels": len(kernels.kernels),
            "code_objects": len(kernels.code_objects),
        }
        said = f"for {', '.join(archs)}: {facts['kernels']} kernel instances, "
        return Check(
            "generated", library.of, f"{said}{facts['code_objects']} code objects", (), facts
        )

    checks = [guarded("generated", library.of, generation)]
    if not made:
        return None, checks
    module = made[0]
    checks += _directions(library, module)
    macros = entry_macros(tree, module, archs)
    off = v3_off(tree, module, archs)
    checks.append(guarded("v3", library.of, lambda: check_v3(library.of, module, tree, archs, off)))
    checks += _sources(library, module, macros, folder)
    faults = tuple(known_faults(tree, module.config, archs))
    if faults:
        checks.append(Check("faults", library.of, "known, mended by patches", faults))
    return module, checks


def _directions(library: Library, module: GeneratedModule) -> Iterator[Check]:
    """Check how far each direction can be followed."""
    tree = library.resolved.request.tree
    calls = directions_of(module.config)
    for direction in module.kernels.directions:
        own = [k for k in module.kernels.kernels if k.direction == direction.name]
        found = [f for f in module.kernels.warnings if direction_of(f) == direction.name]
        facts = {
            "level": direction.level,
            "reason": direction.reason,
            "rows": direction.rows,
            "kernels": sum(not k.role.startswith("asm_") for k in own),
            "unknown_fields": list(direction.unknown),
            "receipt": int(calls[direction.name].ck_receipt),
            "receipts": list(known_receipts(tree, module.spec.name)),
        }
        said = f"{direction.level}, {facts['rows']} rows, {facts['kernels']} kernel instances, "
        yield Check(
            "level", direction.name, f"{said}receipt {facts['receipt']}", tuple(found), facts
        )


def _sources(
    library: Library, module: GeneratedModule, macros: EntryMacros, folder: Folder
) -> Iterator[Check]:
    """Check that a library's sources find their files, and list their functions."""
    tree, of = library.resolved.request.tree, library.of
    own = folder.below(module.spec.name)
    texts = {s.file: own.text(s.file) for s in module.kernels.sources}
    first = {kernel.role: kernel.file for kernel in module.kernels.kernels}
    kernels = [Includer(file, own.text(file)) for file in first.values()]

    def entries() -> Check:
        functions = module_functions(library.resolved, module, texts, macros)
        said = ", ".join(f"{f.name}({', '.join(p.type for p in f.parameters)})" for f in functions)
        forms = {f.name: [vars(p) for p in f.parameters] for f in functions}
        return Check("entries", of, said, (), {"functions": forms})

    known = {n: v for n, v in sorted(macros.known.items()) if v != UNKNOWN}
    defined = [f"-D{n}={v}" for n, v in known.items() if v is not None]
    yield Check("macros", of, " ".join(defined), macros.warnings, {"known": known})
    yield guarded(
        "includes",
        of,
        lambda: _closed(of, texts, missing_includes(tree, module, texts, kernels, macros)),
    )
    yield guarded(
        "types", of, lambda: _found("types", of, missing_types(tree, module, texts, macros))
    )
    yield guarded("entries", of, entries)


def _closed(of: str, texts: Mapping[str, str], findings: list[Finding]) -> Check:
    asked = sorted({name for text in texts.values() for name, _ in includes(text)})
    said = f"{len(findings)} lead nowhere" if findings else "closed"
    return Check("includes", of, said, tuple(findings), {"included": asked})


def _found(name: str, of: str, findings: list[Finding]) -> Check:
    said = f"{len(findings)} of Composable Kernel unknown" if findings else "all declared"
    return Check(name, of, said, tuple(findings))
