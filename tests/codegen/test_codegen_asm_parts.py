"""Assembly (v3) tables and the problems that variants select, without an AITER tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from qola.codegen.asm.domain import domain_header, v3_bucket
from qola.codegen.asm.embed import AsmKernel, fits, read_calls, read_rows
from qola_base.errors import CodegenError
from tests.codegen.generating import variants_of

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
