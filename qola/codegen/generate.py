"""Generates the kernels, the dispatch and the entry points of one module."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from qola.aiter.attention import TORCH_ATTENTION, attention_of
from qola.aiter.tree import ARCH_TOKEN, AiterTree, GeneratorCall, ModuleConfig
from qola.answers import NO_ANSWERS, AnswerCache
from qola.codegen.asm.path import assembly_path, generate_assembly_only
from qola.codegen.asm.script import generate_entry
from qola.codegen.asm.set import AsmSet
from qola.codegen.ck.levels import check_added, check_levels, directions_of
from qola.codegen.ck.predicates import Bucket, Wanted
from qola.codegen.ck.receipts import EMULATED, FAMILIES, family_of, native_receipts
from qola.codegen.packed import unpack
from qola.codegen.process import run_module
from qola.codegen.types import (
    Explanation,
    GeneratedSource,
    KernelInstance,
    KernelSet,
    Selection,
    arch_sets,
    to_fields,
)
from qola.errors import CodegenError, Finding
from qola.folder import Folder
from qola.processes import thread_pool

_ORDER = {name: i for i, name in enumerate(d for family in FAMILIES.values() for d in family)}

#: Generators that serve the v3 (assembly) path only: its dispatch, and the helper kernels of the
#: v3 backward.
_V3_ONLY = (
    f"/hsa/{ARCH_TOKEN}/fmha_v3_fwd/codegen.py",
    f"/hsa/{ARCH_TOKEN}/fmha_v3_bwd/codegen.py",
    "/csrc/py_itfs_cu/fmha_bwd_pre_post_kernel_generate.py",
    "/hsa/codegen.py",
)
_ENTRY = ("/csrc/cpp_itfs/mha_fwd_generate.py", "/csrc/cpp_itfs/mha_bwd_generate.py")


def generate(
    tree: AiterTree,
    module: ModuleConfig,
    selection: Selection,
    archs: Sequence[str],
    out_dir: Folder,
    *,
    explain: bool = False,
    cached: AnswerCache = NO_ANSWERS,
) -> KernelSet:
    """Generate one module: the union of the variants as ONE kernel set with ONE dispatch.

    Every direction of the module gets its dispatch sources, also one without kernels: its entry
    point then links, and answers -1. There is one for each set of the architectures a library may
    be restricted to. Only the files named in the result are part of it; others in `out_dir` are
    left alone, and files that would not change are not written.

    Args:
        module: one of its modules, such as ``libmha_fwd``.
        archs: the architectures to build for, such as ``gfx950``.
        out_dir: gets ``kernels/`` and ``dispatch/``.
        explain: also say of every kernel of the receipts in use why it is in or out.
        cached: what CK's generator answered before.

    Raises:
        CodegenError: an unknown receipt or direction, a variant without kernels, a hazard the
            variants bring about, a CK or a generator that is not served, a generator that fails.
    """
    if module.without_ck:
        return generate_assembly_only(tree, module, selection, archs, out_dir)
    directions, entries, v3 = _sort_generators(tree, module)
    own = family_of(next(iter(directions))) if directions else attention_of(module.name).direction
    folders = {chosen: _folder(chosen, archs) for chosen in arch_sets(archs)}
    wanted: dict[str, list[Wanted]] = {}
    answers: dict[str, dict[str, Any]] = {}
    warnings: Sequence[Finding] = ()
    if directions:
        fmha_dir = _fmha_dir(tree, module)
        native = native_receipts(fmha_dir, own)
        wanted = _wanted(native, selection, directions)
        answers = _run_directions(
            fmha_dir, native, selection, directions, wanted, folders, explain, cached
        )
        warnings = check_levels(answers, wanted, sorted(native), selection.level)
    asm = assembly_path(tree, module, v3, selection, archs, out_dir)
    if refused := [Finding(**f) for a in answers.values() for f in a["refused"]]:
        raise CodegenError(refused, "kernels that are asked for cannot be generated")
    _check_variants(wanted, answers, asm.served)
    check_added(wanted, answers, selection.add_directions)
    # Directions may have the same to say of a variant.
    findings = list(dict.fromkeys(Finding(**f) for a in answers.values() for f in a["findings"]))
    if any(f.severity == "error" for f in findings):
        raise CodegenError(findings, "the dispatch would have holes")
    sources = [
        GeneratedSource(**{**_written(out_dir, s), "archs": tuple(s["archs"])})
        for a in answers.values()
        for s in a["sources"]
    ]
    for call in entries:
        for chosen, folder in folders.items():
            told = _told(asm.archs, chosen)
            made = generate_entry(tree, call, out_dir, own, told, folder=folder)
            sources += [replace(source, archs=chosen) for source in made]
    sources += _asm_sources(asm, folders)
    kernels = tuple(
        KernelInstance(**_values(_written(out_dir, k)))
        for a in answers.values()
        for k in a["kernels"]
    )
    return KernelSet(
        kernels=kernels + asm.kernels,
        sources=tuple(sources),
        code_objects=asm.code_objects,
        headers=tuple(table.name for table in asm.tables),
        tables=asm.tables,
        inputs=asm.inputs,
        directions=directions_of(answers),
        warnings=(*warnings, *findings, *asm.findings),
        explanations=tuple(
            Explanation(**{**_values(e), "asked_by": tuple(e.get("asked_by", ()))})
            for a in answers.values()
            for e in a["explanations"]
        ),
    )


def _folder(chosen: Sequence[str], archs: Sequence[str]) -> str:
    """Return where the dispatch for `chosen` goes: that for all architectures is the usual one."""
    return "dispatch" if len(chosen) == len(set(archs)) else f"dispatch_{'_'.join(chosen)}"


def _told(asm_archs: Sequence[str], chosen: Sequence[str]) -> list[str]:
    """Return the architectures AITER's entry-point generator is told of, for the v3 path.

    Told of a single one it calls that v3 dispatch on every device. A name that no device has makes
    it ask the device, where the library has an architecture without a v3 dispatch.
    """
    told = [arch for arch in asm_archs if arch in chosen]
    return [*told, "none"] if told and len(told) < len(chosen) else told


def _asm_sources(asm: AsmSet, folders: Mapping[tuple[str, ...], str]) -> Iterator[GeneratedSource]:
    """Yield the sources of the v3 path once for each set of architectures they belong to."""
    for chosen in folders:
        own = [source for source in asm.sources if source.archs[0] in chosen]
        yield from (replace(s, archs=chosen) for s in (*own, *(asm.stubs if own else ())))


def _written(out_dir: Folder, told: Mapping[str, Any]) -> dict[str, Any]:
    """Write what the generator's process tells of; return what describes it."""
    plain = {name: value for name, value in told.items() if name != "text"}
    return {**plain, "sha256": out_dir.write(told["file"], told["text"])}


