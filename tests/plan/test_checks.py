"""Checks of a manifest against the AITER tree and the toolchain, before a build."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qola.aiter.module_kinds import ModuleKind
from qola.manifest.constants import BWD_DTYPES, FWD_DTYPES, PROFILES
from qola.manifest.fields import MODULES
from qola.manifest.load import loads
from qola.plan import checks
from qola.plan.request import Request
from qola.plan.spec import BuildSpec
from qola_base.errors import Finding, ManifestError

RECEIPTS = (0, 1, 2, 3, 4, 100, 200, 300, 400, 600, 700, 800, 801, 888)
COMMIT = "d32b0cb62ecc32bb1a858e8437d58eb9b3856af6"
NO_MODE = '[[modules]]\nname = "libmha_fwd"\n'
FWD = f'{NO_MODE}mode = "cpp_itfs"\n'
BWD = FWD.replace("fwd", "bwd")
VARIANTS = "[[mha_fwd_variants]]\n"


def check(
    text: str,
    *,
    receipts: Callable[[str], Collection[int]] = lambda _: RECEIPTS,
    srcs: Collection[str] = ("csrc/a.cu", "csrc/mha_fwd_split.cu"),
    aiter_id: str = COMMIT,
    rocm_version: str | None = "7.2.4",
    spec: BuildSpec = BuildSpec(),  # noqa: B008
) -> tuple[Finding, ...]:
    """Check a manifest against a fake tree with three modules, and return the findings."""
    names = ("libmha_fwd", "libmha_bwd", "module_norm")
    tree: Any = SimpleNamespace(module_names=lambda: names, version="", unknown_keys=dict)
    config: Any = SimpleNamespace(srcs=srcs)
    kind = ModuleKind("attention")
    request = Request(
        "m", loads(text, file="m.toml"), tree, spec, (), tuple, rocm_version, aiter_id
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "known_receipts", lambda _, module: receipts(module))
        try:
            return tuple(checks.check_request(request, lambda _: config, lambda _: kind))
        except ManifestError as error:
            return error.findings


VALID = (
    '[qola]\naiter_commit = "d32b0cb62"\nrocm_versions = ["6", "7.2"]\n'
    '[build]\narchitectures = ["gfx942", "gfx950"]\n'
    f'{FWD}receipt = 700\ndrop_srcs = ["mha_fwd_split.cu"]\n{VARIANTS}receipt = 600\n'
)


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (VALID, {}),
        (VALID, {"rocm_version": None}),
        (f'[build]\narchitectures = ["native"]\n{FWD}', {}),
        (NO_MODE, {"spec": BuildSpec(mode="cpp_itfs")}),
        # The wheel's modules list no sources, and every manifest of ROCm/QoLA drops some.
        (f'{FWD}drop_srcs = ["mha_fwd_split.cu", "mha_fwd_batch_prefill.cu"]\n', {"srcs": ()}),
    ],
)
def test_valid_manifest_has_no_findings(text: str, changes: dict[str, Any]) -> None:
    """Prevents: warnings or errors for a correct manifest."""
    assert check(text, **changes) == ()


@pytest.mark.parametrize(
    ("text", "place", "found", "expected", "fix"),
    [
        (
            '[[modules]]\nname = "libmha_fw"\nmode = "cpp_itfs"',
            "2 [[modules]].name",
            'unknown module "libmha_fw"',
            "libmha_bwd, libmha_fwd or module_norm",
            'did you mean "libmha_fwd"?',
        ),
        (
            f'[qola]\naiter_commit = "33f2e6af5"\n{FWD}',
            "2 [qola].aiter_commit",
            f'"33f2e6af5", while the AITER source is {COMMIT}',
            "the commit or version of the AITER source",
            "--override-aiter-commit plans with the source",
        ),
        (
            f'[qola]\nrocm_versions = ["6.4", "7.1"]\n{FWD}',
            "2 [qola].rocm_versions",
            "ROCm 7.2.4 in use, 6.4 or 7.1 wanted",
            "begins with one of these",
            'use ROCm 7.1, or add "7.2" to the list',
        ),
    ],
)
def test_mismatch_is_reported(text: str, place: str, found: str, expected: str, fix: str) -> None:
    """Prevents: a module, commit or ROCm version mismatch that shows only during the build."""
    (finding,) = check(text)
    assert (finding.place, finding.severity) == (f"m.toml:{place}", "error")
    assert found in finding.found
    assert expected in finding.expected
    assert fix in finding.fix


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (NO_MODE, "1 [[modules]].mode"),
        (f'[build]\nmode = "cpp_itfs"\n{NO_MODE}mode = "pybind"', "5 [[modules]].mode"),
    ],
)
def test_library_in_mode_pybind_is_a_warning(text: str, place: str) -> None:
    """Prevents: a planning error for ROCm/QoLA manifests that omit the mode of libmha_fwd."""
    (finding,) = check(text)
    assert (finding.place, finding.severity) == (f"m.toml:{place}", "warning")
    assert 'write mode = "cpp_itfs" in the [[modules]] table of libmha_fwd' in finding.fix


@pytest.mark.parametrize(
    ("text", "place", "receipt", "fix"),
    [
        (f"{FWD}receipt = 70", "4 [[modules]]", 70, "did you mean 700?"),
        (f"{FWD}{VARIANTS}{VARIANTS}receipt = 9999", "6 [[mha_fwd_variants]]", 9999, ""),
        (f"{FWD}{BWD}[[mha_bwd_variants]]\nreceipt = 5", "8 [[mha_bwd_variants]]", 5, ""),
    ],
)
def test_unknown_receipt_is_reported(text: str, place: str, receipt: int, fix: str) -> None:
    """Prevents: a receipt that this CK does not know, reported only by the compiler."""
    (finding,) = check(text)
    assert (finding.place, finding.severity) == (f"m.toml:{place}.receipt", "error")
    assert f"receipt {receipt}, unknown to this CK" in finding.found
    assert "801 (fp32_min) or 888 (fp8_test)" in finding.expected
    assert finding.fix == fix


@pytest.mark.parametrize(
    ("required", "aiter_id", "matches"),
    [
        ("d32b0cb62", COMMIT, True),
        ("D32B0CB", COMMIT, True),
        (COMMIT, "d32b0cb", True),
        ("d32b0c", COMMIT, False),
        ("d32b0cb63", COMMIT, False),
        ("0.1.7.post2.dev18", "0.1.7.post2.dev18", True),
        ("v0.1.7", "0.1.7", True),
        ("0.1.7", "0.1.7.post2", False),
        ("d32b0cb62", "0.1.10.dev3+gd32b0cb6.d20260801", True),
        ("d32b0cb62", "0.1.10.dev3+gd32b0cb7", False),
        ("0.1.10.dev3+gd32b0cb6", "0.1.10.dev3+gd32b0cb6", True),
        ("main", COMMIT, False),
    ],
)
def test_aiter_commit_matches_tree_id(required: str, aiter_id: str, matches: bool) -> None:
    """Prevents: an abbreviated commit refused, or versions compared only by their prefixes."""
    findings = check(f'[qola]\naiter_commit = "{required}"\n{FWD}', aiter_id=aiter_id)
    assert bool(findings) is not matches


def test_overridden_commit_is_a_warning() -> None:
    """Prevents: an error for an overridden commit, or an override without a warning."""
    text = f'[qola]\naiter_commit = "33f2e6af5"\n{FWD}'
    (finding,) = check(text, spec=BuildSpec(override_aiter_commit=True))
    assert finding.severity == "warning"
    assert finding.found == f'"33f2e6af5", overridden: the AITER source is {COMMIT}'
    (finding,) = check(text, aiter_id="")
    assert (finding.severity, "cannot be checked" in finding.found) == ("warning", True)


@pytest.mark.parametrize(
    ("required", "version", "matches"),
    [("7", "7.2.4", True), ("7.2", "7.2", True), ("7", "70.1", False), ("7.2", "7.20.1", False)],
)
def test_rocm_versions_are_compared_by_component(
    required: str, version: str, matches: bool
) -> None:
    """Prevents: ROCm 7.20 accepted where the manifest requires 7.2."""
    text = f'[qola]\nrocm_versions = ["{required}"]\n{FWD}'
    assert bool(check(text, rocm_version=version)) is not matches


def test_receipts_depend_on_the_module() -> None:
    """Prevents: a forward receipt accepted for the backward module."""
    known = {"libmha_fwd": (5,), "libmha_bwd": (3,)}
    (finding,) = check(f"{FWD}receipt = 5\n{BWD}receipt = 5", receipts=known.__getitem__)
    assert finding.place == "m.toml:8 [[modules]].receipt"


def test_unknown_module_is_reported_once() -> None:
    """Prevents: additional findings about the mode or sources of a module that does not exist."""
    text = '[[modules]]\nname = "zzz"\nreceipt = 1234\ndrop_srcs = ["a"]\n'
    (finding,) = check(text)
    assert "unknown module" in finding.found


def test_unknown_source_in_drop_srcs_is_a_warning() -> None:
    """Prevents: a misspelt drop_srcs entry without a warning that suggests a correction."""
    (finding,) = check(f'{FWD}drop_srcs = ["mha_fwd_splt.cu"]')
    assert (finding.place, finding.severity) == ("m.toml:4 [[modules]].drop_srcs", "warning")
    assert '"mha_fwd_splt.cu", which libmha_fwd does not have' in finding.found
    assert "a.cu or mha_fwd_split.cu" in finding.expected
    assert 'did you mean "mha_fwd_split.cu"?' in finding.fix
    (finding,) = check(f'{FWD}drop_srcs = ["q.hpp"]')
    assert (finding.fix, finding.severity) == ('remove "q.hpp"', "warning")


def test_every_optcompilerconfig_key_is_known(aiter_tree: Path) -> None:
    """Prevents: "unknown key" for a key of AITER's optCompilerConfig.json."""
    config = json.loads((aiter_tree / "aiter/jit/optCompilerConfig.json").read_text())
    keys = {key for entry in config.values() for key in entry}
    assert keys
    assert keys <= set(MODULES.by_key)


