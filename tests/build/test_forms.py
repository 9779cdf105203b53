"""ROCm/QoLA's precedence: who wins when command line, manifest and environment differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from qola.build.forms import (
    ChoiceError,
    check_lazy,
    check_split,
    check_static,
    check_wheel,
    choose_lazy,
)
from qola.checkout.request import choose_patches
from qola.errors import Finding, ManifestError, PlanError, ToolchainError
from qola.manifest.archs import choose_archs, choose_modules
from qola.manifest.load import Manifest, loads
from tests.support.folders import write


def manifest(build: str = "", qola: str = "", more: str = "") -> Manifest:
    """A manifest with lines in its tables."""
    text = f'[qola]\n{qola}\n[build]\n{build}\n[[modules]]\nname = "libmha_fwd"\n{more}'
    return loads(text, file="m.toml")


def naming(archs: tuple[str, ...]) -> Manifest:
    """A manifest with these archs."""
    return manifest(f"architectures = {list(archs)}" if archs else "")


def gpus() -> tuple[str, ...]:
    return ("gfx942", "gfx950")


def no_gpu() -> NoReturn:
    raise ToolchainError(Finding("sysfs", "no GPU", "a GPU"))


@pytest.mark.parametrize(
    ("asked", "own", "environment", "expected"),
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
def test_archs_without_asking_the_machine(
    asked: list[str], own: tuple[str, ...], environment: str, expected: tuple[str, ...]
) -> None:
    """Prevents: another order than --arch, manifest, GPU_ARCHS; a GPU needed to name archs."""
    assert choose_archs(asked, naming(own), environment, no_gpu) == expected


@pytest.mark.parametrize(
    ("asked", "own", "environment"),
    [
        ([], (), ""),
        (["native"], ("gfx950",), "gfx90a"),
        ([], ("native",), "gfx90a"),
        ([], (), "native"),
    ],
)
def test_native_asks_the_machine(asked: list[str], own: tuple[str, ...], environment: str) -> None:
    """Prevents: native handed on as an arch; another default; a build for no arch without a GPU."""
    assert choose_archs(asked, naming(own), environment, gpus) == gpus()
    with pytest.raises(ToolchainError):
        choose_archs(asked, naming(own), environment, no_gpu)


@pytest.mark.parametrize(
    ("asked", "environment", "place"),
    [
        (["native", "gfx942"], "", "the archs asked for instead of the manifest's"),
        (["gfx90"], "", "the archs asked for instead of the manifest's"),
        ([], "native;gfx942", "GPU_ARCHS"),
    ],
)
def test_archs_that_cannot_be_built(asked: list[str], environment: str, place: str) -> None:
    """Prevents: archs that `qola plan` refuses and `qola build` takes."""
    with pytest.raises(PlanError, match=f"error: {place}\n"):
        choose_archs(asked, manifest(), environment, gpus)


@pytest.mark.parametrize(
    ("module", "asked", "build", "expected"),
    [
        ('mode = "pybind"', "cpp_itfs", 'mode = "cpp_itfs"', "pybind"),
        ("", "cpp_itfs", 'mode = "pybind"', "cpp_itfs"),
        ("", None, 'mode = "cpp_itfs"', "cpp_itfs"),
        ("", None, "", "pybind"),
    ],
)
def test_mode(module: str, asked: str | None, build: str, expected: str) -> None:
    """Prevents: another order than module, --mode, [build], pybind."""
    found = manifest(build, more=module)
    mode = found.module_mode(found.modules[0], asked)  # type: ignore[arg-type]
    assert mode == expected


def test_patches(tmp_path: Path) -> None:
    """Prevents: the manifest's patches applied although others, or none, are asked for."""
    write(tmp_path, {"own/0001.patch": "", "asked/0001.patch": ""})
    (tmp_path / "empty").mkdir()
    with_own = manifest(qola='patches_dir = "own"')
    assert choose_patches(None, with_own, tmp_path) == tmp_path / "own"
    assert choose_patches(tmp_path / "asked", with_own, tmp_path) == tmp_path / "asked"
    assert choose_patches(tmp_path / "empty", with_own, tmp_path) is None
    assert choose_patches(Path("/dev/null"), with_own, tmp_path) is None
    assert choose_patches(None, manifest(), tmp_path) is None
    assert choose_patches(None, None, tmp_path) is None


def test_missing_patches_are_an_error(tmp_path: Path) -> None:
    """Prevents: an unpatched library because a folder's name was typed wrong."""
    with pytest.raises(ManifestError, match=r"error: m\.toml:2 \[qola\]\.patches_dir\n"):
        choose_patches(None, manifest(qola='patches_dir = "own"'), tmp_path)
    with pytest.raises(ManifestError, match="error: --patches-dir\n"):
        choose_patches(tmp_path / "asked", manifest(), tmp_path)


def test_groups() -> None:
    """Prevents: modules of other groups built too; a misspelt group that builds nothing."""
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
def test_lazy_by_the_old_variable(
    values: tuple[str, ...], expected: bool, logged: list[str]
) -> None:
    """Prevents: a value of NVTE_CK_JIT with another meaning than its users know; no word of it."""
    for value in values:
        assert choose_lazy(None, {"NVTE_CK_JIT": value}) is expected
        assert logged.pop().startswith(f"NVTE_CK_JIT={value} chooses the libraries")


def test_lazy_by_option(logged: list[str]) -> None:
    """Prevents: the environment winning over the command line; a note where nothing is old."""
    for asked in (False, True):
        for value in ("", "0", "1", "auto", "maybe"):
            assert choose_lazy(asked, {"NVTE_CK_JIT": value}) is asked
    for environ in ({}, {"NVTE_CK_JIT": ""}):
        assert choose_lazy(None, environ) is False
    assert logged == []


