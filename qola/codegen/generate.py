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
from qola.codegen.asm.path import assembly_path, generate_assembly_only
from qola.codegen.asm.script import generate_entry
from qola.codegen.asm.set import AsmSet
from qola.codegen.ck.messages import GeneratorAnswer, GeneratorRequest
from qola.codegen.ck.receipts import (
    EMULATED,
    FAMILIES,
    WITHOUT,
    emulated,
    native_receipts,
    show,
)
from qola.codegen.process import run_module
from qola.codegen.types import (
    LEVELS,
    Bucket,
    GeneratedSource,
    KernelSet,
    Selection,
    arch_sets,
)
from qola.common.answers import NO_ANSWERS, AnswerCache
from qola.common.folder import Folder
from qola.common.processes import thread_pool
from qola.kernel.selection import VariantFilter
from qola_base.errors import CodegenError, Finding

Answers = Mapping[str, GeneratorAnswer]
Filters = Mapping[str, Sequence[VariantFilter]]
"""Answers and filters by direction."""

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
    """Generate one module: one kernel set and one dispatch for the union of the variants.

    Every direction of the module gets dispatch sources for each set of architectures; without
    kernels, its entry point links and returns -1. Files of `out_dir` that the result does not name
    stay as they are, and unchanged files are not written.

    Args:
        out_dir: gets ``kernels/`` and ``dispatch/``.
        explain: also explain for each kernel of the used receipts why it is kept or dropped.
        cached: earlier answers of CK's generator.

    Raises:
        CodegenError: an unknown receipt or direction, a variant without kernels, a hazard that the
            variants cause, an unsupported CK or generator, or a generator that fails.
    """
    if module.without_ck:
        return generate_assembly_only(tree, module, selection, archs, out_dir)
    directions, entries, v3 = _sort_generators(module)
    own = attention_of(module.name).direction
    folders = {chosen: _folder(chosen, archs) for chosen in arch_sets(archs)}
    filters: Filters = {}
    answers: Answers = {}
    warnings: Sequence[Finding] = ()
    if directions:
        fmha_dir = _fmha_dir(tree, module)
        native = native_receipts(fmha_dir, own)
        filters = _filters(native, selection, directions)
        script = fmha_dir / "generate.py"
        requests = _requests(script, native, selection, filters, folders, explain)
        with thread_pool(4) as pool:
            found = pool.map(partial(_answer, cached), requests)
            answers = dict(zip(filters, found, strict=True))
        warnings = _check_levels(answers, filters, sorted(native), selection.level)
    asm = assembly_path(tree, module, v3, selection, archs, out_dir)
    if refused := [finding for answer in answers.values() for finding in answer.refused]:
        raise CodegenError(refused, "requested kernels cannot be generated")
    _check_variants(filters, answers, asm.served)
    _check_added(filters, answers, selection)
    # Several directions may have one finding about a variant.
    findings = list(dict.fromkeys(f for answer in answers.values() for f in answer.findings))
    if any(f.severity == "error" for f in findings):
        raise CodegenError(findings, "the dispatch would have holes")
    for answer in answers.values():
        for file, text in answer.texts.items():
            out_dir.write(file, text)
    sources = [source for answer in answers.values() for source in answer.sources]
    for call in entries:
        for chosen, folder in folders.items():
            v3_archs = _entry_archs(asm.archs, chosen)
            made = generate_entry(tree, call, out_dir, own, v3_archs, folder=folder)
            sources += [replace(source, archs=chosen) for source in made]
    sources += _asm_sources(asm, folders)
    kernels = tuple(kernel for answer in answers.values() for kernel in answer.kernels)
    return KernelSet(
        kernels=kernels + asm.kernels,
        sources=tuple(sources),
        code_objects=asm.code_objects,
        headers=tuple(table.name for table in asm.tables),
        tables=asm.tables,
        inputs=asm.inputs,
        directions=tuple(answer.direction for answer in answers.values()),
        warnings=(*warnings, *findings, *asm.findings),
        explanations=tuple(one for answer in answers.values() for one in answer.explanations),
    )


