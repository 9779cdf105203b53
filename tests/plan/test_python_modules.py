"""Modules that Python imports: those without PyTorch, and modules with AITER's names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qola.aiter.tree import AiterTree, read_tree
from qola.common.folder import Folder
from qola.manifest.load import loads
from qola.plan.generate import generate_further
from qola.plan.python_modules import plan_python_module
from qola.plan.request import Request
from qola.plan.resolve import resolve
from qola.plan.spec import BuildSpec
from qola.repository.build_files import manifest_build_file
from qola_base.errors import ManifestError, PlanError
from qola_base.files import sha256_of_text
from tests.support.later_tree import write_pybind_tree
from tests.support.plans import plan_text

ENUM = (
    '[qola]\nnamespace = "ns"\n[build]\narchitectures = ["gfx950"]\n'
    '[[modules]]\nname = "module_aiter_enum"\n'
)
SOURCE = "aiter_meta/csrc/pybind/aiter_enum_pybind.cu"


def test_plan_of_a_module(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a module without its sources or headers, or with a file name unknown to Python."""
    result = plan_text(ENUM, tree, tmp_path)
    assert (result.modules, result.kernels, result.warnings) == ((), (), ())
    (module,) = result.python_modules
    assert (module.library, module.symbol) == (
        "module_aiter_enum.so",
        "PyInit_module_aiter_enum",
    )
    assert {name.rpartition("/")[2] for name in module.headers} == {"aiter_enum.h", "rocm_ops.hpp"}
    assert module.include_dirs == ("aiter_meta/csrc/include",)
    assert set(module.inputs) == {SOURCE, *module.headers} <= set(result.inputs)
    text = (tree.root / SOURCE).read_text("utf-8")
    (source,) = module.sources
    assert (source.name, source.sha256) == ("aiter_enum_pybind", sha256_of_text(text))
    assert (tmp_path / source.file).read_text("utf-8") == text


@pytest.mark.parametrize(
    ("changes", "dropped", "message"),
    [
        ({}, ("aiter_enum_pybind.cu",), "no sources"),
        ({"srcs": (SOURCE, SOURCE.replace("pybind/", "pybind/../pybind/"))}, (), "of one name"),
        ({"is_standalone": True}, (), "a program"),
    ],
)
def test_unsupported_entries_are_refused(
    changes: dict[str, Any], dropped: tuple[str, ...], message: str, tree: AiterTree
) -> None:
    """Prevents: a module of a later AITER built without parts that its entry requires."""
    resolved = resolve(Request("m", loads(ENUM, file="m.toml"), tree))
    (module,) = resolved.modules
    spec = replace(module.spec, drop_srcs=dropped)
    changed_module = replace(module, spec=spec, config=replace(module.config, **changes))
    output = Folder()
    with pytest.raises(PlanError) as caught:
        plan_python_module(resolved, generate_further(resolved, changed_module, output), output)
    assert message in caught.value.findings[0].found


def test_torch_extension_name_is_defined(tmp_path: Path) -> None:
    """Prevents: a pybind module without PyTorch that does not link for lack of PyInit_NAME."""
    tree = read_tree(write_pybind_tree(tmp_path))
    text = ENUM.replace("aiter_enum", "custom") + '[[modules]]\nname = "module_literal"\n'
    custom, literal = plan_text(text, tree).python_modules
    assert custom.copts == ("-DENABLE_CK=0", "-DTORCH_EXTENSION_NAME=module_custom")
    assert (custom.library, custom.symbol) == ("module_custom.so", "PyInit_module_custom")
    assert literal.copts == ("-DENABLE_CK=0",)
    with_other_name = text.replace(
        "[[modules]]\n", "[[modules]]\nadd_flags_extra_cc = ['-DTORCH_EXTENSION_NAME=x']\n", 1
    )
    with pytest.raises(PlanError, match="PyInit_x, while Python calls PyInit_module_custom"):
        plan_text(with_other_name, tree)


FOR_AITER = '[build]\narchitectures = ["gfx950"]\nmode = "aiter"\n[[modules]]\nname = "{}"\n'


def test_modules_have_aiters_names(tree: AiterTree) -> None:
    """Prevents: a file name or init function that AITER does not look for."""
    plan = plan_text(FOR_AITER.format("module_aiter_unary"), tree)
    (module,) = plan.torch_modules
    assert (module.library, module.symbol) == (
        "module_aiter_unary.so",
        "PyInit_module_aiter_unary",
    )
    assert plan.manifest["mode"] == "aiter"


def test_build_file_lists_names_of_variants(tmp_path: Path) -> None:
    """Prevents: a bundle without modules, or a module without the names of its variants."""
    tree = read_tree(write_pybind_tree(tmp_path))
    text = f'{FOR_AITER.format("module_custom")}names = ["custom_fp16", "custom_bf16"]\n'
    file = manifest_build_file(plan_text(text, tree), source="m.toml", aiter="aiter")
    assert 'names = [\n        "custom_bf16",\n        "custom_fp16",\n    ],' in file
    assert 'aiter_targets(\n    name = "m",\n    modules = [' in file
    assert "torch_wheel" not in file


def test_mode_option_must_match_aiter(tmp_path: Path) -> None:
    """Prevents: --mode pybind accepted, which builds no directory that AITER searches."""
    tree = read_tree(write_pybind_tree(tmp_path))
    with pytest.raises(ManifestError) as caught:
        plan_text(FOR_AITER.format("module_custom"), tree, spec=BuildSpec(mode="pybind"))
    (finding,) = caught.value.findings
    assert finding.place == "m.toml:3 [build].mode"
    assert finding.found == "mode aiter, and --mode pybind"
    assert finding.fix.startswith("leave out --mode")
