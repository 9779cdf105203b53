"""Valid manifests: their values, and equality of equivalent manifests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qola.manifest.load import Manifest, load, loads

MODULE = '[[modules]]\nname = "libmha_fwd"\n[[modules]]\nname = "libmha_bwd"\n'


def fwd(text: str) -> Manifest:
    return loads(f"{MODULE}[[mha_fwd_variants]]\n{text}\n", file="m.toml")


def test_every_key_of_rocm_qola_loads() -> None:
    """Prevents: a manifest refused that ROCm/QoLA builds."""
    manifest = loads(
        """
        [qola]
        aiter_commit = "d32b0cb62"
        namespace = "te"
        patches_dir = "patches/aiter"
        rocm_versions = ["7", "7.2"]
        [build]
        architectures = ["gfx950", "gfx942"]
        mode = "pybind"
        [[modules]]
        name = "libmha_fwd"
        mode = "cpp_itfs"
        receipt = 700
        group = "attention"
        drop_srcs = ["mha_fwd_split.cu", "mha_fwd_batch_prefill.cu"]
        drop_directions = ["fwd_splitkv", "batch_prefill"]
        hsa_subdirs = ["fmha_v3_fwd", "fmha_fwd_bf16"]
        srcs = ["f'{AITER_CSRC_DIR}/cpp_itfs/mha_fwd.cu'"]
        flags_extra_cc = []
        flags_extra_hip = ["'-DFAV3_ON=1'"]
        flags_extra_hip_per_source = { "mha_fwd.cu" = ["'-O2'"] }
        extra_ldflags = "None"
        extra_include = ["f'{CK_DIR}/example/ck_tile/01_fmha'"]
        verbose = "False"
        is_python_module = false
        is_standalone = "False"
        torch_exclude = true
        hipify = false
        hip_clang_path = "os.environ.get('MHA_HIP_CLANG_PATH')"
        blob_gen_cmd = ["f'{CK_DIR}/generate.py -d fwd --output_dir {{}}'"]
        md_name = "'attention_fwd'"
        third_party = []
        is_experimental = false
        add_srcs = ["qola_mha_fwd.cu"]
        add_includes = ["cpp_itfs"]
        add_flags_extra_cc = []
        add_flags_extra_hip = ["-DFAV3_ON=1"]
        add_blob_gen_cmd = ["{AITER_META_DIR}/hsa/codegen.py --output_dir {{}}"]
        [[modules]]
        name = "libmha_bwd"
        [[mha_fwd_variants]]
        dtype = ["bf16", "fp16"]
        has_bias = [true, false]
        has_alibi = false
        has_mask = true
        has_lse = true
        has_dropout = [false]
        has_skip = false
        has_sink = false
        receipt = 600
        [[mha_bwd_variants]]
        dtype = "bf16"
        has_bias = false
        has_alibi = [false, true]
        has_dbias = false
        has_mask = true
        has_dropout = false
        deterministic = true
        receipt = 300
        """,
        file="m.toml",
    )
    assert manifest.warnings == ()
    assert manifest.aiter_commit == "d32b0cb62"
    assert manifest.patches_dir == "patches/aiter"
    assert manifest.rocm_versions == ("7", "7.2")
    assert manifest.archs == ("gfx942", "gfx950")
    forward, backward = manifest.modules
    assert (forward.mode, backward.mode) == ("cpp_itfs", None)
    assert manifest.module_mode(backward) == "pybind"
    assert forward.group == "attention"
    assert forward.hsa_subdirs == ("fmha_v3_fwd", "fmha_fwd_bf16")
    assert backward.hsa_subdirs is None
    overrides = dict(forward.overrides)
    assert len(overrides) == 21
    assert overrides["flags_extra_hip_per_source"] == (("mha_fwd.cu", ("'-O2'",)),)
    assert overrides["extra_ldflags"] == "None"
    assert overrides["torch_exclude"] is True
    (variant,) = manifest.fwd_variants
    assert (variant.dtype, variant.bias) == (("fp16", "bf16"), ("no", "bias"))
    assert (variant.receipt, variant.skip, variant.sink) == (600, (False,), (False,))
    (variant_bwd,) = manifest.bwd_variants
    assert (variant_bwd.bias, variant_bwd.dbias) == (("no", "alibi"), (False,))
    assert (variant_bwd.deterministic, variant_bwd.receipt) == ((True,), 300)


def test_defaults_equal_rocm_qolas() -> None:
    """Prevents: an absent key with another meaning than in ROCm/QoLA."""
    manifest = loads('[[modules]]\nname = "libmha_fwd"\n', file="m.toml")
    assert (manifest.namespace, manifest.mode, manifest.archs) == ("", "pybind", ())
    assert (manifest.keep_unreachable, manifest.max_bytes) == (False, None)
    assert (manifest.aiter_commit, manifest.patches_dir, manifest.rocm_versions) == (None, None, ())
    (module,) = manifest.modules
    assert (module.mode, module.receipt, module.drop_srcs, module.overrides) == (None, None, (), ())


def test_empty_variant_selects_everything() -> None:
    """Prevents: an omitted key of a variant read as false or as an empty list."""
    manifest = loads(f"{MODULE}[[mha_fwd_variants]]\n[[mha_bwd_variants]]\n", file="m.toml")
    both = (False, True)
    (forward,), (backward,) = manifest.fwd_variants, manifest.bwd_variants
    for variant in (forward, backward):
        assert (variant.dtype, variant.hdim, variant.receipt) == (None, None, None)
        assert variant.bias == ("no", "bias", "alibi")
        assert variant.mode == ("batch", "group")
    assert {forward.mask, forward.lse, forward.dropout, forward.skip, forward.sink} == {both}
    assert {backward.dbias, backward.mask, backward.dropout, backward.deterministic} == {both}


@pytest.mark.parametrize(
    ("has_bias", "has_alibi", "kinds"),
    [
        ("true", "true", ("bias",)),
        ("true", "false", ("bias",)),
        ("false", "true", ("alibi",)),
        ("false", "false", ("no",)),
        ("[true, false]", "false", ("no", "bias")),
        ("[true, false]", "true", ("bias", "alibi")),
        ("true", "[true, false]", ("bias",)),
        ("false", "[true, false]", ("no", "alibi")),
        ("[false, true]", "[false, true]", ("no", "bias", "alibi")),
    ],
)
def test_bias_overrides_alibi(has_bias: str, has_alibi: str, kinds: tuple[str, ...]) -> None:
    """Prevents: a kernel requested with two biases, or a bias requested twice."""
    manifest = fwd(f"has_bias = {has_bias}\nhas_alibi = {has_alibi}")
    assert manifest.fwd_variants[0].bias == kinds
    assert len(manifest.warnings) == (has_bias == has_alibi == "true")


@pytest.mark.parametrize(
    ("written", "pairs", "warnings"),
    [
        ("128", ((128, 128),), 0),
        ("[64, 128]", ((64, 64), (128, 128)), 0),
        ("[128, 64, 128]", ((64, 64), (128, 128)), 0),
        ("[[192, 128]]", ((192, 128),), 0),
        ("[64, [192, 128], [64, 64]]", ((64, 64), (192, 128)), 0),
        ("[128, 192]", ((128, 128), (192, 192)), 0),
        ("[192, 128]", ((128, 128), (192, 192)), 1),
    ],
)
def test_hdim_forms(written: str, pairs: tuple[tuple[int, int], ...], warnings: int) -> None:
    """Prevents: a [q, v] pair read as a list of two head dimensions, or the reverse."""
    manifest = fwd(f"hdim = {written}")
    assert manifest.fwd_variants[0].hdim == pairs
    assert len(manifest.warnings) == warnings


def test_order_and_repetition_are_ignored() -> None:
    """Prevents: a new digest, and a rebuild, for an equivalent manifest."""
    first = loads(
        f'{MODULE}[[mha_fwd_variants]]\ndtype = ["bf16", "fp16"]\nhas_mask = [true, false]\n'
        '[build]\narchitectures = ["gfx950", "gfx942"]\n',
        file="a.toml",
    )
    second = loads(
        '# moved\n\n[build]\narchitectures = ["gfx942", "gfx950"]\n'
        f'{MODULE}[[mha_fwd_variants]]\ndtype = ["fp16", "bf16", "fp16"]\n',
        file="b.toml",
    )
    assert first == second
    assert hash(first) == hash(second)
    assert json.dumps(first.to_json()) == json.dumps(second.to_json())


VARIANT = (
    *("", 'dtype = "bf16"', "hdim = 64", 'mode = "batch"', "receipt = 1"),
    *("has_bias = false", "has_alibi = false", "has_mask = true", "has_dropout = true"),
)
CHANGES = {
    "[qola]": (
        *('namespace = "x"', 'aiter_commit = "1.0"'),
        *('patches_dir = "p"', 'rocm_versions = ["7"]'),
    ),
    "[build]": ('mode = "cpp_itfs"', 'architectures = ["gfx950"]'),
    '[[modules]]\nname = "m"': (
        *("", 'mode = "pybind"', "receipt = 1", 'group = "g"', 'drop_srcs = ["a"]'),
        *('drop_directions = ["bwd"]', "hsa_subdirs = []", "verbose = true", "srcs = []"),
        *(f"flags_extra_hip_per_source = {{ a = ['{n}'] }}" for n in (1, 2)),
    ),
    "[[mha_fwd_variants]]": (*VARIANT, "has_lse = true", "has_skip = true", "has_sink = true"),
    "[[mha_bwd_variants]]": (*VARIANT, "has_dbias = true", "deterministic = true"),
}


def test_every_key_changes_the_canonical_form() -> None:
    """Prevents: a changed manifest with an unchanged digest, so that nothing is rebuilt."""
    changes = ["", *(f"{table}\n{line}" for table, lines in CHANGES.items() for line in lines)]
    canonical: dict[str, str] = {}
    for change in changes:
        form = json.dumps(loads(f"{MODULE}{change}\n", file="m.toml").to_json())
        assert canonical.setdefault(form, change) == change
    assert len(canonical) == len(changes)


def test_prebuilt_urls_do_not_change_the_manifest() -> None:
    """Prevents: another plan, or recompiled kernels, after a mirror is added."""
    key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"
    table = f'[prebuilt]\nurls = ["https://a", "dir"]\npublic_key = "{key}"\n'
    manifest = loads(MODULE + table, file="m.toml")
    assert manifest.prebuilt.urls == ("https://a", "dir")
    assert manifest.prebuilt.public_key == key
    assert manifest == loads(MODULE, file="m.toml")
    assert manifest.to_json() == loads(MODULE, file="m.toml").to_json()


def test_places_point_to_lines() -> None:
    """Prevents: messages with the line of another variant or module."""
    manifest = loads(f"{MODULE}[[mha_fwd_variants]]\n\n[[mha_fwd_variants]]\nhdim = 64\n", file="m")
    assert [variant.place for variant in manifest.fwd_variants] == [
        "m:5 [[mha_fwd_variants]]",
        "m:7 [[mha_fwd_variants]]",
    ]
    assert manifest.place("mha_fwd_variants", 1, "hdim") == "m:8 [[mha_fwd_variants]].hdim"
    assert manifest.place("modules", 1, "mode") == "m:3 [[modules]].mode"


def test_display_name_replaces_the_path(tmp_path: Path) -> None:
    """Prevents: a sandbox's absolute path in messages and in the plan."""
    file = tmp_path / "x.toml"
    file.write_text(MODULE)
    assert load(file, display="manifests/x.toml").place("build").startswith("manifests/x.toml:1 ")
    assert load(file).file == file.as_posix()
