"""Answers of CK's generator: cached for fetched trees, and independent of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qola.codegen.generate import generate
from qola.codegen.process import run_module
from qola.codegen.types import KernelSet, Selection
from qola.common.answers import NO_ANSWERS
from qola.common.folder import Folder
from qola.fetch.fetched import record_digest, tree_answers
from tests.codegen.fake_ck import make_tree
from tests.codegen.generating import BOTH


class Generator:
    """CK's generator in a fetched tree of the test, and a counter of its runs."""

    def __init__(self, root: Path) -> None:
        self.tree = make_tree(root / "tree")
        record_digest(self.tree.root)
        self.environ = {"QOLA_CACHE_HOME": str(root / "cache")}
        self.runs = 0

    def run_generator(
        self, archs: tuple[str, ...] = BOTH, *, cached: bool = True, out: Path | None = None
    ) -> tuple[KernelSet, int]:
        """Return the generated kernels, and the number of runs of the generator."""
        before = self.runs
        selection = Selection(keep_unreachable=True)
        module = self.tree.module("libmha_fwd")
        with tree_answers(self.tree.root, self.environ) if cached else NO_ANSWERS as answers:
            found = generate(self.tree, module, selection, archs, Folder(out), cached=answers)
        return found, self.runs - before


@pytest.fixture
def generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator:
    generator = Generator(tmp_path)

    def run_and_count(module: str, arguments: list[str], *, cwd: Path, place: str) -> None:
        generator.runs += 1
        run_module(module, arguments, cwd=cwd, place=place)

    monkeypatch.setattr("qola.codegen.generate.run_module", run_and_count)
    return generator


def test_answer_is_cached(generator: Generator, tmp_path: Path) -> None:
    """Prevents: a generator that runs although its answer is cached, or wrong cached files."""
    result, runs = generator.run_generator(cached=False, out=tmp_path / "a")
    assert (runs, len(result.kernels) > 0) == (1, True)
    assert generator.run_generator() == (result, 1)
    assert generator.run_generator(out=tmp_path / "b") == (result, 0)
    names = [path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.cpp")]
    assert len(names) > 2
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert generator.run_generator(("gfx950",))[1] == 1


def test_generator_is_isolated_from_the_machine(
    generator: Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: kernels that depend on variables, installed packages, or the directory."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path/installed.py").write_text("")
    environment = (
        "'QOLA_X' in os.environ, os.listdir('.'), [p for p in sys.path if os.path.isdir(p)]"
    )
    find = "__import__('importlib.util').util.find_spec"
    packages = f"[{find}(name) is None for name in ('tests', 'installed', 'pytest', 'numpy')]"
    # The generator writes the values into each kernel.
    script = generator.tree.root / generator.tree.fmha_dir / "generate.py"
    text = script.read_text()
    assert text.count('KERNEL = """') == 1
    values = f'KERNEL = "// " + str([{environment}, {packages}, hash("x")]) + """'
    start = "from __future__ import annotations\n"
    text = text.replace('KERNEL = """', values).replace(start, f"{start}import os, sys\n", 1)
    script.write_text(text)
    first, _ = generator.run_generator(cached=False)
    for name, value in (("QOLA_X", "1"), ("PYTHONPATH", str(tmp_path / "path"))):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    second, _ = generator.run_generator(cached=False, out=out)
    assert {k.sha256 for k in second.kernels} == {k.sha256 for k in first.kernels}
    line = (out / first.kernels[0].file).read_text().splitlines()[0]
    assert "[True, True, True, True]" in line
    assert os.path.dirname(pytest.__file__) not in line
