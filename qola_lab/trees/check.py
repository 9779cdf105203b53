"""Checks and their report; checks of a tree as a whole, and of the sources of a library."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

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
from qola.fetch.git import read_checkout, read_head
from qola.fetch.patches import try_patches
from qola.fetch.pins import patch_files, pinned_id, recorded_patches
from qola.manifest.load import loads
from qola.manifest.toml import TomlTable, toml_document
from qola.plan.checks import unknown_keys
from qola.plan.generate import GeneratedModule, generate_module, launch_findings
from qola.plan.module_entry import (
    entry_macros,
    missing_includes,
    missing_types,
    module_functions,
    v3_off,
)
from qola.plan.request import Request, ResolvedModule, ResolvedRequest
from qola.plan.resolve import configure, select_kernels
from qola_base.errors import AiterError, Finding, QolaError, Severity
from qola_base.files import lossy_text
from qola_base.json_types import JsonObject

Status = Literal["ok", "degraded", "broken"]
SCHEMA = 1
"""Version of the JSON form, docs/guide/compat.md."""


@dataclass(frozen=True)
class Check:
    """The result of a check, a line of the report.

    Attributes:
        name: name of the check, such as ``includes``.
        of: part of the tree: a module, a direction, a patch; "" for all of it.
        said: the result in a few words.
        findings: errors and warnings with fixes.
        facts: the result as JSON values.
    """

    name: str
    of: str
    said: str = ""
    findings: tuple[Finding, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def result(self) -> str:
        """The result in a few words: that of a check that raised is in its findings."""
        return self.said or "; ".join(finding.found for finding in self.findings)

    @property
    def status(self) -> Status:
        """Broken with an error, degraded with a warning."""
        severities = {finding.severity for finding in self.findings}
        return "broken" if "error" in severities else "degraded" if severities else "ok"

    def to_dict(self) -> JsonObject:
        """Return the check as JSON values."""
        return {
            "check": self.name,
            "of": self.of,
            "status": self.status,
            "said": self.said,
            "findings": [vars(finding) for finding in self.findings],
            "facts": dict(self.facts),
        }


@dataclass(frozen=True)
class Report:
    """All checks of a tree."""

    checks: tuple[Check, ...]

    @property
    def counts(self) -> dict[Status, int]:
        """Number of checks by status."""
        found = [check.status for check in self.checks]
        return {status: found.count(status) for status in get_args(Status)}

    def to_dict(self) -> JsonObject:
        """Return the report as JSON values."""
        checks = [check.to_dict() for check in self.checks]
        return {"schema": SCHEMA, "counts": dict(self.counts.items()), "checks": checks}


@contextmanager
def guarded(checks: list[Check], name: str, of: str) -> Iterator[None]:
    """Append a broken check if the block raises, because no tree may end the other checks."""
    try:
        yield
    except QolaError as error:
        checks.append(Check(name, of, error.title, error.findings))
    except Exception as error:
        place = f"{name} {of}".strip()
        found = f"{type(error).__name__}: {error}"
        fix = "report it with the tree's commit: a tree like this was not met yet"
        finding = Finding(place, found, "a tree that can be read", fix)
        checks.append(Check(name, of, "cannot be checked", (finding,)))


_CK_ARCH = re.compile(r"""["'](gfx\w+)["']""")
INIT = "git submodule update --init --recursive, in the AITER tree"


def check_tree(tree: AiterTree, without_ck: bool) -> Check:
    """Identify the AITER, and check that its Composable Kernel exists.

    Args:
        without_ck: the tree's sources can do without.
    """
    head = read_head(tree.root)
    commit = head.commit or _pinned_commit(tree)
    ck_named = _named_commit(tree) if head.commit else ""
    ck = read_head(tree.root / tree.ck_dir) if head.commit else head
    patches = [patch.name for patch in recorded_patches(tree.root)]
    facts = {
        "generation": tree.generation,
        "version": tree.version,
        "commit": commit,
        "patches": patches,
        "composable_kernel": {
            "directory": tree.ck_dir,
            "there": tree.has_ck,
            "commit": ck.commit,
            "named": ck_named,
        },
    }
    findings = []
    if head.problem:
        expected = "a checkout whose commit git can read"
        findings.append(Finding(str(tree.root), head.problem, expected, "", "warning"))
    if not tree.has_ck:
        rest = "assembly kernels alone" if without_ck else "nothing, as its sources include it"
        found = f"no Composable Kernel; without it can be built: {rest}"
        expected = "the submodule" + (f" at {ck_named}" if ck_named else "")
        severity: Severity = "warning" if without_ck else "error"
        findings.append(Finding(tree.ck_dir, found, expected, INIT, severity))
    elif ck.commit != ck_named:
        found = f"commit {ck.commit}" if ck.commit else ck.problem or "a copy of an unknown commit"
        findings.append(Finding(tree.ck_dir, found, ck_named or "no submodule", INIT, "warning"))
    of = f"of kind {tree.generation}"
    words = ("AITER", tree.version, commit, of, *(f"with {name}" for name in patches))
    return Check("tree", "", " ".join(filter(None, words)), tuple(findings), facts)


def _pinned_commit(tree: AiterTree) -> str:
    """Return the full commit in a tree's AITER.json, "" if there is none."""
    pinned = pinned_id(tree.root)
    return pinned if re.fullmatch("[0-9a-f]{40}", pinned) else ""


def _named_commit(tree: AiterTree) -> str:
    """Return the commit of Composable Kernel that a checkout pins as a submodule, "" for none."""
    try:
        lines = read_checkout(tree.root, "ls-tree", "HEAD", tree.ck_dir)
    except AiterError:
        # A partial clone may lack its trees.
        return ""
    for line in lines:
        # "160000 commit ID<tab>path" of a submodule.
        kind, _, named = line.partition("\t")[0].split()
        return named if kind == "160000" else ""
    return ""


def check_config(tree: AiterTree) -> Check:
    """Check optCompilerConfig.json for missing modules and unknown keys."""
    names = tree.module_names()
    file, fix = "aiter/jit/optCompilerConfig.json", "use an AITER that builds it without PyTorch"
    missing = [
        Finding(file, f"no module {name}", " and ".join(ATTENTION), fix)
        for name in ATTENTION
        if name not in names
    ]
    facts = {"modules": len(names), "unknown_keys": dict(tree.unknown_keys())}
    return Check("config", "", f"{len(names)} modules", (*missing, *unknown_keys(tree)), facts)


def assembly_archs(tree: AiterTree) -> dict[str, list[str]]:
    """Return the folders of attention's assembly kernels for each arch."""
    found: dict[str, list[str]] = {}
    for folder in sorted((tree.root / tree.hsa_dir).glob("gfx*/fmha_*")):
        if any(folder.rglob("*.co")):
            found.setdefault(folder.parent.name, []).append(folder.name)
    return found


def check_archs(tree: AiterTree) -> Check:
    """List the archs of the tree's kernels."""
    assembly = assembly_archs(tree)
    fmha = tree.root / tree.fmha_dir
    texts = map(lossy_text, fmha.rglob("*.py"))
    ck = sorted({arch for text in texts for arch in _CK_ARCH.findall(text)})
    said = f"assembly kernels for {', '.join(assembly) or 'none'}"
    said += f"; Composable Kernel's generator names {', '.join(ck)}" if ck else ""
    findings: tuple[Finding, ...] = ()
    if not assembly and not ck:
        place = f"{tree.hsa_dir}, {tree.ck_dir}"
        findings = (Finding(place, "no kernels for any arch", "kernels for one arch", INIT),)
    return Check("archs", "", said, findings, {"assembly": assembly, "composable_kernel": ck})


def check_patches(root: Path, folder: Path) -> Iterator[Check]:
    """Check that each patch of a folder fits.

    Raises:
        AiterError: the folder has no patch.
    """
    for patch, finding in try_patches(root, patch_files(folder)):
        fits = finding is None or finding.severity == "warning"
        said = ("fits" if finding is None else "fits in part") if fits else "does not fit"
        yield Check("patch", patch.name, said, (finding,) if finding else (), {"fits": fits})


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
    config = configure(request, spec)
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
    texts = {s.file: folder.text(s.file) for s in module.kernels.sources}
    first = {kernel.role: kernel.file for kernel in module.kernels.kernels}
    own = folder.below(module.spec.name)
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
