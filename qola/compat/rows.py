"""Reads the tables of assembly (v3) kernels in each form that AITER has used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from qola.aiter.attention import ATTENTION
from qola.aiter.tree import AiterTree, ModuleConfig
from qola.codegen.asm.config_tables import read_tables
from qola.codegen.asm.later import config_modules
from qola.codegen.asm.tables import read_rows
from qola.compat.check import Check
from qola.errors import Finding
from qola.files import lossy_text
from qola.plan.generate import GeneratedModule, launch_findings


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
