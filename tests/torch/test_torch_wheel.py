"""A wheel of torch modules: what it says of itself, and that Python imports what is in it."""

from __future__ import annotations

import ast
import os
import subprocess
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from qola.launch.fake_hip import RUNTIME

WHEEL = Path(os.environ["QOLA_TEST_WHEEL"]).resolve()
FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
PYTHON = os.environ.get("QOLA_TORCH") or os.environ.get("QOLA_PYTHON") or "python3"
PACKAGE = "qola_torch_mha_torch"
MODULE = "torch_module_mha_fwd"


def run(place: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the Python whose PyTorch the wheel is for."""
    return subprocess.run(
        [PYTHON, "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(place), "LD_LIBRARY_PATH": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the wheel's files and HIP's runtime without a GPU."""
    place = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(place)
    (place / RUNTIME).symlink_to(FAKE)
    return place


@pytest.fixture(scope="module")
def versions(site: Path) -> tuple[str, str]:
    """Return the versions of Python and PyTorch at hand."""
    code = "import sys, torch; print(*sys.version_info[:2], torch.__version__)"
    major, minor, torch = run(site, code).stdout.split()
    return f"{major}.{minor}", torch


def test_tags_are_those_of_the_python(site: Path, versions: tuple[str, str]) -> None:
    """Prevents: a wheel that pip installs for a Python or a PyTorch that cannot import it."""
    python, torch = versions
    tag = f"cp{python.replace('.', '')}"
    assert WHEEL.name == f"{PACKAGE}-0.1.0-{tag}-{tag}-linux_x86_64.whl"
    (info,) = site.glob("*.dist-info")
    assert f"Tag: {tag}-{tag}-linux_x86_64\n" in (info / "WHEEL").read_text("utf-8")
    metadata = Parser().parsestr((info / "METADATA").read_text("utf-8"))
    assert metadata["Requires-Dist"] == f"torch=={torch}"
    assert metadata["Requires-Python"] == f"=={python}.*"


def test_what_it_holds(site: Path) -> None:
    """Prevents: a module without its type stubs, or one that may not be passed on."""
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


def test_a_module_is_imported_from_the_package(site: Path) -> None:
    """Prevents: a module that Python finds as a file of its own alone."""
    ran = run(site, f"from {PACKAGE} import {MODULE} as m; print(m.mha_fwd.__doc__)")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("mha_fwd(q: torch.Tensor, ")


def test_stubs_have_the_signature(site: Path) -> None:
    """Prevents: stubs that no type checker reads, or that leave an argument out."""
    tree = ast.parse((site / PACKAGE / f"{MODULE}.pyi").read_text("utf-8"))
    (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    names = [argument.arg for argument in function.args.args]
    assert function.name == "mha_fwd"
    assert names[:5] == ["q", "k", "v", "dropout_p", "softmax_scale"]
    assert function.args.args[0].annotation is not None
    assert ast.unparse(function.args.args[0].annotation) == "torch.Tensor"
