"""AITER's assembly (v3) path: tables, sources, helper kernels, code objects, and integrity."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from qola.aiter.tree import AiterTree, GeneratorCall, read_tree
from qola.codegen.asm import embed
from qola.codegen.asm.domain import domain_header, v3_bucket
from qola.codegen.asm.embed import (
    PATCHES,
    AsmKernel,
    fits,
    generate_asm,
    integrity,
    read_calls,
    read_rows,
    unplanned_source,
)
from qola.codegen.asm.script import generate_entry
from qola.codegen.asm.set import AsmSet
from qola.common.folder import Folder
from qola_base.errors import CodegenError, QolaError
from tests.codegen.generating import BOTH, variants_of

#: Selects head dim 96, bf16, batch mode, no mask. AITER pads the problem to head dim 128.
SMALL = (
    '[[mha_bwd_variants]]\ndtype = "bf16"\nhdim = 96\nmode = "batch"\nhas_mask = false\n'
    "has_dropout = false\n"
)


@pytest.fixture(scope="module")
def tree(aiter_tree: Path) -> AiterTree:
    return read_tree(aiter_tree)


@pytest.fixture
def changeable(tree: AiterTree, tmp_path: Path) -> AiterTree:
    """Return a writable copy of the files of the real tree that the v3 path reads."""
    root = tmp_path / "tree"
    for part in ("include", "py_itfs_cu", "cpp_itfs"):
        shutil.copytree(tree.root / tree.csrc_dir / part, root / tree.csrc_dir / part)
    for arch in BOTH:
        for part in ("fmha_v3_fwd", "fmha_v3_bwd"):
            folder = f"{tree.hsa_dir}/{arch}/{part}"
            shutil.copytree(tree.root / folder, root / folder)
    (root / tree.fmha_dir).mkdir(parents=True)
    shutil.copyfile(tree.root / tree.fmha_dir / "generate.py", root / tree.fmha_dir / "generate.py")
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return replace(tree, root=root)


def v3_calls(tree: AiterTree, module: str) -> list[GeneratorCall]:
    parts = ("/fmha_v3_fwd/codegen.py", "/fmha_v3_bwd/codegen.py", "_pre_post_kernel_generate.py")
    return [call for call in tree.module(module).generators if call.script.endswith(parts)]


def run(
    tree: AiterTree,
    out: Path,
    module: str,
    tables: str = "",
    archs: Sequence[str] = BOTH,
    calls: Sequence[GeneratorCall] | None = None,
) -> AsmSet:
    calls = v3_calls(tree, module) if calls is None else calls
    return generate_asm(tree, module, calls, archs, variants_of(tables, module), Folder(out))


def test_all_forward_kernels(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a forward kernel without its code object for MI300, MI308 or gfx950."""
    asm = run(tree, tmp_path, "libmha_fwd")
    assert asm.archs == BOTH
    assert [s.file for s in asm.sources] == [f"dispatch/asm_fmha_fwd_v3_{a}.cpp" for a in BOTH]
    assert {s.role for s in asm.sources} == {"asm"}
    folders = Counter(co.key.rpartition("/")[0] for co in asm.code_objects)
    assert folders == {
        "hsa/gfx942/fmha_v3_fwd/MI300": 12,
        "hsa/gfx942/fmha_v3_fwd/MI308": 12,
        "hsa/gfx950/fmha_v3_fwd": 8,
    }
    assert (asm.kernels, asm.stubs) == ((), ())