def test_dtypes_include_those_of_ck(aiter_tree: Path) -> None:
    """Prevents: a data type that CK can generate and a manifest cannot select."""
    ck = aiter_tree / "aiter_meta/3rdparty/composable_kernel"
    if not ck.is_dir():
        ck = aiter_tree / "3rdparty/composable_kernel"
    source = (ck / "example/ck_tile/01_fmha/codegen/cpp_symbol_map.py").read_text()
    symbols: dict[str, Any] = {}
    exec(source, symbols)
    for name, known in (("FWD_DTYPE_MAP", FWD_DTYPES), ("BWD_DTYPE_MAP", BWD_DTYPES)):
        assert [dtype for dtype in known if dtype in symbols[name]] == list(symbols[name])


def test_receipt_names_stand_for_numbers() -> None:
    """Prevents: a receipt name that selects other kernels than its number."""
    for name, number in PROFILES.items():
        by_name, by_number = (
            loads(f"{FWD}receipt = {receipt}\n{VARIANTS}receipt = {receipt}\n", file="m.toml")
            for receipt in (f'"{name}"', number)
        )
        assert by_name == by_number
        assert by_name.modules[0].receipt == by_name.fwd_variants[0].receipt == number
    known = [number for number in RECEIPTS if number != 300]
    (finding,) = check(f'{FWD}receipt = "aiter_bwd_batch"', receipts=lambda _: known)
    assert finding.found == "receipt 300 (aiter_bwd_batch), unknown to this CK"
    assert "600 (aiter_cpp)" in finding.expected


@pytest.mark.parametrize(
    ("name", "fix"),
    [("TE", 'did you mean "te"?'), ("flash", 'did you mean "flash_fwd"?'), ("", "")],
)
def test_unknown_receipt_name_is_refused(name: str, fix: str) -> None:
    """Prevents: a misspelt receipt name that selects CK's default, most of its kernels."""
    with pytest.raises(ManifestError) as error:
        loads(f'{FWD}receipt = "{name}"', file="m.toml")
    (finding,) = error.value.findings
    assert "pytorch, aiter_batch" in finding.expected
    assert finding.fix == fix
