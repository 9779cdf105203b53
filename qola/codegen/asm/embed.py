"""The assembly (v3) path of AITER 0.1.7: host sources, helper kernels and embedded code objects.

The generators of AITER from 2025-11 (wheel 0.1.7.post2.dev18) write C++ that has a `FmhaFwdV3Buf`
or `FmhaBwdV3Buf` specialisation per row of a table, and the dispatch. A row says which .co file
serves which problems.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qola.aiter.attention import attention_of
from qola.aiter.tree import ARCH_TOKEN, AiterTree, GeneratorCall
from qola.codegen.asm.domain import Variant, serves_any, v3_bucket
from qola.codegen.asm.script import run_script, write_source
from qola.codegen.asm.set import AsmSet, code_object, compare_files
from qola.codegen.types import FieldValue, GeneratedSource, KernelInstance
from qola.common.folder import Folder
from qola_base.errors import CodegenError, Finding
from qola_base.files import sha256_of

#: Subfolders by compute units: 304 have an MI300, 80 or 64 an MI308.
_BY_UNITS = {("gfx942", "fwd"): ("MI300/", "MI308/")}
_DTYPES = {"FwdBf16": "bf16", "FwdFp16": "fp16", "BwdBf16": "bf16", "BwdFp16": "fp16"}
#: A forward selector has one head dim for both; 192 stands for 192x128 in the dispatch.
_FWD_HDIM_V = {64: 64, 128: 128, 192: 128}

_ROW = re.compile(
    r"^template<> struct Fmha(?:Fwd|Bwd)V3Buf<\w+<(?P<traits>[^<>]*)>> "
    r'\{[^"\n]*= "(?P<file>[^"\n]+)"; \}',
    re.MULTILINE,
)
_FWD_CALL = re.compile(r"using fmha_fwd_kernel = fmha_fwd_kernel_selector<(?P<traits>[^<>]*)>;")
_BWD_STEP = re.compile(
    r"using (?P<name>dot_do_o_trait_|dq_dk_dv_v3_traits_|convert_dq_trait_) = "
    r"(?P<type>\w+)<(?P<traits>[^<>]*)>;|r = (?P<call>fmha_bwd_v3_\w*)<(?P<names>[^<>]*)>\("
)


@dataclass(frozen=True)
class AsmKernel:
    """One row of a v3 configuration table: a code object and the problems it is for.

    Attributes:
        file: tree-relative path of the .co file, which may be missing.
    """

    file: str
    arch: str
    direction: str
    dtype: str
    hdim_q: int
    hdim_v: int
    mode: str
    mask: bool


@dataclass(frozen=True)
class AsmCall:
    """One launch in a v3 dispatch.

    Attributes:
        kernels: the code objects that it may load, all for the same problems; the first ones
            differ only by compute units.
        helpers: C++ traits types of the helper kernels.
    """

    kernels: tuple[AsmKernel, ...]
    helpers: tuple[str, ...] = ()


def read_rows(text: str, folder: str) -> tuple[AsmKernel, ...]:
    """Return the rows of the table in a generator's text, in order; rows may share a code object.

    Args:
        text: the generator, or the C++ it writes.
        folder: tree-relative directory of the .co files, ``hsa/<arch>/fmha_v3_<direction>``.
    """
    return tuple(
        kernel
        for match in _ROW.finditer(text)
        for kernel in _kernels(match["traits"], match["file"], folder)
    )


def read_calls(text: str, folder: str) -> tuple[AsmCall, ...]:
    """Return the launches of a dispatch, in order.

    Raises:
        CodegenError: the table lacks the row of a launch, or nothing is launched.
    """
    is_fwd = folder.endswith("_fwd")
    files = {_traits(m["traits"], is_fwd): m["file"] for m in _ROW.finditer(text)}

    def kernels(traits: str) -> tuple[AsmKernel, ...]:
        file = files.get(_traits(traits, is_fwd))
        if file is None:
            raise _not_understood(folder, f"a launch for <{traits}> without a table row")
        return _kernels(traits, file, folder)

    if is_fwd:
        calls = [AsmCall(kernels(match["traits"])) for match in _FWD_CALL.finditer(text)]
    else:
        calls = []
        types: dict[str, tuple[str, str]] = {}
        for step in _BWD_STEP.finditer(text):
            if step["name"]:
                if step["name"] == "dq_dk_dv_v3_traits_" and step["name"] in types:
                    found = f"traits <{types[step['name']][1]}> that nothing launches"
                    raise _not_understood(folder, found)
                types[step["name"]] = (step["type"], step["traits"])
                continue
            names = [name.strip() for name in step["names"].split(",")]
            blobs = kernels(types.pop("dq_dk_dv_v3_traits_")[1])
            if step["call"].endswith("_gfx950") and "convert_dq_trait_" not in names:
                # The kernel that reorders dq, named as in `dq_shuffle_traits_`.
                group = "_group" if blobs[0].mode == "group" else ""
                file = f"{folder}/bwd_hd{blobs[0].hdim_q}_dq_shuffle{group}.co"
                blobs += (replace(blobs[0], file=file),)
            helpers = (helper_type(*types[name]) for name in names if name in types)
            calls.append(AsmCall(blobs, tuple(helpers)))
        if "dq_dk_dv_v3_traits_" in types:
            raise _not_understood(folder, "traits at its end that nothing launches")
    if not calls:
        raise _not_understood(folder, "no launch")
    return tuple(dict.fromkeys(calls))


def helper_type(name: str, traits: str) -> str:
    """Return a traits type as C++ writes it, always with the same spaces."""
    return f"{name}<{', '.join(part.strip() for part in traits.split(','))}>"


def _kernels(traits: str, name: str, folder: str) -> tuple[AsmKernel, ...]:
    *_, arch, subdir = folder.split("/")
    direction = subdir[-3:]
    parts = _traits(traits, direction == "fwd")
    if direction == "fwd":
        dtype, hdim_q, mask = parts[0], int(parts[1]), parts[2]
        hdim_v = _FWD_HDIM_V.get(hdim_q, hdim_q)
    else:
        hdim_q, hdim_v, dtype, mask = int(parts[0]), int(parts[1]), *parts[2:4]
    return tuple(
        AsmKernel(
            file=f"{folder}/{units}{name}",
            arch=arch,
            direction=direction,
            dtype=_DTYPES[dtype.removeprefix("Fmha")],
            hdim_q=hdim_q,
            hdim_v=hdim_v,
            mode="group" if parts[8] == "1" else "batch",
            mask=mask != "0",
        )
        for units in _BY_UNITS.get((arch, direction), ("",))
    )


def _traits(text: str, is_fwd: bool) -> tuple[str, ...]:
    """Return template arguments with defaults filled in and booleans as numbers."""
    parts = [part.strip() for part in text.split(",")]
    if is_fwd:
        parts += ["1", "false"][len(parts) - 7 :]
    return tuple({"false": "0", "true": "1"}.get(part, part) for part in parts)


def _not_understood(folder: str, found: str) -> CodegenError:
    expected = "tables and dispatch as AITER 0.1.7 has them"
    fix = "extend qola/codegen/asm/embed.py"
    return CodegenError(Finding(f"{folder}/codegen.py", found, expected, fix))


def fits(variant: Variant, kernel: AsmKernel) -> bool:
    """Whether a kernel serves a problem of the variant."""
    own = (kernel.hdim_q, kernel.hdim_v)
    return (
        serves_any(variant)
        and (variant.dtype is None or kernel.dtype in variant.dtype)
        and kernel.mode in variant.mode
        and kernel.mask in variant.mask
        and (
            variant.hdim is None
            or any(v3_bucket(kernel.direction, q, v) == own for q, v in variant.hdim)
        )
    )


PATCHES = Path(__file__).with_name("patches")
"""Patches that make AITER's v3 generators embed their kernels, and pins.json."""


