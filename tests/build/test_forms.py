"""ROCm/QoLA's precedence of command line, manifest and environment, and forms of libraries."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from qola.build.forms import FORMS, ChoiceError, choose_forms, choose_lazy, without_form
from qola.checkout.request import choose_patches
from qola.manifest.archs import choose_archs, choose_modules
from qola.manifest.load import Manifest, loads
from qola.plan.spec import Forms
from qola_base.errors import Finding, ManifestError, PlanError, ToolchainError
from tests.support.folders import write


def manifest(build: str = "", qola: str = "", more: str = "") -> Manifest:
    """Return a manifest with the given lines in its tables."""
    text = f'[qola]\n{qola}\n[build]\n{build}\n[[modules]]\nname = "libmha_fwd"\n{more}'
    return loads(text, file="m.toml")


def manifest_with_archs(archs: tuple[str, ...]) -> Manifest:
    """Return a manifest with the given archs."""
    return manifest(f"architectures = {list(archs)}" if archs else "")


def gpus() -> tuple[str, ...]:
    return ("gfx942", "gfx950")


def no_gpu() -> NoReturn:
    raise ToolchainError(Finding("sysfs", "no GPU", "a GPU"))


@pytest.mark.parametrize(
    ("requested", "from_manifest", "environment", "expected"),
    [
        (["gfx942"], ("gfx950",), "gfx90a", ("gfx942",)),
        (["gfx950;gfx942", "gfx950"], (), "", ("gfx942", "gfx950")),
        (["gfx942,gfx950"], ("gfx950", "gfx942"), "", ()),
        (["gfx942,gfx942"], (), "", ("gfx942",)),
        ([], ("gfx950",), "gfx942", ()),
        (["gfx950"], ("gfx950",), "", ()),
        ([], (), " gfx942; gfx950;;gfx942", ("gfx942", "gfx950")),
    ],
)
def test_precedence_of_archs(
    requested: list[str],
    from_manifest: tuple[str, ...],
    environment: str,
    expected: tuple[str, ...],
) -> None:
    """Prevents: an order other than --arch, manifest, GPU_ARCHS, or a needless GPU detection."""
    assert (
        choose_archs(requested, manifest_with_archs(from_manifest), environment, no_gpu) == expected
    )


@pytest.mark.parametrize(
    ("from_manifest", "environment"), [((), ""), (("native",), "gfx90a"), ((), "native")]
)
def test_native_detects_gpus(from_manifest: tuple[str, ...], environment: str) -> None:
    """Prevents: native treated as an arch, another default, or a build without archs."""
    with_archs = manifest_with_archs(from_manifest)
    assert choose_archs([], with_archs, environment, gpus) == gpus()
    with pytest.raises(ToolchainError):
        choose_archs([], with_archs, environment, no_gpu)


@pytest.mark.parametrize(
    ("requested", "environment", "place"),
    [
        (["native", "gfx942"], "", "the archs asked for instead of the manifest's"),
        (["gfx90"], "", "the archs asked for instead of the manifest's"),
        ([], "native;gfx942", "GPU_ARCHS"),
    ],
)
def test_invalid_archs_are_refused(requested: list[str], environment: str, place: str) -> None:
    """Prevents: archs that `qola plan` refuses and `qola build` accepts."""
    with pytest.raises(PlanError, match=f"error: {place}\n"):
        choose_archs(requested, manifest(), environment, gpus)


@pytest.mark.parametrize(
    ("module", "requested", "build", "expected"),
    [
        ('mode = "pybind"', "cpp_itfs", 'mode = "cpp_itfs"', "pybind"),
        ("", "cpp_itfs", 'mode = "pybind"', "cpp_itfs"),
        ("", None, 'mode = "cpp_itfs"', "cpp_itfs"),
        ("", None, "", "pybind"),
    ],
)
def test_precedence_of_modes(module: str, requested: str | None, build: str, expected: str) -> None:
    """Prevents: an order other than module, --mode, [build], pybind."""
    loaded = manifest(build, more=module)
    mode = loaded.module_mode(loaded.modules[0], requested)  # type: ignore[arg-type]
    assert mode == expected


def test_precedence_of_patches(tmp_path: Path) -> None:
    """Prevents: the manifest's patches applied although --patches-dir names other or no patches."""
    write(tmp_path, {"own/0001.patch": "", "asked/0001.patch": ""})
    (tmp_path / "empty").mkdir()
    with_patches = manifest(qola='patches_dir = "own"')
    assert choose_patches(None, with_patches, tmp_path) == tmp_path / "own"
    assert choose_patches(tmp_path / "asked", with_patches, tmp_path) == tmp_path / "asked"
    assert choose_patches(tmp_path / "empty", with_patches, tmp_path) is None
    assert choose_patches(Path("/dev/null"), with_patches, tmp_path) is None
    assert choose_patches(None, manifest(), tmp_path) is None
    assert choose_patches(None, None, tmp_path) is None