def _folder(chosen: Sequence[str], archs: Sequence[str]) -> str:
    """Return the folder of the dispatch for `chosen`: "dispatch" for all architectures."""
    return "dispatch" if len(chosen) == len(set(archs)) else f"dispatch_{'_'.join(chosen)}"


def _entry_archs(asm_archs: Sequence[str], chosen: Sequence[str]) -> list[str]:
    """Return the architectures with a v3 dispatch, for AITER's generator of entry points.

    For a single architecture it writes a call of that v3 dispatch on every device. If the library
    has an architecture without v3, an additional name that no device has makes it test the device.
    """
    archs = [arch for arch in asm_archs if arch in chosen]
    return [*archs, "none"] if archs and len(archs) < len(chosen) else archs


def _asm_sources(asm: AsmSet, folders: Mapping[tuple[str, ...], str]) -> Iterator[GeneratedSource]:
    for chosen in folders:
        own = [source for source in asm.sources if source.archs[0] in chosen]
        yield from (replace(s, archs=chosen) for s in (*own, *(asm.stubs if own else ())))


def _sort_generators(
    module: ModuleConfig,
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
                    f"module {module.name}",
                    f"generator {call.script}",
                    "CK's generate.py, an entry-point generator or a v3 table",
                    "leave the module out: qola does not support it",
                )
            )
    if not directions and not (v3 and module.name in TORCH_ATTENTION) and not findings:
        expected = "an attention module (libmha_fwd, libmha_bwd)"
        findings.append(Finding(f"module {module.name}", "no call of CK's generate.py", expected))
    if findings:
        raise CodegenError(findings)
    return dict(sorted(directions.items(), key=lambda kv: _ORDER[kv[0]])), entries, v3


def _read_ck_call(
    module: ModuleConfig, call: GeneratorCall, directions: dict[str, int]
) -> list[Finding]:
    """Add the directions of one call of CK's generate.py; return findings for unsupported ones."""
    served = ("-d", "--direction", "-r", "--receipt", "-o", "--output_dir")
    wrong = [f"option {arg}" for arg in call.args if arg.startswith("-") and arg not in served]
    for direction in call.ck_directions:
        if direction in _ORDER and call.ck_receipt.isdigit():
            directions[direction] = int(call.ck_receipt)
        else:
            wrong.append(f"direction {direction} with receipt {call.ck_receipt}")
    place = f"module {module.name}, {call.script}"
    expected = f"{', '.join(served)}; directions {', '.join(_ORDER)}"
    return [Finding(place, found, expected) for found in wrong]


def _fmha_dir(tree: AiterTree, module: ModuleConfig) -> Path:
    expected = f"{tree.fmha_dir}/generate.py"
    scripts = {call.script for call in module.ck_calls}
    if scripts != {expected}:
        found = f"generators of CK: {', '.join(sorted(scripts))}"
        expected = f"only {expected}, of the CK whose headers are compiled"
        raise CodegenError(Finding(f"module {module.name}", found, expected))
    return (tree.root / tree.fmha_dir).absolute()


def _filters(
    native: Collection[int], selection: Selection, directions: Mapping[str, int]
) -> dict[str, tuple[VariantFilter, ...]]:
    """Check receipts and directions, and return the filters of each direction."""
    unknown = [
        (selection.place("drop_directions"), direction)
        for direction in sorted(selection.drop_directions - set(directions))
    ]
    unknown += [
        (
            kernel.place,
            f"{kernel.config.name}: direction {kernel.config.direction}, which the module does "
            "not have here",
        )
        for kernel in selection.kernels
        if kernel.config.direction not in directions
    ]
    expected = f"a direction of the module: {', '.join(directions)}"
    findings = [Finding(place, found, expected) for place, found in unknown]
    filters: dict[str, tuple[VariantFilter, ...]] = {}
    for direction, own in directions.items():
        receipt = own if selection.receipt is None else selection.receipt
        rest = VariantFilter.nothing if selection.kernels else VariantFilter.everything
        variants = tuple(variant.filter(receipt) for variant in selection.variants)
        filters[direction] = variants or (rest(receipt),)
    known = sorted({*native, *EMULATED})
    others = {(f.receipt, f.place) for fs in filters.values() for f in fs if f.receipt not in known}
    findings += [
        Finding(
            label,
            f"receipt {receipt}, which this CK does not know",
            f"one of {', '.join(map(str, known))}",
            "write one of these numbers; AITER itself uses 600",
        )
        for receipt, label in sorted(others)
    ]
    if findings:
        raise CodegenError(findings)
    return filters