def _patched_copy(root: Path, script: str, place: str, into: Path) -> Path | Finding:
    """Copy a generator into a directory, and apply the patch that is pinned for its digest.

    Returns a warning if no patch is known for the script.
    """
    pins = json.loads((PATCHES / "pins.json").read_text(encoding="utf-8")).get(script, {})
    digest = sha256_of(root / script)
    if digest not in pins:
        return Finding(
            place,
            f"sha256 {digest}, for which qola has no patch that embeds its kernels: "
            "assembly (v3) kernels are off, and such problems go to CK",
            f"a version it has one for: {', '.join(pins) or 'none'}",
            "use the AITER that qola pins, or add a patch: qola/codegen/asm/patches/README.md",
            "warning",
        )
    copy = into / script
    copy.parent.mkdir(parents=True, exist_ok=True)
    text = (root / script).read_text(encoding="utf-8")
    copy.write_text(_patched(text, PATCHES / pins[digest]["patch"]), encoding="utf-8")
    return copy


def _patched(text: str, patch: Path) -> str:
    """Apply a patch of one file to the text that it was made for: each hunk at its own lines."""
    # Not at the top: generators run in a process that sees no third-party package.
    from unidiff.patch import PatchSet  # noqa: PLC0415

    (change,) = PatchSet.from_string(patch.read_text(encoding="utf-8"))
    lines = text.splitlines(keepends=True)
    for hunk in reversed(change):
        place = slice(hunk.source_start - 1, hunk.source_start - 1 + hunk.source_length)
        if lines[place] != [line.value for line in hunk.source_lines()]:
            where = f"qola/codegen/asm/patches/{patch.name}"
            raise CodegenError(Finding(where, f"other lines than {hunk}", "those of the script"))
        lines[place] = [line.value for line in hunk.target_lines()]
    return "".join(lines)


