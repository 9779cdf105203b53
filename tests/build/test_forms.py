"""ROCm/QoLA's precedence of command line, manifest and environment, and forms of libraries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from qola.build.forms import (
    ChoiceError,
    check_jax,
    check_lazy,
    check_split,
    check_static,
    check_wheel,
    choose_lazy,
)
from qola.checkout.request import choose_patches
from qola.manifest.archs import choose_archs, choose_modules
from qola.manifest.load import Manifest, loads
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
    ("requested", "from_manifest", "environment"),
    [
        ([], (), ""),
        (["native"], ("gfx950",), "gfx90a"),
        ([], ("native",), "gfx90a"),
        ([], (), "native"),
    ],
)
def test_native_detects_gpus(
    requested: list[str], from_manifest: tuple[str, ...], environment: str
) -> None:
    """Prevents: native treated as an arch, another default, or a build without archs."""
    assert choose_archs(requested, manifest_with_archs(from_manifest), environment, gpus) == gpus()
    with pytest.raises(ToolchainError):
        choose_archs(requested, manifest_with_archs(from_manifest), environment, no_gpu)


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


def test_lazy_is_refused_in_mode_aiter() -> None:
    """Prevents: --lazy and NVTE_CK_JIT ignored in mode aiter, whose modules are never lazy."""
    for_aiter = loads('[build]\nmode = "aiter"\n[[modules]]\nname = "module_norm"\n', file="m.toml")
    for requested, place, fix in (
        (True, "--lazy", "leave out --lazy"),
        (None, "NVTE_CK_JIT", "unset NVTE_CK_JIT, or add --no-lazy"),
    ):
        with pytest.raises(ChoiceError, match=r'm\.toml:2 \[build\]\.mode is "aiter"') as caught:
            check_lazy(True, requested, for_aiter)
        assert [(finding.place, finding.fix) for finding in caught.value.findings] == [(place, fix)]
        check_lazy(True, requested, manifest())
    check_lazy(False, None, for_aiter)


def test_static_and_lazy_are_exclusive() -> None:
    """Prevents: an archive without kernels, or an omitted archive without an error."""
    with pytest.raises(ChoiceError, match="leave out --lazy or --static"):
        check_static(True, True, manifest().modules)


def test_static_needs_a_cpp_library() -> None:
    """Prevents: a successful build without the requested archive."""
    python_modules = [replace(manifest().modules[0], name="module_aiter_enum")]
    with pytest.raises(ChoiceError, match="module_aiter_enum"):
        check_static(True, False, python_modules)
    check_static(False, False, python_modules)


def test_modules_that_are_not_split(logged: list[str]) -> None:
    """Prevents: --split that does not split some modules, without a message."""
    python_module = replace(manifest().modules[0], name="module_aiter_enum")
    check_split(True, False, False, [*manifest().modules, python_module], False)
    check_split(True, False, False, [python_module], True)
    check_split(True, False, False, manifest().modules, True)
    check_split(False, False, False, [python_module], False)
    assert logged == ["not split, with device code of all archs inside: module_aiter_enum"] * 2


def test_split_without_effect_is_refused() -> None:
    """Prevents: --split without effect, or an error after all kernels were compiled."""
    modules = manifest().modules
    with pytest.raises(ChoiceError, match="leave out --lazy or --split; --no-lazy if NVTE_CK_JIT"):
        check_split(True, True, False, modules, False)
    with pytest.raises(ChoiceError, match="leave out --static or --split"):
        check_split(True, False, True, modules, False)
    python_modules = [replace(modules[0], name="module_aiter_enum")]
    with pytest.raises(ChoiceError, match=r"module_aiter_enum\n.*among the modules"):
        check_split(True, False, False, python_modules, False)
    # A manifest of functions only.
    with pytest.raises(ChoiceError, match=r"no modules\n.*among the modules"):
        check_split(True, False, False, [], False)
    check_split(True, False, False, python_modules, True)
    check_split(True, False, False, modules, False)
    check_split(False, True, True, python_modules, False)


def test_functions_for_jax_need_a_wheel_of_attention() -> None:
    """Prevents: --jax without an effect, or a wheel whose JAX functions have no library."""
    made = manifest()
    other = replace(made.modules[0], name="module_aiter_enum")
    backward = replace(made.modules[0], name="libmha_bwd")
    with pytest.raises(ChoiceError, match="add --wheel VERSION"):
        check_jax(True, "", made.modules, made)
    for module in (other, backward):
        with pytest.raises(ChoiceError, match=rf"{module.name}\n.*libmha_fwd among the modules"):
            check_jax(True, "1.0", [module], made)
    for_aiter = loads('[build]\nmode = "aiter"\n[[modules]]\nname = "module_norm"\n', file="m.toml")
    with pytest.raises(ChoiceError, match=r'm\.toml:2 \[build\]\.mode is "aiter"') as caught:
        check_jax(True, "", for_aiter.modules, for_aiter)
    assert caught.value.findings[0].fix == "leave out --jax"
    check_jax(True, "1.0", [*made.modules, other], made)
    check_jax(False, "", [other], made)


@pytest.mark.parametrize("version", ["1", "1.2.3rc1", "1!2.0.post1.dev3+rocm7.2"])
def test_valid_wheel_versions(version: str) -> None:
    """Prevents: a version refused that Python accepts."""
    check_wheel(version, manifest().modules, False)


@pytest.mark.parametrize("version", ["v1", "1.2-3", "1_0", "1.2.", "../x", "1.0RC1"])
def test_invalid_wheel_versions(version: str) -> None:
    """Prevents: a build of an hour for a wheel whose name pip refuses."""
    with pytest.raises(ChoiceError, match="a version as Python writes it") as caught:
        check_wheel(version, manifest().modules, False)
    assert caught.value.findings[0].found == version
    check_wheel("", [], False)


def test_modules_outside_of_the_wheel(logged: list[str]) -> None:
    """Prevents: a wheel without a module of its manifest, and without a message."""
    python_module = replace(manifest().modules[0], name="module_aiter_enum")
    with pytest.raises(ChoiceError, match="qola_torch_wheel packages modules that Python imports"):
        check_wheel("1.0", [python_module], False)
    check_wheel("1.0", [python_module], False, for_aiter=True)
    check_wheel("1.0", [*manifest().modules, python_module], False)
    check_wheel("1.0", [python_module], True)
    message = (
        "not in the wheel, since Python imports them by themselves: module_aiter_enum (qola_tor"
    )
    assert [line[: len(message)] for line in logged] == [message, message]