def test_missing_patches_are_an_error(tmp_path: Path) -> None:
    """Prevents: an unpatched library because of a misspelt directory name."""
    with pytest.raises(ManifestError, match=r"error: m\.toml:2 \[qola\]\.patches_dir\n"):
        choose_patches(None, manifest(qola='patches_dir = "own"'), tmp_path)
    with pytest.raises(ManifestError, match="error: --patches-dir\n"):
        choose_patches(tmp_path / "asked", manifest(), tmp_path)


def test_groups() -> None:
    """Prevents: modules of other groups built, or a misspelt group that builds nothing."""
    two = manifest(more='group = "a"\n[[modules]]\nname = "libmha_bwd"\ngroup = "b"\n')
    assert [m.name for m in choose_modules(two, [])] == ["libmha_fwd", "libmha_bwd"]
    assert [m.name for m in choose_modules(two, ["b"])] == ["libmha_bwd"]
    assert [m.name for m in choose_modules(two, ["a;b"])] == ["libmha_fwd", "libmha_bwd"]
    with pytest.raises(ManifestError, match=r"none with c\n +expected +a group out of a, b"):
        choose_modules(two, ["a;c"])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("0", "false", "off", "auto", "OFF", "False", "Auto"), False),
        (("1", "true", "on", "True", "ON"), True),
    ],
)
def test_lazy_by_nvte_ck_jit(values: tuple[str, ...], expected: bool, logged: list[str]) -> None:
    """Prevents: a value of NVTE_CK_JIT with a changed meaning, or its use without a message."""
    for value in values:
        assert choose_lazy(None, {"NVTE_CK_JIT": value}) is expected
        assert logged.pop().startswith(f"NVTE_CK_JIT={value} chooses the libraries")


def test_lazy_option_overrides_the_environment(logged: list[str]) -> None:
    """Prevents: the environment overriding the command line, or a needless message."""
    for requested in (False, True):
        for value in ("", "0", "1", "auto", "maybe"):
            assert choose_lazy(requested, {"NVTE_CK_JIT": value}) is requested
    for environ in ({}, {"NVTE_CK_JIT": ""}):
        assert choose_lazy(None, environ) is False
    assert logged == []


def test_full_libraries_with_transformer_engines_variables(logged: list[str]) -> None:
    """Prevents: full libraries for users of TransformerEngine's variables, without a message."""
    nvte_environ = {"NVTE_USE_ROCM": "1", "NVTE_FUSED_ATTN": "1"}
    assert choose_lazy(None, nvte_environ) is False
    assert len(logged) == 1
    assert logged[0].startswith("full libraries, with their kernels inside: NVTE_CK_JIT is not set")
    assert "(NVTE_FUSED_ATTN is set)" in logged[0]
    for requested, environ in (
        (False, nvte_environ),
        (True, nvte_environ),
        (None, {"NVTE_USE_ROCM": ""}),
        (None, {"QOLA_LAZY": "auto"}),
    ):
        choose_lazy(requested, environ)
    assert len(logged) == 1


@pytest.mark.parametrize("value", ["2", "yes", " 1", "lazy"])
def test_invalid_values_of_nvte_ck_jit(value: str) -> None:
    """Prevents: a misspelt value read as the default, or an error that does not list the values."""
    with pytest.raises(ChoiceError) as caught:
        choose_lazy(None, {"NVTE_CK_JIT": value})
    assert caught.value.exit_code == 2
    text = str(caught.value)
    assert "error: NVTE_CK_JIT" in text
    assert "0, false, off, auto (libraries" in text
    assert "1, true, on (lazy" in text


FOR_AITER = loads('[build]\nmode = "aiter"\n[[modules]]\nname = "module_norm"\n', file="m.toml")


def choose(
    *names: str, triton: bool = False, environ: Mapping[str, str] | None = None, **forms: Any
) -> Forms:
    """Choose the forms of a build of some modules; those of mode aiter if none is named."""
    made = manifest() if names or triton else FOR_AITER
    modules = [replace(made.modules[0], name=name) for name in names]
    return choose_forms(Forms(**forms), environ or {}, made, modules or made.modules, triton)


def findings_of(*names: str, **forms: Any) -> list[Finding]:
    """Return the findings of forms that are refused."""
    with pytest.raises(ChoiceError) as caught:
        choose(*names, **forms)
    return list(caught.value.findings)


FWD, BWD, PYTHON = "libmha_fwd", "libmha_bwd", "module_aiter_enum"


def test_lazy_is_refused_in_mode_aiter() -> None:
    """Prevents: --lazy and NVTE_CK_JIT ignored in mode aiter, whose modules are never lazy."""
    for requested, environ, place, fix in (
        (True, {}, "--lazy", "leave out --lazy, or build another --group"),
        (None, {"NVTE_CK_JIT": "1"}, "NVTE_CK_JIT", "unset NVTE_CK_JIT, or add --no-lazy"),
    ):
        (finding,) = findings_of(lazy=requested, environ=environ)
        assert (finding.place, finding.fix) == (place, fix)
        assert finding.found == 'm.toml:2 [build].mode is "aiter"'
        assert choose(FWD, lazy=requested, environ=environ).lazy is True
    assert choose(lazy=None).lazy is False
    # Python modules are never lazy; the variable is for the other manifests of a project.
    assert choose(PYTHON, lazy=None, environ={"NVTE_CK_JIT": "1"}).lazy is True