def _requests(
    script: Path,
    native: Collection[int],
    selection: Selection,
    filters: Filters,
    folders: Mapping[tuple[str, ...], str],
    explain: bool,
) -> Iterator[GeneratorRequest]:
    receipts = sorted({one.receipt for of_direction in filters.values() for one in of_direction})
    for direction, of_direction in filters.items():
        yield GeneratorRequest(
            script=str(script),
            direction=direction,
            native=tuple(sorted(native)),
            archs=next(iter(folders)),
            folders=tuple(folders.items()),
            filters=tuple(of_direction),
            kernels=tuple(one for one in selection.kernels if one.config.direction == direction),
            dropped=direction in selection.drop_directions,
            explain=explain,
            keep_unreachable=selection.keep_unreachable,
            origin=f"receipt {', '.join(map(str, receipts))}",
        )


def _answer(cached: AnswerCache, request: GeneratorRequest) -> GeneratorAnswer:
    question = {"kind": "CK's generator", "request": request.to_json()}
    run = partial(_run_generator, request)
    return cached.find_read(question, run, GeneratorAnswer.from_json)


def _run_generator(request: GeneratorRequest) -> bytes:
    place = f"CK's generate.py, direction {request.direction}"
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        cwd, scratch, file = root / "cwd", root / "out", root / "request.json"
        answer, refused = root / "answer", root / "refused"
        cwd.mkdir()
        scratch.mkdir()
        file.write_text(replace(request, scratch=str(scratch)).to_json(), encoding="utf-8")
        run_module("qola.codegen.ck.driver", [str(file)], cwd=cwd, place=place)
        if refused.is_file():
            raise CodegenError(Finding(place, **json.loads(refused.read_text(encoding="utf-8"))))
        if not answer.is_file():
            found = "exit code 0 before it had generated anything: os._exit, or a signal"
            raise CodegenError(Finding(place, found, "a generator that returns or calls sys.exit"))
        if stray := sorted(path.name for path in cwd.rglob("*")):
            found = f"unexpected files in the working folder: {', '.join(stray)}"
            raise CodegenError(Finding(place, found, "files in the output folder only"))
        return answer.read_bytes()


def _check_variants(
    filters: Filters,
    answers: Answers,
    served_by_asm: Mapping[int, Collection[Bucket]],
) -> None:
    """Check that every variant, and every head dim of it, has a kernel in some direction.

    Assembly kernels count if all architectures have them; they serve some problems that CK's
    kernels do not.
    """
    findings = []
    have = sorted({bucket for answer in answers.values() for bucket in answer.buckets})
    by_index = {name: {f.index: f for f in answer.filters} for name, answer in answers.items()}
    for variant in next(iter(filters.values()), ()):
        if variant.index < 0:
            continue
        in_asm = served_by_asm.get(variant.index)
        effects = {name: found[variant.index] for name, found in by_index.items()}
        if not any(effect.rows for effect in effects.values()):
            if in_asm is not None and set(variant.hdims or ()) <= set(in_asm):
                continue
            reasons = [
                f"{direction}: {line}"
                for direction, effect in effects.items()
                for line in effect.blame
            ]
            findings.append(
                Finding(
                    variant.place,
                    "selects no kernel:\n" + "\n".join(reasons),
                    "a combination that the CK at hand has kernels for",
                    "write values that kernels named above have, or remove the variant",
                )
            )
            continue
        unserved = set.intersection(*(set(effect.unserved) for effect in effects.values()))
        findings += [
            Finding(
                f"{variant.place}.hdim",
                f"{q}x{v}, which no kernel of receipt {variant.receipt} serves",
                f"up to one of {', '.join(f'{a}x{b}' for a, b in have)}",
            )
            for q, v in sorted(unserved.difference(in_asm or ()))
        ]
    if findings:
        raise CodegenError(findings, "a variant cannot be satisfied")