_TRAIT = re.compile(
    r"using (?:dot_do_o|convert_dq)_trait_\d+\s*=\s*"
    r"(?P<type>fmha_bwd_(?P<role>\w+)_traits_)<(?P<traits>[^<>]*)>;"
)
_FIELDS = {
    "dot_do_o": ("hdim_v", "dtype", "mode", "spad", "dvpad"),
    "convert_dq": ("hdim_q", "dtype", "mode", "spad", "dpad", "deterministic", "bn0"),
}
_VALUES: Mapping[str, FieldValue] = {
    "FmhaBwdBf16": "bf16",
    "FmhaBwdFp16": "fp16",
    "true": True,
    "false": False,
}

_STUBS = """\
// Generated by qola: helper kernels that AITER's v3 dispatch names and the manifest's
// variants leave out. qola_asm_serves turns their problems away; without these the
// library does not link. Make it again: qola plan (qola/codegen/asm/embed.py).
#include "mha_bwd.h"
#include "qola_asm.h"

namespace {{

[[noreturn]] void not_planned(const char* kernel)
{{
    throw qola_asm::Error(std::string(kernel) + ": not planned: no variant of the manifest has it");
}}

}} // namespace

{functions}"""
_STUB = """\
template <>
void fmha_bwd_{role}_oneshot_<{type}>(const ck_tile::stream_config&, fmha_bwd_args)
{{
    not_planned("{type}");
}}

template <>
std::string fmha_bwd_{role}_get_name_<{type}>()
{{
    not_planned("{type}");
}}
"""