@pytest.mark.parametrize(
    ("forms", "option", "fix"),
    [
        (
            "lazy static",
            "--static",
            "leave out --lazy or --static; --no-lazy if NVTE_CK_JIT is set",
        ),
        ("static split", "--split", "leave out --static or --split"),
    ],
)
def test_forms_that_exclude_each_other(forms: str, option: str, fix: str) -> None:
    """Prevents: a form without effect, or an error after all kernels were compiled."""
    (finding,) = findings_of(FWD, **dict.fromkeys(forms.split(), True))
    assert (finding.place, finding.fix) == (option, fix)


def test_all_contradictions_are_named() -> None:
    """Prevents: a second error after the first is corrected."""
    found = findings_of(PYTHON, lazy=True, static=True, split=True, wheel="v1", jax=True)
    options = [finding.place for finding in found]
    assert options == ["--static"] * 2 + ["--split"] * 3 + ["--wheel", "--jax", "--wheel"]


@pytest.mark.parametrize(
    ("names", "forms", "option", "words"),
    [
        ((PYTHON,), {"static": True}, "--static", "libmha_fwd or libmha_bwd among the modules:"),
        ((), {"static": True}, "--static", "libmha_fwd or libmha_bwd among the modules:"),
        ((PYTHON,), {"split": True}, "--split", "modules, or kernels in Triton:"),
        ((), {"split": True}, "--split", "modules, or kernels in Triton:"),
        ((PYTHON,), {"wheel": "1.0"}, "--wheel", 'or modules of mode = "aiter":'),
        ((PYTHON,), {"wheel": "1.0", "jax": True}, "--jax", "libmha_fwd among the modules:"),
        ((BWD,), {"wheel": "1.0", "jax": True}, "--jax", "libmha_fwd among the modules:"),
        ((), {"wheel": "1.0", "jax": True}, "--jax", "libmha_fwd among the modules:"),
    ],
)
def test_forms_without_their_modules(
    names: tuple[str, ...], forms: dict[str, Any], option: str, words: str
) -> None:
    """Prevents: a form without effect, such as an archive without libraries, and no message."""
    finding = next(finding for finding in findings_of(*names, **forms) if finding.place == option)
    assert words in finding.expected
    assert (", ".join(names) or 'm.toml:2 [build].mode is "aiter"') == finding.found
    assert "qola_torch_wheel" in finding.fix or finding.fix.startswith(f"leave out {option}")


def test_jax_needs_a_wheel() -> None:
    """Prevents: --jax without an effect."""
    (finding,) = findings_of(FWD, jax=True)
    assert (finding.found, finding.fix) == ("no --wheel", "add --wheel VERSION")
    choose(FWD, PYTHON, wheel="1.0", jax=True)


def test_forms_of_some_modules(logged: list[str]) -> None:
    """Prevents: modules that are not split or not in the wheel, without a message."""
    choose(FWD, PYTHON, split=True, wheel="1.0")
    choose(PYTHON, triton=True, split=True, wheel="1.0")
    choose(FWD, triton=True, split=True, wheel="1.0")
    choose(PYTHON)
    choose(wheel="1.0")
    messages = [
        "not split, with device code of all archs inside: module_aiter_enum",
        "not in the wheel: module_aiter_enum (qola_torch_wheel packages modules that Python imp",
    ]
    assert [line[: len(messages[1])] for line in logged] == messages * 2


@pytest.mark.parametrize("version", ["1", "1.2.3rc1", "1!2.0.post1.dev3+rocm7.2"])
def test_valid_wheel_versions(version: str) -> None:
    """Prevents: a version refused that Python accepts."""
    assert choose(FWD, wheel=version).wheel == version


@pytest.mark.parametrize("version", ["v1", "1.2-3", "1_0", "1.2.", "../x", "1.0RC1"])
def test_invalid_wheel_versions(version: str) -> None:
    """Prevents: a build of an hour for a wheel whose name pip refuses."""
    (finding,) = findings_of(FWD, wheel=version)
    assert finding.expected.startswith("a version as Python writes it")
    assert finding.found == version


def test_modules_without_a_form() -> None:
    """Prevents: a lazy target that does not exist, or a prebuilt bundle that lacks a module."""
    names = [FWD, BWD, PYTHON, "triton", "functions"]
    assert {name: without_form(name, names) for name in FORMS if name != "jax"} == {
        "lazy": [PYTHON, "triton", "functions"],
        "static": [PYTHON, "triton", "functions"],
        **{name: [PYTHON, "functions"] for name in ("split", "wheel", "prebuilt")},
    }


def test_rules_of_bazel_refuse_the_same_forms(repo_root: Path) -> None:
    """Prevents: a bundle of `qola build` that qola_bundle refuses after the libraries are built."""
    tree = ast.parse((repo_root / "rules/private/bundle.bzl").read_text("utf-8"))
    (apart,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "APART"
    ]
    in_bundles = ("lazy", "static", "split")
    assert apart == {name: [*FORMS[name].apart] for name in in_bundles if FORMS[name].apart}