def test_all_backward_kernels(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a backward launch without its code object or its helper kernels."""
    asm = run(tree, tmp_path, "libmha_bwd")
    assert Counter(co.arch for co in asm.code_objects) == {"gfx942": 120, "gfx950": 95}
    assert sum("dq_shuffle" in co.key for co in asm.code_objects) == 3
    # AITER's generator writes 96 helper kernels, of which launches use these 44.
    assert Counter(k.role for k in asm.kernels) == {"asm_dot_do_o": 22, "asm_convert_dq": 22}
    assert asm.stubs == ()
    assert all(k.archs == BOTH and k.variants == () for k in asm.kernels)
    assert [k.name for k in asm.kernels] == sorted(k.name for k in asm.kernels)


_NAME = re.compile(r"^template<> struct Fmha\w+V3Name<\w+<(.*?)>>.*?\"(\w+)\"", re.MULTILINE)
_BUF = re.compile(r"^template<> struct Fmha\w+V3Buf<\w+<(.*?)>>.*?\"([\w.]+)\"", re.MULTILINE)


@pytest.mark.parametrize("module", ["libmha_fwd", "libmha_bwd"])
def test_code_objects_contain_their_kernels(tree: AiterTree, tmp_path: Path, module: str) -> None:
    """Prevents: a code object under a wrong key, for which hipModuleGetFunction fails."""
    asm = run(tree, tmp_path, module)
    files = {co.key: (tree.root / co.file).read_bytes() for co in asm.code_objects}
    loaded_keys = set()
    for source in asm.sources:
        text = (tmp_path / source.file).read_text()
        arch = source.name.removesuffix(".cpp").rpartition("_")[2]
        names = {re.sub(r"\s", "", traits): name for traits, name in _NAME.findall(text)}
        for traits, file in _BUF.findall(text):
            name = names[re.sub(r"\s", "", traits)]
            for key in (
                k for k in files if k.startswith(f"hsa/{arch}/") and k.endswith(f"/{file}")
            ):
                loaded_keys.add(key)
                assert f"_ZN5aiter{len(name)}{name}E".encode() in files[key]
    assert {key for key in files if "dq_shuffle" not in key} == loaded_keys


def test_api_check_needs_the_embedded_code_object(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a positive v3 API check for a code object that AITER does not ship."""
    (source,) = (s for s in run(tree, tmp_path, "libmha_bwd").sources if "gfx950" in s.name)
    text = (tmp_path / source.file).read_text()
    probes = re.findall(r"if *\(is_v3_api_check\)[\s{]*return ([^;]*);", text)
    file = "FmhaBwdV3Buf<dq_dk_dv_v3_traits_>::file_name"
    found = f'qola_asm::find(std::string("hsa/gfx950/fmha_v3_bwd/") + {file}) ? 1 : -1'
    assert probes == [found] * 86


@pytest.mark.parametrize("module", ["libmha_fwd", "libmha_bwd"])
def test_sources_load_embedded_code_objects(tree: AiterTree, tmp_path: Path, module: str) -> None:
    """Prevents: AITER_ASM_DIR read, a call of exit(), or code objects of the wrong GPU."""
    before = {p: p.read_bytes() for p in (tree.root / tree.hsa_dir).rglob("codegen.py")}
    for source in run(tree, tmp_path, module).sources:
        text = (tmp_path / source.file).read_text()
        arch = source.name.removesuffix(".cpp").rpartition("_")[2]
        for removed in ("getenv", "AITER_ASM_DIR", "hipModuleLoad(", "get_num_cu_func", "exit("):
            assert removed not in text
        head = f'#include "mha_{source.direction}.h"\n#include "qola_asm.h"\n'
        assert head in text
        classes = text.count("HIP_CALL(hipModuleGetFunction(")
        assert classes == (2 if source.name == "asm_fmha_bwd_v3_gfx950.cpp" else 1)
        assert text.count("qola_asm::load(&module, key + hsaco);") == classes
        key = f'std::string key = "hsa/{arch}/fmha_v3_{source.direction}/";'
        assert text.count(key) == classes
        both = source.name == "asm_fmha_fwd_v3_gfx942.cpp"
        assert text.count("throw qola_asm::NotEmbedded(") == both
    assert {p: p.read_bytes() for p in before} == before


def test_patches_fit_the_pinned_wheel(tree: AiterTree) -> None:
    """Prevents: v3 kernels disabled by a new AITER pin, or patches that differ from pins.json."""
    pins = json.loads((PATCHES / "pins.json").read_text())
    patches = {pin["patch"] for versions in pins.values() for pin in versions.values()}
    assert patches == {path.name for path in PATCHES.glob("*.patch")}
    for script, versions in pins.items():
        data = (tree.root / tree.meta_dir / script).read_bytes()
        assert hashlib.sha256(data).hexdigest() in versions


def test_variants_select_code_objects(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: megabytes of code objects that no problem of the manifest uses."""
    asm = run(tree, tmp_path, "libmha_bwd", SMALL)
    assert Counter(co.arch for co in asm.code_objects) == {"gfx942": 12, "gfx950": 3}
    names = {co.key.rpartition("/")[2] for co in asm.code_objects}
    assert {name.startswith("bwd_hd128_bf16_a") or "dq_shuffle" in name for name in names} == {True}
    fields = [dict(k.fields) for k in asm.kernels]
    assert len(fields) == 8
    assert all(f["dtype"] == "bf16" and f["mode"] == "batch" for f in fields)
    assert {k.variants for k in asm.kernels} == {(0,)}


def test_omitted_helper_kernels_have_stubs(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a link error because the dispatch calls helper kernels that are not planned."""
    everything = run(tree, tmp_path / "all", "libmha_bwd")
    asm = run(tree, tmp_path / "small", "libmha_bwd", SMALL)
    (stub,) = asm.stubs
    text = (tmp_path / "small" / stub.file).read_text()
    assert stub.file == "dispatch/asm_unplanned.cpp"
    assert text.count("_oneshot_<") == text.count("_get_name_<") == len(everything.kernels) - 8
    stub_lines = {line.strip() for line in text.splitlines() if "not_planned(" in line}
    assert any(
        "fmha_bwd_dot_do_o_traits_<256, FmhaBwdFp16, true, true, true>" in n for n in stub_lines
    )
    assert not any("<128, FmhaBwdBf16, false" in n for n in stub_lines)


def test_stubs_are_golden(repo_root: Path) -> None:
    """Prevents: unnoticed changes of stubs."""
    types = [
        "fmha_bwd_dot_do_o_traits_<64, FmhaBwdBf16, true, true, false>",
        "fmha_bwd_convert_dq_traits_<128, FmhaBwdFp16, false, true, true, false, 0>",
    ]
    golden = repo_root / "tests/golden/asm/asm_unplanned.cpp"
    assert unplanned_source(types) == golden.read_text()


def test_v3_is_off_without_kernels(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a v3 dispatch compiled and called for problems that it never serves."""
    # The forward v3 kernels have head dims 128 and [192, 128].
    variant = '[[mha_fwd_variants]]\ndtype = "bf16"\nhdim = 64\n'
    assert run(tree, tmp_path, "libmha_fwd", variant) == AsmSet()
    assert list(tmp_path.iterdir()) == []


def test_v3_is_off_for_a_single_arch(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: v3 called on gfx942 for [192, 128], which only gfx950 supports."""
    asm = run(tree, tmp_path, "libmha_fwd", "[[mha_fwd_variants]]\nhdim = [[192, 128]]\n")
    assert asm.archs == ("gfx950",)
    assert [s.name for s in asm.sources] == ["asm_fmha_fwd_v3_gfx950.cpp"]
    assert len(asm.code_objects) == 4
    assert all("/fwd_hd192_hd128_bf16" in co.key for co in asm.code_objects)


def test_unknown_script_is_off_with_a_warning(changeable: AiterTree, tmp_path: Path) -> None:
    """Prevents: an AITER that reads AITER_ASM_DIR because its script is not patched."""
    script = changeable.root / changeable.hsa_dir / "gfx942/fmha_v3_fwd/codegen.py"
    script.write_text(script.read_text() + "# later\n")
    asm = run(changeable, tmp_path / "out", "libmha_fwd")
    assert asm.archs == ("gfx950",)
    (finding,) = (f for f in asm.findings if f.place.endswith("gfx942/fmha_v3_fwd/codegen.py"))
    assert finding.severity == "warning"
    assert hashlib.sha256(script.read_bytes()).hexdigest() in finding.found
    assert "(v3) kernels are off" in finding.found
    assert "9f918bb37c8a2d31" in finding.expected


def test_patch_that_does_not_apply_is_an_error(
    tree: AiterTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a partially patched source, which crashes when it launches."""
    patches = tmp_path / "patches"
    shutil.copytree(PATCHES, patches)
    patch = patches / "gfx950-fmha_v3_fwd-embedded.patch"
    patch.chmod(0o644)
    patch.write_text(patch.read_text().replace(' #include "mha_fwd.h"', ' #include "mha.h"'))
    monkeypatch.setattr(embed, "PATCHES", patches)
    with pytest.raises(QolaError, match=r"gfx950-fmha_v3_fwd-embedded\.patch"):
        run(tree, tmp_path / "out", "libmha_fwd")


def test_unsupported_v3_is_off_with_a_warning(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a later AITER's script run like the wheel's, or a failed plan for another arch."""
    call = GeneratorCall("hsa/codegen.py", ("-m", "fmha_v3_fwd", "--output_dir", "{}"))
    later = run(tree, tmp_path, "libmha_fwd", calls=[call])
    without_v3 = run(tree, tmp_path, "libmha_bwd", archs=("gfx90a",))
    for asm, place, found in (
        (later, "hsa/codegen.py -m fmha_v3_fwd", "cannot make embed its kernels"),
        (without_v3, "aiter_meta/hsa/gfx90a", "no assembly (v3) kernels for gfx90a"),
    ):
        (finding,) = asm.findings
        assert asm == AsmSet(findings=(finding,))
        assert finding.place.startswith(place)
        assert found in finding.found


def test_missing_code_object_is_a_warning(changeable: AiterTree, tmp_path: Path) -> None:
    """Prevents: a launch that fails at run time without a warning at plan time."""
    name = "bwd_hd128_dq_shuffle.co"
    (changeable.root / changeable.hsa_dir / "gfx950/fmha_v3_bwd" / name).unlink()
    asm = run(changeable, tmp_path / "out", "libmha_bwd")
    assert not any(co.key.endswith(name) for co in asm.code_objects)
    assert [f.place.rpartition("/")[2] for f in asm.findings if "loads it" in f.found] == [name]


def test_integrity_of_the_wheel(tree: AiterTree) -> None:
    """Prevents: table rows without a file, or files without a row, that are not reported."""
    found = {
        (arch, d): tuple(integrity(tree, f"{tree.hsa_dir}/{arch}/fmha_v3_{d}"))
        for arch in BOTH
        for d in ("fwd", "bwd")
    }
    assert found["gfx942", "bwd"] == found["gfx950", "fwd"] == ()
    (unnamed,) = found["gfx942", "fwd"]
    assert "8 code objects (MI300/fwd_hd128_bf16.co, " in unnamed.found
    assert "which no row names" in unnamed.found
    (missing,) = found["gfx950", "bwd"]
    assert missing.severity == "warning"
    assert missing.found.startswith("rows for 8 code objects (bwd_hd128_bf16_a16.co, ")
    assert "bwd_hd192_hd128_fp16_causal_br_a32_pssk.co" in missing.found


@pytest.mark.parametrize(
    ("archs", "calls"),
    [((), []), (("gfx950",), ["gfx950"]), (BOTH, ["gfx942", "gfx950"])],
)
def test_entry_points_call_v3_of_available_archs(
    tree: AiterTree, tmp_path: Path, archs: tuple[str, ...], calls: list[str]
) -> None:
    """Prevents: an entry point that calls the v3 dispatch of an arch without v3 kernels."""
    (tmp_path / "dispatch").mkdir()
    (call,) = (
        c for c in tree.module("libmha_bwd").generators if c.script.endswith("mha_bwd_generate.py")
    )
    (source,) = generate_entry(tree, call, Folder(tmp_path), "bwd", archs)
    text = (tmp_path / source.file).read_text()
    assert [arch for arch in BOTH if f"{arch}::fmha_bwd_v3(" in text] == calls
    assert ("get_gpu_arch()" in text) == (len(archs) == 2)


HSA = "aiter_meta/hsa/gfx942/fmha_v3_fwd"
ROW = (
    "template<> struct FmhaFwdV3Buf<fmha_fwd_kernel_selector<FmhaFwdBf16, 128,      1,      false, "
    "     false,     0,          GPUArch::gfx942, 2,        true>> { static constexpr const char * "
    'fwd_v3_buf = "k.co"; };\n'
)
CALL = (
    "using fmha_fwd_kernel = fmha_fwd_kernel_selector"
    "<FmhaFwdBf16, 128, true, false, false, 0, GPUArch::gfx942, 2, true>;\n"
)


def kernel(
    direction: str = "bwd", hdim: tuple[int, int] = (128, 128), **fields: object
) -> AsmKernel:
    values = {"dtype": "bf16", "mode": "batch", "mask": False, **fields}
    return AsmKernel("f", "gfx942", direction, hdim_q=hdim[0], hdim_v=hdim[1], **values)  # type: ignore[arg-type]


def test_gfx942_forward_row_has_two_kernels() -> None:
    """Prevents: MI308 without kernels, or with the kernels of MI300."""
    mi300, mi308 = read_rows(ROW, HSA)
    assert (mi300.file, mi308.file) == (f"{HSA}/MI300/k.co", f"{HSA}/MI308/k.co")
    fields = (mi300.dtype, mi300.hdim_q, mi300.hdim_v, mi300.mode, mi300.mask)
    assert fields == ("bf16", 128, 128, "group", True)


def test_launches_are_matched_by_value() -> None:
    """Prevents: true and 1, or an omitted default argument, treated as different kernels."""
    (call,) = read_calls(ROW + CALL + CALL, HSA)
    assert [k.file.rpartition("/")[2] for k in call.kernels] == ["k.co", "k.co"]
    short = ROW.replace("gfx942, 2,        true", "gfx942, 1")
    (call,) = read_calls(short + CALL.replace(", 2, true", ""), HSA)
    assert call.kernels[0].mode == "batch"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (ROW, "no launch"),
        ("// " + ROW + CALL, "without a table row"),
        (ROW + CALL.replace(", 2, true", ", 1, true"), "without a table row"),
    ],
)
def test_unknown_launches_are_errors(text: str, part: str) -> None:
    """Prevents: a kernel that is not embedded because its launch is not recognized."""
    with pytest.raises(CodegenError, match=part):
        read_calls(text, HSA)


def test_unknown_backward_launches_are_errors() -> None:
    """Prevents: a backward launch with another syntax in a later AITER that is ignored."""
    row = (
        "template<> struct FmhaBwdV3Buf<fmha_bwd_dq_dk_dv_v3_traits_<64, 64, FmhaBwdBf16, 0, "
        "false, 0, false, false, false, GPUArch::gfx942>> { static constexpr const char * "
        'file_name = "k.co"; };\n'
    )
    using = (
        "using dot_do_o_trait_ = fmha_bwd_dot_do_o_traits_<64, FmhaBwdBf16, false,false, false>;\n"
        "using dq_dk_dv_v3_traits_ = fmha_bwd_dq_dk_dv_v3_traits_"
        "<64, 64, FmhaBwdBf16, false, false, 0, false, false, false, GPUArch::gfx942>;\n"
    )
    launch = "r = fmha_bwd_v3_<dot_do_o_trait_, dq_dk_dv_v3_traits_>(s, a);\n"
    (call,) = read_calls(row + using + launch, "hsa/gfx942/fmha_v3_bwd")
    assert call.helpers == ("fmha_bwd_dot_do_o_traits_<64, FmhaBwdBf16, false, false, false>",)
    for text in (using, using + using + launch, using + launch.replace("r = ", "x = ")):
        with pytest.raises(CodegenError, match="nothing launches"):
            read_calls(row + text, "hsa/gfx942/fmha_v3_bwd")


@pytest.mark.parametrize(
    ("direction", "problem", "bucket"),
    [
        ("fwd", (128, 128), (128, 128)),
        ("fwd", (192, 128), (192, 128)),
        ("fwd", (96, 96), None),
        ("fwd", (192, 192), None),
        ("bwd", (56, 56), None),
        ("bwd", (64, 64), (64, 64)),
        ("bwd", (72, 72), (128, 128)),
        ("bwd", (128, 128), (128, 128)),
        ("bwd", (136, 136), (192, 192)),
        ("bwd", (192, 128), (192, 128)),
        ("bwd", (200, 200), None),
        ("bwd", (128, 64), None),
    ],
)
def test_v3_buckets(
    direction: str, problem: tuple[int, int], bucket: tuple[int, int] | None
) -> None:
    """Prevents: embedded code objects for other head dims than the dispatch selects."""
    assert v3_bucket(direction, *problem) == bucket


def test_fits_checks_every_field() -> None:
    """Prevents: a field of the manifest that does not restrict the embedded kernels."""
    (variant,) = variants_of(
        '[[mha_bwd_variants]]\ndtype = "bf16"\nhdim = 96\nmode = "batch"\nhas_mask = false\n',
        "libmha_bwd",
    )
    assert fits(variant, kernel())
    others = [
        kernel(dtype="fp16"),
        kernel(hdim=(64, 64)),
        kernel(hdim=(192, 128)),
        kernel(mode="group"),
        kernel(mask=True),
    ]
    assert not any(fits(variant, other) for other in others)


@pytest.mark.parametrize(
    "line",
    [
        "has_dropout = true",
        "has_dbias = true",
        "deterministic = true",
        "has_bias = true\nhas_alibi = false",
    ],
)
def test_v3_refuses_problems(line: str) -> None:
    """Prevents: embedded kernels for a variant that v3 does not support."""
    (variant,) = variants_of(f"[[mha_bwd_variants]]\nhdim = 128\n{line}\n", "libmha_bwd")
    assert not fits(variant, kernel())
    assert "if(" not in domain_header("libmha_bwd", [variant])


FWD = (
    '[[mha_fwd_variants]]\ndtype = "bf16"\nhdim = [128, [192, 128], 64]\nhas_lse = true\n'
    '[[mha_fwd_variants]]\nmode = "group"\nhas_mask = true\n'
)
BWD = (
    '[[mha_bwd_variants]]\ndtype = "bf16"\nhdim = [64, 96, [192, 128]]\nmode = "batch"\n'
    '[[mha_bwd_variants]]\ndtype = "fp16"\nhdim = 32\n'
    "[[mha_bwd_variants]]\nhdim = 192\nhas_mask = false\n"
)


@pytest.mark.parametrize(
    ("module", "tables", "golden"),
    [
        ("libmha_fwd", FWD, "domain_fwd.h"),
        ("libmha_bwd", BWD, "domain_bwd.h"),
        # The lines of the manifest are not in it.
        ("libmha_bwd", "\n# comment\n" + BWD, "domain_bwd.h"),
        ("libmha_fwd", "", "domain_fwd_all.h"),
        ("libmha_bwd", "", "domain_bwd_all.h"),
    ],
)
def test_domain_header_is_golden(repo_root: Path, module: str, tables: str, golden: str) -> None:
    """Prevents: v3 called for problems that the manifest does not select, or never called."""
    expected = (repo_root / "tests/golden/asm" / golden).read_text()
    assert domain_header(module, variants_of(tables, module)) == expected
