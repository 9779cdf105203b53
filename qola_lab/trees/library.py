"""A candidate library of a tree, and the checks of its sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qola.aiter.attention import ATTENTION
from qola.aiter.includes import includes
from qola.aiter.known_faults import known_faults
from qola.aiter.missing_names import Includer
from qola.aiter.preprocess import UNKNOWN
from qola.aiter.tree import AiterTree, GeneratorCall, ModuleConfig
from qola.codegen.asm.embed import read_rows
from qola.codegen.asm.later import config_modules, read_tables
from qola.codegen.ck.receipts import known_receipts
from qola.common.folder import Folder
from qola.manifest.load import loads
from qola.manifest.toml import TomlTable, toml_document
from qola.plan.configure import configure
from qola.plan.entry_macros import entry_macros, v3_off
from qola.plan.generate import GeneratedModule, generate_module, launch_findings
from qola.plan.module_entry import missing_includes, missing_types, module_functions
from qola.plan.request import Request, ResolvedModule, ResolvedRequest
from qola.plan.resolve import select_kernels
from qola_base.errors import Finding
from qola_base.files import lossy_text
from qola_lab.trees.check import Check, guarded


@dataclass(frozen=True)
class Library:
    """A candidate library: the manifest of one module.

    Attributes:
        of: how its checks call it.
        table: its [[modules]] table.
    """

    of: str
    table: Mapping[str, str | Sequence[str]]
    module: ResolvedModule
    resolved: ResolvedRequest

    @property
    def direction(self) -> str:
        """The main direction of the library's module."""
        return ATTENTION[self.module.spec.name].direction


def directions_of(config: ModuleConfig) -> dict[str, GeneratorCall]:
    """Return the call of CK's generator for each direction of a module."""
    return {direction: call for call in config.ck_calls for direction in call.ck_directions}


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
    (spec,) = manifest.modules
    request = Request("compat", manifest, tree)
    config = configure(tree, manifest, spec)
    module = ResolvedModule(spec, config, select_kernels(request, spec, ()))
    resolved = ResolvedRequest(request, tuple(sorted(archs)), (module,), ())
    return Library(of, table, module, resolved)


def manifest_text(
    table: TomlTable,
    archs: Sequence[str],
    variants: Mapping[str, Sequence[TomlTable]] | None = None,
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
    tree, archs, of = library.resolved.request.tree, library.resolved.archs, library.of
    checks: list[Check] = []
    module: GeneratedModule | None = None
    with guarded(checks, "generated", of):
        module = generate_module(library.resolved, library.module, folder)
        kernels, objects = len(module.kernels.kernels), len(module.kernels.code_objects)
        facts = {"archs": list(archs), "kernels": kernels, "code_objects": objects}
        said = f"for {', '.join(archs)}: {kernels} kernel instances, {objects} code objects"
        checks.append(Check("generated", of, said, (), facts))
    if module is None:
        return None, checks
    checks += _directions(library, module)
    with guarded(checks, "v3", of):
        checks.append(check_v3(of, module, tree, archs, v3_off(tree, module, archs)))
    _check_sources(checks, library, module, folder)
    if faults := tuple(known_faults(tree, module.config, archs)):
        checks.append(Check("faults", of, "known, mended by patches", faults))
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
        said += f"receipt {facts['receipt']}"
        yield Check("level", direction.name, said, tuple(found), facts)


def _check_sources(
    checks: list[Check], library: Library, module: GeneratedModule, folder: Folder
) -> None:
    """Check that a library's sources find their files, and list their functions."""
    tree, of = library.resolved.request.tree, library.of
    macros = entry_macros(tree, module, library.resolved.archs)
    own = folder.below(module.spec.name)
    texts = {s.file: own.text(s.file) for s in module.kernels.sources}
    first = {kernel.role: kernel.file for kernel in module.kernels.kernels}
    kernels = [Includer(file, own.text(file)) for file in first.values()]
    known = {n: v for n, v in sorted(macros.known.items()) if v != UNKNOWN}
    defined = [f"-D{n}={v}" for n, v in known.items() if v is not None]
    checks.append(Check("macros", of, " ".join(defined), macros.warnings, {"known": known}))
    with guarded(checks, "includes", of):
        findings = tuple(missing_includes(tree, module, texts, kernels, macros))
        included = sorted({name for text in texts.values() for name, _ in includes(text)})
        said = f"{len(findings)} lead nowhere" if findings else "closed"
        checks.append(Check("includes", of, said, findings, {"included": included}))
    with guarded(checks, "types", of):
        findings = tuple(missing_types(tree, module, texts, macros))
        said = f"{len(findings)} of Composable Kernel unknown" if findings else "all declared"
        checks.append(Check("types", of, said, findings))
    with guarded(checks, "entries", of):
        functions = module_functions(library.resolved, module, texts, macros)
        said = ", ".join(f"{f.name}({', '.join(p.type for p in f.parameters)})" for f in functions)
        forms = {f.name: [vars(p) for p in f.parameters] for f in functions}
        checks.append(Check("entries", of, said, (), {"functions": forms}))


def rows_of(tree: AiterTree, config: ModuleConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the arch and the code objects of each row that a library's sources can choose."""
    if modules := config_modules(tree, config):
        for module in modules:
            for table in read_tables(tree, module):
                yield from ((row.arch, row.files) for row in table.rows)
        return
    own = ATTENTION[config.name]
    for script in sorted((tree.root / tree.hsa_dir).glob(f"gfx*/{own.asm_subdir}/codegen.py")):
        folder = script.parent.relative_to(tree.root).as_posix()
        for kernel in read_rows(lossy_text(script), folder):
            yield kernel.arch, (kernel.file,)


def check_v3(
    of: str, module: GeneratedModule, tree: AiterTree, archs: Sequence[str], off: Sequence[Finding]
) -> Check:
    """Count the rows of each arch, and find those without a code object.

    Args:
        off: why the assembly path is off, () where it is on.
    """
    rows: Counter[str] = Counter()
    missing: dict[str, set[str]] = {}
    for arch, files in rows_of(tree, module.config):
        if arch in archs:
            rows[arch] += 1
            lost = {file for file in files if not (tree.root / file).is_file()}
            missing.setdefault(arch, set()).update(lost)
    embedded = Counter(code_object.arch for code_object in module.kernels.code_objects)
    facts = {
        arch: {
            "rows": rows[arch],
            "missing": sorted(missing.get(arch, ())),
            "embedded": embedded[arch],
        }
        for arch in archs
    }
    said = ", ".join(
        f"{arch} {rows[arch]} rows, {embedded[arch]} code objects, "
        f"{len(missing.get(arch, ()))} missing"
        for arch in archs
    )
    findings = [f for f in launch_findings(tree, module) if not direction_of(f)]
    return Check("v3", of, said, (*findings, *off), facts)


def direction_of(finding: Finding) -> str:
    """Return the direction that a generator's warning is about, "" for the assembly path."""
    first, second, *_ = (*finding.place.split(), "", "")
    if first == "direction":
        return second
    return first if second.startswith("dispatch,") else ""