@dataclass(frozen=True)
class Helper:
    """A helper kernel that AITER's generator wrote; a dispatch calls it by its traits type."""

    name: str
    type: str
    role: str
    fields: Mapping[str, FieldValue]
    data: bytes

    def instance(self, archs: Sequence[str], variants: Iterable[int]) -> KernelInstance:
        """Describe it as a kernel instance. AITER's source is for any architecture."""
        return KernelInstance(
            name=self.name,
            direction="bwd",
            role=f"asm_{self.role}",
            archs=tuple(sorted(archs)),
            sha256=hashlib.sha256(self.data).hexdigest(),
            fields=dict(sorted(self.fields.items())),
            variants=tuple(sorted(index for index in variants if index >= 0)),
        )


def _read_helper(name: str, data: bytes, place: str) -> Helper:
    match = _TRAIT.search(data.decode())
    if match is None or match["role"] not in _FIELDS:
        expected = f"one of {', '.join(_FIELDS)}"
        fix = "extend qola/codegen/asm/embed.py"
        found = "not a helper kernel of a v3 kernel"
        raise CodegenError(Finding(f"{place}: {name}", found, expected, fix))
    values = [part.strip() for part in match["traits"].split(",")]
    read = [_VALUES[value] if value in _VALUES else int(value) for value in values]
    fields = dict(zip(_FIELDS[match["role"]], read, strict=True))
    fields["mode"] = "group" if fields["mode"] else "batch"
    type_ = helper_type(match["type"], match["traits"])
    return Helper(name.removesuffix(".cpp"), type_, match["role"], fields, data)


def unplanned_source(types: Iterable[str]) -> str:
    """Return C++ that defines throwing helper kernels, for traits types without a variant."""
    return _STUBS.format(
        functions="\n".join(
            _STUB.format(role=type_.partition("_traits_<")[0].removeprefix("fmha_bwd_"), type=type_)
            for type_ in sorted(types)
        )
    )


_HELPERS = "/csrc/py_itfs_cu/fmha_bwd_pre_post_kernel_generate.py"


def generate_asm(
    tree: AiterTree,
    module_name: str,
    calls: Sequence[GeneratorCall],
    archs: Sequence[str],
    variants: Sequence[Variant],
    out_dir: Folder,
) -> AsmSet:
    """Generate the v3 path of a module for the problems of its variants; () stands for all.

    Args:
        calls: the module's generators of the v3 path.
        out_dir: gets ``dispatch/`` and ``kernels/``.

    Raises:
        CodegenError: a generator fails, or tables or helpers have an unknown form.
    """
    direction = attention_of(module_name).direction
    own = f"/hsa/{ARCH_TOKEN}/fmha_v3_{direction}/codegen.py"
    findings = [_unserved(c) for c in calls if not f"/{c.script}".endswith((own, _HELPERS))]
    sources: list[GeneratedSource] = []
    launches: dict[str, tuple[AsmCall, ...]] = {}
    for call in (c for c in calls if f"/{c.script}".endswith(own)):
        for arch in sorted(set(archs)):
            files = _dispatch(tree, call, arch)
            if isinstance(files, Finding):
                findings.append(files)
                continue
            folder = f"{tree.hsa_dir}/{arch}/fmha_v3_{direction}"
            found = [c for data in files.values() for c in read_calls(data.decode(), folder)]
            if not any(_keepers(launch, variants) for launch in found):
                continue
            launches[arch] = tuple(found)
            for name, data in files.items():
                made = write_source(out_dir, f"dispatch/{name}", data, direction, "asm")
                sources.append(replace(made, archs=(arch,)))
            findings += integrity(tree, folder)
    everything = [launch for found in launches.values() for launch in found]
    wanted = [launch for launch in everything if _keepers(launch, variants)]
    kernels, stubs = _helpers(tree, calls, everything, wanted, variants, archs, out_dir)
    rows = sorted({k.file: k for launch in wanted for k in launch.kernels}.items())
    present = {file for file, _ in rows if (tree.root / file).is_file()}
    return AsmSet(
        archs=tuple(launches),
        sources=tuple(sources),
        kernels=kernels,
        stubs=stubs,
        code_objects=tuple(code_object(tree, f, k.arch) for f, k in rows if f in present),
        served=_served([launches.get(arch, ()) for arch in archs], variants, direction),
        findings=(*findings, *(_lost(file) for file, _ in rows if file not in present)),
    )