def test_lazy_where_transformer_engine_would(logged: list[str]) -> None:
    """Prevents: a user of TransformerEngine's variables who gets the other form, without a word."""
    theirs = {"NVTE_USE_ROCM": "1", "NVTE_FUSED_ATTN": "1"}
    assert choose_lazy(None, theirs) is False
    assert len(logged) == 1
    assert logged[0].startswith("full libraries, with their kernels inside: NVTE_CK_JIT is not set")
    assert "(NVTE_FUSED_ATTN is set)" in logged[0]
    for asked, environ in (
        (False, theirs),
        (True, theirs),
        (None, {"NVTE_USE_ROCM": ""}),
        (None, {"QOLA_LAZY": "auto"}),
    ):
        choose_lazy(asked, environ)
    assert len(logged) == 1


@pytest.mark.parametrize("value", ["2", "yes", " 1", "lazy"])
def test_lazy_by_no_value(value: str) -> None:
    """Prevents: a misspelt value taken for the default; an error that does not list the values."""
    with pytest.raises(ChoiceError) as caught:
        choose_lazy(None, {"NVTE_CK_JIT": value})
    assert caught.value.exit_code == 2
    text = str(caught.value)
    assert "error: NVTE_CK_JIT" in text
    assert "0, false, off, auto (libraries" in text
    assert "1, true, on (lazy" in text


def test_lazy_modules_for_aiter() -> None:
    """Prevents: --lazy and NVTE_CK_JIT ignored in mode aiter, whose modules are never lazy."""
    for_aiter = loads('[build]\nmode = "aiter"\n[[modules]]\nname = "module_norm"\n', file="m.toml")
    for asked, place, fix in (
        (True, "--lazy", "leave out --lazy"),
        (None, "NVTE_CK_JIT", "unset NVTE_CK_JIT, or add --no-lazy"),
    ):
        with pytest.raises(ChoiceError, match=r'm\.toml:2 \[build\]\.mode is "aiter"') as caught:
            check_lazy(True, asked, for_aiter)
        assert [(one.place, one.fix) for one in caught.value.findings] == [(place, fix)]
        check_lazy(True, asked, manifest())
    check_lazy(False, None, for_aiter)


def test_an_archive_of_lazy_libraries() -> None:
    """Prevents: an archive without kernels, or one left out without a word."""
    with pytest.raises(ChoiceError, match="leave out --lazy or --static"):
        check_static(True, True, manifest().modules)


def test_an_archive_of_no_modules() -> None:
    """Prevents: a build that ends well without the archive that was asked for."""
    none = [replace(manifest().modules[0], name="module_aiter_enum")]
    with pytest.raises(ChoiceError, match="module_aiter_enum"):
        check_static(True, False, none)
    check_static(False, False, none)


def test_modules_that_stay_whole(logged: list[str]) -> None:
    """Prevents: --split that leaves some modules as they are, without a word."""
    other = replace(manifest().modules[0], name="module_aiter_enum")
    check_split(True, False, False, [*manifest().modules, other], False)
    check_split(True, False, False, [other], True)
    check_split(True, False, False, manifest().modules, True)
    check_split(False, False, False, [other], False)
    assert logged == ["not split, with device code of all archs inside: module_aiter_enum"] * 2


def test_nothing_to_split() -> None:
    """Prevents: --split without effect, or an error after all kernels were compiled."""
    modules = manifest().modules
    with pytest.raises(ChoiceError, match="leave out --lazy or --split; --no-lazy if NVTE_CK_JIT"):
        check_split(True, True, False, modules, False)
    with pytest.raises(ChoiceError, match="leave out --static or --split"):
        check_split(True, False, True, modules, False)
    other = [replace(modules[0], name="module_aiter_enum")]
    with pytest.raises(ChoiceError, match=r"module_aiter_enum\n.*among the modules"):
        check_split(True, False, False, other, False)
    # A manifest of functions only.
    with pytest.raises(ChoiceError, match=r"no modules\n.*among the modules"):
        check_split(True, False, False, [], False)
    check_split(True, False, False, other, True)
    check_split(True, False, False, modules, False)
    check_split(False, True, True, other, False)


@pytest.mark.parametrize("version", ["1", "1.2.3rc1", "1!2.0.post1.dev3+rocm7.2"])
def test_versions_of_a_wheel(version: str) -> None:
    """Prevents: a version refused that Python takes."""
    check_wheel(version, manifest().modules, False)


@pytest.mark.parametrize("version", ["v1", "1.2-3", "1_0", "1.2.", "../x", "1.0RC1"])
def test_a_wheel_of_no_version(version: str) -> None:
    """Prevents: an hour's build for a wheel with a name that pip refuses."""
    with pytest.raises(ChoiceError, match="a version as Python writes it") as caught:
        check_wheel(version, manifest().modules, False)
    assert caught.value.findings[0].found == version
    check_wheel("", [], False)


def test_modules_that_no_wheel_has(logged: list[str]) -> None:
    """Prevents: a wheel without a module that its manifest has, and not a word of it."""
    other = replace(manifest().modules[0], name="module_aiter_enum")
    with pytest.raises(ChoiceError, match="qola_torch_wheel packages modules that Python imports"):
        check_wheel("1.0", [other], False)
    check_wheel("1.0", [other], False, for_aiter=True)
    check_wheel("1.0", [*manifest().modules, other], False)
    check_wheel("1.0", [other], True)
    words = "not in the wheel, since Python imports them by themselves: module_aiter_enum (qola_tor"
    assert [line[: len(words)] for line in logged] == [words, words]
