"""Mode aiter: modules have the names that AITER's Python code imports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qola.aiter.tree import AiterTree, read_tree
from qola.common.folder import Folder
from qola.manifest.load import loads
from qola.plan.planner import build_plan
from qola.plan.request import Request
from qola.plan.resolve import resolve
from qola.plan.spec import BuildSpec
from qola.repository.build_files import manifest_build_file
from qola_base.errors import ManifestError
from tests.support.later_tree import write_pybind_tree

TEXT = '[build]\narchitectures = ["gfx950"]\nmode = "aiter"\n[[modules]]\nname = "{}"\n'


def request(module: str, tree: AiterTree) -> Request:
    return Request("serve", loads(TEXT.format(module), file="serve.toml"), tree)


def test_modules_have_aiters_names(tree: AiterTree) -> None:
    """Prevents: a file name or init function that AITER does not look for."""
    plan = build_plan(resolve(request("module_aiter_unary", tree)), Folder())
    (module,) = plan.torch_modules
    assert (module.library, module.symbol) == (
        "module_aiter_unary.so",
        "PyInit_module_aiter_unary",
    )
    assert plan.manifest["mode"] == "aiter"


def test_build_file_lists_names_of_variants(tmp_path: Path) -> None:
    """Prevents: a bundle without modules, or a module without the names of its variants."""
    tree = read_tree(write_pybind_tree(tmp_path))
    text = f'{TEXT.format("module_custom")}names = ["custom_fp16", "custom_bf16"]\n'
    variants_request = Request("serve", loads(text, file="serve.toml"), tree)
    plan = build_plan(resolve(variants_request), Folder())
    file = manifest_build_file(plan, source="serve.toml", aiter="aiter")
    assert 'names = [\n        "custom_bf16",\n        "custom_fp16",\n    ],' in file
    assert 'aiter_targets(\n    name = "serve",\n    modules = [' in file
    assert "torch_wheel" not in file


def test_mode_option_must_match_aiter(tmp_path: Path) -> None:
    """Prevents: --mode pybind accepted, which builds no directory that AITER searches."""
    aiter_request = request("module_custom", read_tree(write_pybind_tree(tmp_path)))
    with pytest.raises(ManifestError) as caught:
        resolve(replace(aiter_request, spec=BuildSpec(mode="pybind")))
    (finding,) = caught.value.findings
    assert finding.place == "serve.toml:3 [build].mode"
    assert finding.found == "mode aiter, and --mode pybind"
    assert finding.fix.startswith("leave out --mode")
