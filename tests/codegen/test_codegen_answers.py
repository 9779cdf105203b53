"""Answers of CK's generator: cached for unmodified fetched trees, computed each time for others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qola.aiter.tree import AiterTree
from qola.codegen import generate
from qola.codegen.process import run_module
from qola.codegen.types import KernelSet, Selection
from qola.common.answers import NO_ANSWERS
from qola.common.folder import Folder
from qola.fetch.fetched import record_digest, tree_answers
from tests.codegen.fake_ck import make_tree

BOTH = ("gfx942", "gfx950")


class Generator:
    """CK's generator in a tree of the test, and a counter of its runs."""

    def __init__(self, root: Path) -> None:
        self.tree: AiterTree = make_tree(root / "tree")
        self.environ = {"QOLA_CACHE_HOME": str(root / "cache")}
        self.script = self.tree.root / self.tree.fmha_dir / "generate.py"
        self.runs = 0

    def run_generator(
        self, archs: tuple[str, ...] = BOTH, *, cached: bool = True, out: Path | None = None
    ) -> tuple[KernelSet, int]:
        """Return the generated kernels, and the number of runs of the generator."""
        before = self.runs
        selection = Selection(keep_unreachable=True)
        module = self.tree.module("libmha_fwd")
        with tree_answers(self.tree.root, self.environ) if cached else NO_ANSWERS as answers:
            found = generate.generate(
                self.tree, module, selection, archs, Folder(out), cached=answers
            )
        return found, self.runs - before


@pytest.fixture
def generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator:
    generator = Generator(tmp_path)

    def run_and_count(module: str, arguments: list[str], *, cwd: Path, place: str) -> None:
        generator.runs += 1
        run_module(module, arguments, cwd=cwd, place=place)

    monkeypatch.setattr("qola.codegen.generate.run_module", run_and_count)
    return generator


@pytest.fixture
def fetched(generator: Generator) -> Generator:
    """Return a generator whose tree has the digest of a fetched tree."""
    record_digest(generator.tree.root)
    return generator


def test_answer_is_cached(fetched: Generator, tmp_path: Path) -> None:
    """Prevents: a generator that runs although its answer is cached, or wrong cached files."""
    result, runs = fetched.run_generator(cached=False, out=tmp_path / "a")
    assert (runs, len(result.kernels) > 0) == (1, True)
    assert fetched.run_generator() == (result, 1)
    assert fetched.run_generator(out=tmp_path / "b") == (result, 0)
    names = [path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.cpp")]
    assert len(names) > 2
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert fetched.run_generator(("gfx950",))[1] == 1


def use_in_kernels(generator: Generator, expression: str) -> None:
    """Make the generator write the value of an expression into each kernel."""
    text = generator.script.read_text()
    assert text.count('KERNEL = """') == 1
    head = f'KERNEL = "// " + str({expression}) + """'
    start = "from __future__ import annotations\n"
    text = text.replace('KERNEL = """', head).replace(start, f"{start}import os, sys\n", 1)
    generator.script.write_text(text)


def source_digests(kernels: KernelSet) -> set[str]:
    return {kernel.sha256 for kernel in kernels.kernels}


def test_edited_generator_runs_each_time(fetched: Generator) -> None:
    """Prevents: cached answers for a generator that was edited after the fetch."""
    fetched.run_generator()
    use_in_kernels(fetched, "os.path.exists('/')")
    assert [fetched.run_generator()[1], fetched.run_generator()[1]] == [1, 1]


def test_edit_during_a_run_is_not_cached(
    fetched: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: the answer of an edited generator, cached as an answer of the fetched generator."""
    text = fetched.script.read_text()
    run = run_module

    def edit_and_run(*args: object, **more: object) -> None:
        use_in_kernels(fetched, "'edited'")
        run(*args, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr("qola.codegen.generate.run_module", edit_and_run)
        fetched.run_generator()
    fetched.script.write_text(text)
    assert fetched.run_generator()[1] == 1


def test_generator_is_isolated_from_the_machine(
    fetched: Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: kernels that depend on variables, installed packages, or the directory."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path/installed.py").write_text("")
    environment = (
        "'QOLA_X' in os.environ, os.listdir('.'), [p for p in sys.path if os.path.isdir(p)]"
    )
    find = "__import__('importlib.util').util.find_spec"
    packages = f"[{find}(name) is None for name in ('tests', 'installed', 'pytest', 'numpy')]"
    use_in_kernels(fetched, f"[{environment}, {packages}, hash('x')]")
    record_digest(fetched.tree.root)
    first, _ = fetched.run_generator(cached=False)
    for name, value in (("QOLA_X", "1"), ("PYTHONPATH", str(tmp_path / "path"))):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.chdir(tmp_path)
    assert source_digests(fetched.run_generator(cached=False)[0]) == source_digests(first)
    kernel = next(iter(first.kernels))
    out = tmp_path / "out"
    fetched.run_generator(cached=False, out=out)
    line = (out / kernel.file).read_text().splitlines()[0]
    assert "[True, True, True, True]" in line
    assert os.path.dirname(pytest.__file__) not in line
