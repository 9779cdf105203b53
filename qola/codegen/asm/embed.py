"""AITER's assembly (v3) path: host sources, helper kernels and the code objects to embed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from qola.aiter.attention import attention_of
from qola.aiter.tree import ARCH_TOKEN, AiterTree, GeneratorCall
from qola.codegen.asm.domain import Variant, fits, v3_bucket
from qola.codegen.asm.helpers import Helper, read_helpers, unplanned_source
from qola.codegen.asm.patch import PATCHES, patched_copy
from qola.codegen.asm.script import run_script, write_source
from qola.codegen.asm.set import AsmSet, listed, not_embedded
from qola.codegen.asm.tables import AsmCall, AsmKernel, read_calls, read_csv, read_rows
from qola.codegen.types import CodeObject, GeneratedSource, KernelInstance
from qola.errors import CodegenError, Finding
from qola.files import sha256_of
from qola.folder import Folder

_HELPERS = "/csrc/py_itfs_cu/fmha_bwd_pre_post_kernel_generate.py"


def generate_asm(
    tree: AiterTree,
    module_name: str,
    calls: Sequence[GeneratorCall],
    archs: Sequence[str],
    variants: Sequence[Variant],
    out_dir: Folder,
    *,
    patches: Path = PATCHES,
) -> AsmSet:
    """Generate the v3 path of a module, as far as its variants can ask for it.

    Args:
        tree: the AITER tree; it is not written to.
        module_name: ``libmha_fwd`` or ``libmha_bwd``.
        calls: the module's generators that serve the v3 path alone.
        variants: those of the module's direction; () keeps every kernel a dispatch calls.
        out_dir: gets ``dispatch/`` and ``kernels/``.

    Raises:
        CodegenError: a generator that fails, or tables or helpers in a form not served.
    """
    direction = attention_of(module_name).direction
    own = f"/hsa/{ARCH_TOKEN}/fmha_v3_{direction}/codegen.py"
    findings = [_unserved(c) for c in calls if not f"/{c.script}".endswith((own, _HELPERS))]
    sources: list[GeneratedSource] = []
    launches: dict[str, tuple[AsmCall, ...]] = {}
    for call in (c for c in calls if f"/{c.script}".endswith(own)):
        for arch in sorted(set(archs)):
            files = _dispatch(tree, call, arch, patches)
            if isinstance(files, Finding):
                findings.append(files)
                continue
            hsa_dir = f"{tree.hsa_dir}/{arch}/fmha_v3_{direction}"
            found = [
                launch
                for data in files.values()
                for launch in read_calls(data.decode(), arch, direction, hsa_dir)
            ]
            if not any(_keepers(launch, variants) for launch in found):
                continue
            launches[arch] = tuple(found)
            made = [
                write_source(out_dir, f"dispatch/{name}", data, direction, "asm")
                for name, data in files.items()
            ]
            sources += [replace(source, archs=(arch,)) for source in made]
            findings += integrity(tree, arch, f"fmha_v3_{direction}")
    everything = [launch for found in launches.values() for launch in found]
    wanted = [launch for launch in everything if _keepers(launch, variants)]
    kernels, stubs = _helpers(tree, calls, everything, wanted, variants, archs, out_dir)
    objects, missing = _code_objects(tree, wanted)
    return AsmSet(
        archs=tuple(launches),
        sources=tuple(sources),
        kernels=kernels,
        stubs=stubs,
        code_objects=objects,
        served=_served([launches.get(arch, ()) for arch in archs], variants, direction),
        findings=(*findings, *missing),
    )


def integrity(tree: AiterTree, arch: str, subdir: str) -> tuple[Finding, ...]:
    """Compare the configuration tables of one subfolder with the .co files in it.

    Args:
        subdir: folder below ``hsa/<arch>``, such as ``fmha_v3_bwd``.

    Returns:
        A warning that names the files rows ask for and that are not there, and one that names the
        files no row asks for. Nothing for a folder without tables: other code names its kernels.
    """
    hsa_dir = f"{tree.hsa_dir}/{arch}/{subdir}"
    folder = tree.root / hsa_dir
    named: set[str] = set()
    tables = [path.relative_to(tree.root).as_posix() for path in sorted(folder.rglob("*.csv"))]
    for table in tables:
        named.update(read_csv(tree.root / table, table, arch, hsa_dir))
    script = folder / "codegen.py"
    text = script.read_text(encoding="utf-8") if script.is_file() else ""
    direction = subdir.rpartition("_")[2]
    if rows := read_rows(text, arch, direction, hsa_dir):
        tables.append(f"{hsa_dir}/codegen.py")
        launched = [k for c in read_calls(text, arch, direction, hsa_dir) for k in c.kernels]
        named.update(kernel.file for kernel in (*rows, *launched))
    if not named:
        return ()
    present = {path.relative_to(tree.root).as_posix() for path in folder.rglob("*.co")}
    place = ", ".join(tables) if len(tables) < 3 else f"{len(tables)} tables in {hsa_dir}"
    findings = []
    if named - present:
        findings.append(
            Finding(
                place=place,
                found=f"rows for {listed(named - present, hsa_dir)}, of which there is no file",
                expected="a .co file for each row",
                severity="warning",
            )
        )
    if present - named:
        findings.append(not_embedded(present - named, hsa_dir, place))
    return tuple(findings)


def _dispatch(
    tree: AiterTree, call: GeneratorCall, arch: str, patches: Path
) -> dict[str, bytes] | Finding:
    """Return what the patched generator of an architecture writes, or why it is not run."""
    place = call.script.replace(ARCH_TOKEN, arch)
    script = place.removeprefix(f"{tree.meta_dir}/") if tree.meta_dir else place
    root = tree.root / tree.meta_dir
    if not (root / script).is_file():
        return Finding(
            place=place,
            found=f"no such file: this AITER has no assembly (v3) kernels for {arch}",
            expected="a generator for each architecture, or none of it served by v3",
            severity="warning",
        )
    with tempfile.TemporaryDirectory() as name:
        copy = patched_copy(root, script, place, Path(name), patches)
        return copy if isinstance(copy, Finding) else run_script(copy, call.args, place)


def _keepers(launch: AsmCall, variants: Sequence[Variant]) -> list[int]:
    """Return the variants that want a launch; [-1] where there are none at all."""
    if not variants:
        return [-1]
    return [v.index for v in variants if fits(v, launch.kernels[0])]


def _served(
    launches: Iterable[Sequence[AsmCall]], variants: Sequence[Variant], direction: str
) -> dict[int, frozenset[tuple[int, int]]]:
    """Return the head dims of each variant that every architecture has a launch for."""
    by_arch = [
        {
            (index, (launch.kernels[0].hdim_q, launch.kernels[0].hdim_v))
            for launch in own
            for index in _keepers(launch, variants)
        }
        for own in launches
    ]
    common = set.intersection(*by_arch) if by_arch else set()
    hdims = {variant.index: variant.hdim or () for variant in variants}
    return {
        index: frozenset(
            hdim for hdim in hdims.get(index, ()) if (index, v3_bucket(direction, *hdim)) in common
        )
        for index in sorted({index for index, _ in common})
    }


def _helpers(
    tree: AiterTree,
    calls: Sequence[GeneratorCall],
    everything: Iterable[AsmCall],
    wanted: Iterable[AsmCall],
    variants: Sequence[Variant],
    archs: Sequence[str],
    out_dir: Folder,
) -> tuple[tuple[KernelInstance, ...], tuple[GeneratedSource, ...]]:
    """Write the helper kernels that are wanted, and a source for those that are only named."""
    named = {helper for launch in everything for helper in launch.helpers}
    keepers: dict[str, set[int]] = {}
    for launch in wanted:
        for helper in launch.helpers:
            keepers.setdefault(helper, set()).update(_keepers(launch, variants))
    helpers: dict[str, Helper] = {}
    for call in (c for c in calls if named and f"/{c.script}".endswith(_HELPERS)):
        helpers.update(
            read_helpers(run_script(tree.root / call.script, call.args, call.script), call.script)
        )
    if lacking := sorted(keepers.keys() - helpers.keys()):
        raise CodegenError(
            Finding(
                place="fmha_v3_bwd dispatch",
                found=f"launches with {', '.join(lacking)}",
                expected="kernels that fmha_bwd_pre_post_kernel_generate.py writes",
            )
        )
    kernels = []
    for type_ in sorted(keepers, key=lambda t: helpers[t].name):
        kept_by = [index for index in keepers[type_] if index >= 0]
        kernels.append(helpers[type_].instance(archs, kept_by))
        write_source(out_dir, kernels[-1].file, helpers[type_].data, "bwd", "asm")
    stubs = []
    if unplanned := sorted(named - keepers.keys()):
        text = unplanned_source(unplanned)
        stubs.append(
            write_source(out_dir, "dispatch/asm_unplanned.cpp", text.encode(), "bwd", "asm")
        )
    return tuple(kernels), tuple(stubs)


def _code_objects(
    tree: AiterTree, wanted: Iterable[AsmCall]
) -> tuple[tuple[CodeObject, ...], list[Finding]]:
    rows: dict[str, AsmKernel] = {k.key: k for launch in wanted for k in launch.kernels}
    objects, findings = [], []
    for key, row in sorted(rows.items()):
        path = tree.root / row.file
        if path.is_file():
            size = path.stat().st_size
            objects.append(CodeObject(key, row.file, row.arch, sha256_of(path), size))
        else:
            findings.append(
                Finding(
                    place=row.file,
                    found="no such file, though the v3 dispatch loads it: a problem that comes to "
                    "it fails",
                    expected="every code object that a dispatch loads",
                    fix="call with use_ext_asm = false for such problems",
                    severity="warning",
                )
            )
    return tuple(objects), findings


def _unserved(call: GeneratorCall) -> Finding:
    return Finding(
        place=f"{call.script} {' '.join(call.args)}",
        found="a v3 generator that qola cannot make embed its kernels: assembly (v3) kernels are "
        "off, and such problems go to CK",
        expected="hsa/<arch>/fmha_v3_*/codegen.py, as AITER 0.1.7 has it",
        severity="warning",
    )
