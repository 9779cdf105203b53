"""A wheel of torch modules: its metadata, and the import of its modules."""

from __future__ import annotations

import ast
import os
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.torch.torch_programs import link, output_of

WHEEL = Path(os.environ["QOLA_TEST_WHEEL"]).resolve()
PACKAGE = "qola_torch_mha_torch"
MODULE = "torch_module_mha_fwd"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the wheel's files and HIP's runtime without a GPU."""
    directory = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(directory)
    return link(directory)


@pytest.fixture(scope="module")
def versions(site: Path) -> tuple[str, str]:
    """Return the versions of the available Python and PyTorch."""
    code = "import sys, torch; print(*sys.version_info[:2], torch.__version__)"
    major, minor, torch = output_of(site, code).split()
    return f"{major}.{minor}", torch


def test_tags_match_the_python(site: Path, versions: tuple[str, str]) -> None:
    """Prevents: pip installs a wheel for a Python or PyTorch that cannot import its module."""
    python, torch = versions
    tag = f"cp{python.replace('.', '')}"
    assert WHEEL.name == f"{PACKAGE}-0.1.0-{tag}-{tag}-linux_x86_64.whl"
    (info,) = site.glob("*.dist-info")
    assert f"Tag: {tag}-{tag}-linux_x86_64\n" in (info / "WHEEL").read_text("utf-8")
    metadata = Parser().parsestr((info / "METADATA").read_text("utf-8"))
    assert metadata["Requires-Dist"] == f"torch=={torch}"
    assert metadata["Requires-Python"] == f"=={python}.*"


def test_files_of_the_package(site: Path) -> None:
    """Prevents: a module lacks its type stubs, or the licenses for redistribution."""
    package = site / PACKAGE
    found = sorted(p.relative_to(package).as_posix() for p in package.rglob("*") if p.is_file())
    assert found == [
        "__init__.py",
        "licenses/aiter/LICENSE",
        "licenses/composable_kernel/LICENSE",
        "licenses/qola/LICENSE",
        "py.typed",
        f"{MODULE}.pyi",
        f"{MODULE}.so",
    ]


def test_module_is_imported_from_the_package(site: Path) -> None:
    """Prevents: Python imports the module only as a separate file, not from its package."""
    text = output_of(site, f"from {PACKAGE} import {MODULE} as m; print(m.mha_fwd.__doc__)")
    assert text.startswith("mha_fwd(q: torch.Tensor, ")


def test_stubs_have_the_signature(site: Path) -> None:
    """Prevents: type checkers cannot read the stubs, or the stubs lack an argument."""
    tree = ast.parse((site / PACKAGE / f"{MODULE}.pyi").read_text("utf-8"))
    (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    names = [argument.arg for argument in function.args.args]
    assert function.name == "mha_fwd"
    assert names[:5] == ["q", "k", "v", "dropout_p", "softmax_scale"]
    assert function.args.args[0].annotation is not None
    assert ast.unparse(function.args.args[0].annotation) == "torch.Tensor"
