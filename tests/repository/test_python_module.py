"""Plans of modules that Python imports; a BUILD file is in tests/golden/plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qola.aiter.tree import AiterTree, read_tree
from qola.common.folder import Folder
from qola.manifest.load import loads
from qola.plan.generate import generate_further
from qola.plan.model import Plan
from qola.plan.planner import build_plan
from qola.plan.python_modules import plan_python_module
from qola.plan.request import Request
from qola.plan.resolve import resolve
from qola_base.errors import PlanError
from qola_base.files import sha256_of_text
from tests.support.later_tree import write_pybind_tree

ENUM = '[[modules]]\nname = "module_aiter_enum"\n'
HEAD = '[qola]\nnamespace = "ns"\n[build]\narchitectures = ["gfx950"]\n'
SOURCE = "aiter_meta/csrc/pybind/aiter_enum_pybind.cu"

PlanFunction = Callable[..., Plan]


@pytest.fixture(scope="module")
def tree(aiter_tree: Path) -> AiterTree:
    return read_tree(aiter_tree)


@pytest.fixture
def plan(tree: AiterTree, tmp_path: Path) -> PlanFunction:
    """Return a function that plans the text of a manifest."""

    def call(text: str, **changes: Any) -> Plan:
        return build_plan(
            resolve(Request("m", loads(text, file="m.toml"), tree, **changes)), Folder(tmp_path)
        )

    return call


def test_plan_of_a_module(plan: PlanFunction, tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a module without its sources or headers, or with a file name unknown to Python."""
    result = plan(HEAD + ENUM)
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


def test_module_together_with_attention(plan: PlanFunction) -> None:
    """Prevents: an error for a manifest with both kinds of modules."""
    attention = '[[modules]]\nname = "libmha_fwd"\nmode = "cpp_itfs"\nreceipt = 700\n'
    small = '[[mha_fwd_variants]]\ndtype = "bf16"\nhdim = 128\nhas_dropout = false\n'
    result = plan(HEAD + ENUM + attention + small)
    assert [module.library for module in result.modules] == ["ns_libmha_fwd.so"]
    assert [module.library for module in result.python_modules] == ["module_aiter_enum.so"]


@pytest.mark.parametrize(
    ("changes", "dropped", "message"),
    [
        ({}, ("aiter_enum_pybind.cu",), "no sources"),
        ({"srcs": (SOURCE, SOURCE.replace("pybind/", "pybind/../pybind/"))}, (), "of one name"),
        ({"is_standalone": True}, (), "a program"),
    ],
)
def test_unsupported_entries_are_refused(
    changes: dict[str, Any],
    dropped: tuple[str, ...],
    message: str,
    tree: AiterTree,
    tmp_path: Path,
) -> None:
    """Prevents: a module of a later AITER built without parts that its entry requires."""
    resolved = resolve(Request("m", loads(HEAD + ENUM, file="m.toml"), tree))
    (module,) = resolved.modules
    spec = replace(module.spec, drop_srcs=dropped)
    changed_module = replace(module, spec=spec, config=replace(module.config, **changes))
    with pytest.raises(PlanError) as caught:
        plan_python_module(
            resolved, generate_further(resolved, changed_module, Folder(tmp_path)), Folder(tmp_path)
        )
    assert message in caught.value.findings[0].found


def test_torch_extension_name_is_defined(tmp_path: Path) -> None:
    """Prevents: a pybind module without PyTorch that does not link for lack of PyInit_NAME."""
    tree = read_tree(write_pybind_tree(tmp_path / "tree"))
    text = HEAD + "".join(
        f'[[modules]]\nname = "module_{name}"\n' for name in ("custom", "literal")
    )
    result = build_plan(resolve(Request("m", loads(text, file="m.toml"), tree)), Folder(tmp_path))
    custom, literal = result.python_modules
    assert custom.copts == ("-DENABLE_CK=0", "-DTORCH_EXTENSION_NAME=module_custom")
    assert (custom.library, custom.symbol) == ("module_custom.so", "PyInit_module_custom")
    assert literal.copts == ("-DENABLE_CK=0",)
    with_other_name = text.replace(
        "[[modules]]\n", "[[modules]]\nadd_flags_extra_cc = ['-DTORCH_EXTENSION_NAME=x']\n", 1
    )
    with pytest.raises(PlanError, match="PyInit_x, while Python calls PyInit_module_custom"):
        build_plan(
            resolve(Request("m", loads(with_other_name, file="m.toml"), tree)), Folder(tmp_path)
        )