def _values(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the generator's process says of a kernel, as our types have it."""
    archs, fields = tuple(data["archs"]), to_fields(data["fields"])
    return {**data, "archs": archs, "fields": fields, "kept_by": tuple(data["kept_by"])}


def _sort_generators(
    tree: AiterTree, module: ModuleConfig
) -> tuple[dict[str, int], list[GeneratorCall], list[GeneratorCall]]:
    """Return (direction -> AITER's receipt, entry generators, generators of the v3 path)."""
    directions: dict[str, int] = {}
    entries, v3, findings = [], [], []
    for call in module.generators:
        path = f"/{call.script}"
        if call in module.ck_calls:
            findings += _read_ck_call(module, call, directions)
        elif path.endswith(_ENTRY):
            entries.append(call)
        elif path.endswith(_V3_ONLY):
            v3.append(call)
        else:
            findings.append(
                Finding(
                    place=f"module {module.name}",
                    found=f"generator {call.script}",
                    expected="CK's generate.py, an entry-point generator or a v3 table",
                    fix="leave the module out: it is not served yet",
                )
            )
    if not directions and not (v3 and module.name in TORCH_ATTENTION) and not findings:
        findings.append(
            Finding(
                place=f"module {module.name}",
                found="no call of CK's generate.py",
                expected="an attention module (libmha_fwd, libmha_bwd)",
            )
        )
    if findings:
        raise CodegenError(findings)
    return dict(sorted(directions.items(), key=lambda kv: _ORDER[kv[0]])), entries, v3


def _read_ck_call(
    module: ModuleConfig, call: GeneratorCall, directions: dict[str, int]
) -> list[Finding]:
    """Add the directions of one call of CK's generate.py; return what is not served."""
    served = {"-d": 1, "--direction": 1, "-r": 1, "--receipt": 1, "-o": 1, "--output_dir": 1}
    names = [arg for arg in call.args if arg.startswith("-")]
    wrong = [f"option {name}" for name in names if name not in served]
    for direction in call.ck_directions:
        if direction in _ORDER and call.ck_receipt.isdigit():
            directions[direction] = int(call.ck_receipt)
        else:
            wrong.append(f"direction {direction} with receipt {call.ck_receipt}")
    return [
        Finding(
            place=f"module {module.name}, {call.script}",
            found=what,
            expected=f"{', '.join(served)}; directions {', '.join(_ORDER)}",
        )
        for what in wrong
    ]


def _fmha_dir(tree: AiterTree, module: ModuleConfig) -> Path:
    """Return the directory of CK's generator."""
    expected = f"{tree.fmha_dir}/generate.py"
    scripts = {call.script for call in module.ck_calls}
    if scripts != {expected}:
        raise CodegenError(
            Finding(
                place=f"module {module.name}",
                found=f"generators of CK: {', '.join(sorted(scripts))}",
                expected=f"{expected} alone, of the CK whose headers are compiled",
            )
        )
    return (tree.root / tree.fmha_dir).absolute()


def _wanted(
    native: Collection[int], selection: Selection, directions: Mapping[str, int]
) -> dict[str, list[Wanted]]:
    """Return what each direction has to select; receipts and directions are checked."""
    dropped = sorted(selection.drop_directions - set(directions))
    unknown = [("drop_directions", direction) for direction in dropped]
    unknown += [
        (one.label, f"{one.name}: direction {one.direction}, which the module does not have here")
        for one in selection.asked
        if one.direction not in directions
    ]
    expected = f"a direction of the module: {', '.join(directions)}"
    findings = [Finding(place, found, expected) for place, found in unknown]
    wanted: dict[str, list[Wanted]] = {}
    for direction, own in directions.items():
        receipt = own if selection.receipt is None else selection.receipt
        rest = Wanted.nothing(receipt) if selection.asked else Wanted.everything(receipt)
        wanted[direction] = [Wanted.from_variant(v, receipt) for v in selection.variants] or [rest]
    known = sorted({*native, *EMULATED})
    asked = {(w.receipt, w.label) for ws in wanted.values() for w in ws if w.receipt not in known}
    findings += [
        Finding(
            place=label,
            found=f"receipt {receipt}, which this CK does not know",
            expected=f"one of {', '.join(map(str, known))}",
            fix="write one of these numbers; AITER itself uses 600",
        )
        for receipt, label in sorted(asked)
    ]
    if findings:
        raise CodegenError(findings)
    return wanted


def _run_directions(
    fmha_dir: Path,
    native: Collection[int],
    selection: Selection,
    directions: Mapping[str, int],
    wanted: Mapping[str, list[Wanted]],
    folders: Mapping[tuple[str, ...], str],
    explain: bool,
    cached: AnswerCache,
) -> dict[str, dict[str, Any]]:
    receipts = sorted({w.receipt for ws in wanted.values() for w in ws})

    def answer(direction: str) -> dict[str, Any]:
        request = {
            "direction": direction,
            "native": sorted(native),
            "archs": list(next(iter(folders))),
            "folders": list(folders.items()),
            "wanted": [w.to_json() for w in wanted[direction]],
            "dropped": direction in selection.drop_directions,
            "explain": explain,
            "keep_unreachable": selection.keep_unreachable,
            "own": [
                {**vars(one), "fields": dict(one.fields)}
                for one in selection.asked
                if one.direction == direction
            ],
            "origin": f"receipt {', '.join(map(str, receipts))}",
        }
        place = f"CK's generate.py, direction {direction}"
        script = fmha_dir / "generate.py"

        question = {"kind": "CK's generator", "script": str(script), **request}
        run = partial(_run_direction, script, request, place)
        return unpack(cached.find_bytes(question, run))

    with thread_pool(4) as pool:
        return dict(zip(directions, pool.map(answer, directions), strict=True))


def _run_direction(script: Path, request: Mapping[str, Any], place: str) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        cwd = root / "cwd"
        cwd.mkdir()
        (root / "out").mkdir()
        told = {**request, "script": str(script), "scratch": str(root / "out")}
        told |= {name: str(root / name) for name in ("answer", "seen")}
        (root / "request.json").write_text(json.dumps(told), encoding="utf-8")
        run_module("qola.codegen.ck.driver", [str(root / "request.json")], cwd=cwd, place=place)
        if not (root / "seen").is_file():
            raise CodegenError(
                Finding(
                    place,
                    "exit code 0 before it had generated anything: os._exit, or a signal",
                    "a generator that returns, or ends by sys.exit",
                )
            )
        data = (root / "answer").read_bytes()
        seen = json.loads((root / "seen").read_text(encoding="utf-8"))
        stray = sorted(path.name for path in cwd.rglob("*"))
    if seen["error"]:
        raise CodegenError(Finding(place=place, **seen["error"]))
    if stray:
        raise CodegenError(
            Finding(
                place=place,
                found=f"unexpected files in the working folder: {', '.join(stray)}",
                expected="files in the output folder only",
            )
        )
    return data


def _check_variants(
    wanted: Mapping[str, list[Wanted]],
    answers: Mapping[str, dict[str, Any]],
    served_by_asm: Mapping[int, Collection[Bucket]],
) -> None:
    """Check that every variant, and every head dim it names, has a kernel in some direction.

    Assembly kernels will do, if all architectures have them: there are some for problems that CK
    has none for.

    Raises:
        CodegenError: naming each that has none, and what the CK at hand has.
    """
    findings = []
    for w in next(iter(wanted.values()), ()):
        if w.index < 0:
            continue
        key = str(w.index)
        if not any(answer["counts"][key] for answer in answers.values()):
            if w.index in served_by_asm and set(w.hdims or ()) <= set(served_by_asm[w.index]):
                continue
            reasons = [
                f"{direction}: {line}"
                for direction, answer in answers.items()
                for line in answer["blame"].get(key, []) or ["no kernel has all of it at once"]
            ]
            findings.append(
                Finding(
                    place=w.label,
                    found="selects no kernel:\n" + "\n".join(reasons),
                    expected="a combination that the CK at hand has kernels for",
                    fix="widen the dimensions named above, or remove the variant",
                )
            )
            continue
        unserved = set.intersection(
            *({(q, v) for q, v in answer["unserved"][key]} for answer in answers.values())
        )
        have = sorted({(q, v) for answer in answers.values() for q, v in answer["buckets"]})
        findings += [
            Finding(
                place=f"{w.label}.hdim",
                found=f"{q}x{v}, which no kernel of receipt {w.receipt} serves",
                expected=f"up to one of {', '.join(f'{a}x{b}' for a, b in have)}",
            )
            for q, v in sorted(unserved.difference(served_by_asm.get(w.index, ())))
        ]
    if findings:
        raise CodegenError(findings, "a variant cannot be satisfied")