def _check_levels(
    answers: Answers, filters: Filters, native: Sequence[int], least: str
) -> list[Finding]:
    """Return warnings about fields that no variant can name.

    Args:
        native: receipts that CK itself knows.

    Raises:
        CodegenError: a direction does not reach the `least` level, or a variant or receipt names a
            field that the kernels do not have.
    """
    findings = [
        Finding(
            f"direction {name}",
            f"level {answer.direction.level}: {answer.direction.reason}",
            f"level {least}",
            "use an AITER whose Composable Kernel reaches it, or require less",
        )
        for name, answer in answers.items()
        if LEVELS.index(answer.direction.level) < LEVELS.index(least)
    ]
    if findings:
        raise CodegenError(findings, "a required level is not reached")
    filtered = {
        name: answer
        for name, answer in answers.items()
        if answer.direction.level == "filtered" and answer.direction.rows
    }
    findings = [
        *_unknown_in_rules(filtered, filters, native),
        *_unknown_in_variants(filtered, filters),
    ]
    if findings:
        raise CodegenError(findings, "a field that no kernel has")
    return [
        Finding(
            f"direction {name}",
            f"kernels differ in {field}, which no variant can name: those of all values "
            f"({', '.join(values)}) are kept",
            "fields that this qola knows",
            severity="warning",
        )
        for name, answer in filtered.items()
        for field, values in answer.unknown.items()
    ]


def _check_added(filters: Filters, answers: Answers, selection: Selection) -> None:
    """Check that each of `add_directions` has kernels."""
    findings = []
    for direction in sorted(selection.add_directions):
        answer = answers[direction]
        # Filters do not count requested kernels.
        if any(one.rows for one in answer.filters) or answer.kernels:
            continue
        reasons = [
            f"{variant.place}: {line}"
            for variant in filters[direction]
            for line in answer.filter(variant.index).blame
        ]
        findings.append(
            Finding(
                selection.place("add_directions"),
                f"{direction}, of which no kernel is kept:\n" + "\n".join(reasons),
                "a receipt and variants that keep a kernel of it",
                f"write values that kernels named above have, or take {direction} out",
            )
        )
    if findings:
        raise CodegenError(findings, "a direction that is added has no kernels")


def _unknown_in_variants(filtered: Answers, filters: Filters) -> Iterator[Finding]:
    """Find fields of variants that no kernel of any direction has."""
    have = {field for answer in filtered.values() for field in answer.fields}
    unknown = {field for answer in filtered.values() for field in answer.unknown}
    for variant in next(iter(filters.values())) if filtered else ():
        for name, allowed in variant.where.items():
            if _untestable(name, allowed, have, unknown):
                yield _unknown_field(f"{variant.place}.{name}", name, allowed, have, unknown)


def _unknown_in_rules(
    filtered: Answers, filters: Filters, native: Sequence[int]
) -> Iterator[Finding]:
    """Find fields of receipts' rules that no kernel of the direction has."""
    for direction, answer in filtered.items():
        have, unknown = set(answer.fields), set(answer.unknown)
        for receipt, label in {one.receipt: one.place for one in filters[direction]}.items():
            made = emulated(receipt, native)
            for name, allowed in (made.rules[direction] or {}).items() if made else ():
                if _untestable(name, allowed, have, unknown):
                    place = f"{label}, rule of receipt {receipt} for direction {direction}"
                    yield _unknown_field(place, name, allowed, have, unknown)


def _untestable(name: str, allowed: Sequence[Any], have: set[str], unknown: set[str]) -> bool:
    """Whether kernels cannot be selected by a field.

    A kernel without a field such as sink has no sinks, unless one of the unknown fields means it.
    """
    if name in have:
        return False
    return name not in WITHOUT or (bool(unknown) and {True, False} > set(allowed))


def _unknown_field(
    place: str, name: str, allowed: Sequence[Any], have: set[str], unknown: set[str]
) -> Finding:
    but = f"; fields that this qola does not know: {', '.join(sorted(unknown))}" if unknown else ""
    return Finding(
        place,
        f"{name} {' or '.join(map(show, allowed))}, but no kernel has the field {name}{but}",
        f"a field of this CK's kernels: {', '.join(sorted(have))}",
        "use another receipt or variant, or an AITER whose Composable Kernel has it",
    )