def integrity(tree: AiterTree, folder: str) -> Iterator[Finding]:
    """Compare the table of a v3 generator with the .co files in its folder."""
    script = f"{folder}/codegen.py"
    text = tree.text(script)
    launched = [kernel for call in read_calls(text, folder) for kernel in call.kernels]
    named = {kernel.file for kernel in (*read_rows(text, folder), *launched)}
    return compare_files(tree, folder, [script], named)


def _dispatch(tree: AiterTree, call: GeneratorCall, arch: str) -> dict[str, bytes] | Finding:
    """Run the patched generator of an architecture, or return the reason why it cannot run."""
    place = call.script.replace(ARCH_TOKEN, arch)
    script = place.removeprefix(f"{tree.meta_dir}/") if tree.meta_dir else place
    root = tree.root / tree.meta_dir
    if not (root / script).is_file():
        return Finding(
            place,
            f"no such file: this AITER has no assembly (v3) kernels for {arch}",
            "a generator for each architecture, or none of it served by v3",
            severity="warning",
        )
    with tempfile.TemporaryDirectory() as name:
        copy = _patched_copy(root, script, place, Path(name))
        return copy if isinstance(copy, Finding) else run_script(copy, call.args, place)


def _keepers(launch: AsmCall, variants: Sequence[Variant]) -> list[int]:
    """Return the indices of the variants that select a launch; [-1] without variants."""
    if not variants:
        return [-1]
    return [v.index for v in variants if fits(v, launch.kernels[0])]


def _served(
    launches: Iterable[Sequence[AsmCall]], variants: Sequence[Variant], direction: str
) -> dict[int, frozenset[tuple[int, int]]]:
    """Return the head dims of each variant for which every architecture has a launch."""
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
    named = {helper for launch in everything for helper in launch.helpers}
    keepers: dict[str, set[int]] = {}
    for launch in wanted:
        for helper in launch.helpers:
            keepers.setdefault(helper, set()).update(_keepers(launch, variants))
    helpers: dict[str, Helper] = {}
    for call in (c for c in calls if named and f"/{c.script}".endswith(_HELPERS)):
        for name, data in run_script(tree.root / call.script, call.args, call.script).items():
            made = _read_helper(name, data, call.script)
            helpers[made.type] = made
    if lacking := sorted(keepers.keys() - helpers.keys()):
        found = f"launches with {', '.join(lacking)}"
        expected = "kernels that fmha_bwd_pre_post_kernel_generate.py writes"
        raise CodegenError(Finding("fmha_v3_bwd dispatch", found, expected))
    kernels = []
    for type_ in sorted(keepers, key=lambda t: helpers[t].name):
        kernels.append(helpers[type_].instance(archs, keepers[type_]))
        write_source(out_dir, kernels[-1].file, helpers[type_].data, "bwd", "asm")
    if not (unplanned := named - keepers.keys()):
        return tuple(kernels), ()
    text = unplanned_source(unplanned).encode()
    return tuple(kernels), (
        write_source(out_dir, "dispatch/asm_unplanned.cpp", text, "bwd", "asm"),
    )


def _lost(file: str) -> Finding:
    return Finding(
        file,
        "no such file, though the v3 dispatch loads it: a problem that comes to it fails",
        "every code object that a dispatch loads",
        "call with use_ext_asm = false for such problems",
        "warning",
    )


def _unserved(call: GeneratorCall) -> Finding:
    return Finding(
        f"{call.script} {' '.join(call.args)}",
        "a v3 generator that qola cannot make embed its kernels: assembly (v3) kernels are "
        "off, and such problems go to CK",
        "hsa/<arch>/fmha_v3_*/codegen.py, as AITER 0.1.7 has it",
        severity="warning",
    )
