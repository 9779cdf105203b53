"""Answers of CK's generator: cached for trees as fetched, computed each time for others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qola.aiter.tree import AiterTree
from qola.answers import NO_ANSWERS
from qola.codegen import generate
from qola.codegen.process import run_module
from qola.codegen.types import KernelSet, Selection
from qola.errors import CodegenError
from qola.fetch.fetched import record_digest, tree_answers
from qola.folder import Folder
from tests.codegen.fake_ck import make_tree

BOTH = ("gfx942", "gfx950")


class Generator:
    """CK's generator in a tree of a test's own, with the answers it gave."""

    def __init__(self, root: Path) -> None:
        self.tree: AiterTree = make_tree(root / "tree")
        self.environ = {"QOLA_CACHE_HOME": str(root / "cache")}
        self.script = self.tree.root / self.tree.fmha_dir / "generate.py"
        self.runs = 0

    def ask(
        self, archs: tuple[str, ...] = BOTH, *, cached: bool = True, out: Path | None = None
    ) -> tuple[KernelSet, int]:
        """Return the generated files, and the number of runs of the generator."""
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
    made = Generator(tmp_path)

    def counted(module: str, arguments: list[str], *, cwd: Path, place: str) -> None:
        made.runs += 1
        run_module(module, arguments, cwd=cwd, place=place)

    monkeypatch.setattr("qola.codegen.generate.run_module", counted)
    return made


@pytest.fixture
def fetched(generator: Generator) -> Generator:
    """A generator in a tree that qola has just fetched."""
    record_digest(generator.tree.root)
    return generator


def test_an_answer_is_cached(fetched: Generator, tmp_path: Path) -> None:
    """Prevents: a generator that runs although its answer is cached, or wrong files from it."""
    found, runs = fetched.ask(cached=False, out=tmp_path / "a")
    assert (runs, len(found.kernels) > 0) == (1, True)
    assert fetched.ask() == (found, 1)
    assert fetched.ask(out=tmp_path / "b") == (found, 0)
    names = [path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.cpp")]
    assert len(names) > 2
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert fetched.ask(("gfx950",))[1] == 1


def use_in_kernels(generator: Generator, expression: str) -> None:
    """Have the generator put the value of an expression into each kernel."""
    text = generator.script.read_text()
    assert text.count('KERNEL = """') == 1
    head = f'KERNEL = "// " + str({expression}) + """'
    start = "from __future__ import annotations\n"
    text = text.replace('KERNEL = """', head).replace(start, f"{start}import os, sys\n", 1)
    generator.script.write_text(text)


def sources(found: KernelSet) -> set[str]:
    return {kernel.sha256 for kernel in found.kernels}


def test_a_generator_edited_after_the_fetch_runs_each_time(fetched: Generator) -> None:
    """Prevents: the answer of the generator as it was, or one that an edit made depend on more."""
    fetched.ask()
    use_in_kernels(fetched, "os.path.exists('/')")
    assert [fetched.ask()[1], fetched.ask()[1]] == [1, 1]


def test_an_edit_while_a_generator_runs(
    fetched: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: the answer of an edited generator, cached as that of the fetched one."""
    text = fetched.script.read_text()
    run = run_module

    def edited(*args: object, **more: object) -> None:
        use_in_kernels(fetched, "'edited'")
        run(*args, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr("qola.codegen.generate.run_module", edited)
        fetched.ask()
    fetched.script.write_text(text)
    assert fetched.ask()[1] == 1


def test_nothing_of_the_machine_reaches_a_generator(
    fetched: Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: kernels that depend on variables, installed packages, or the directory."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path/installed.py").write_text("")
    wanted = "'QOLA_X' in os.environ, os.listdir('.'), [p for p in sys.path if os.path.isdir(p)]"
    find = "__import__('importlib.util').util.find_spec"
    found = f"[{find}(name) is None for name in ('tests', 'installed', 'pytest', 'numpy')]"
    use_in_kernels(fetched, f"[{wanted}, {found}, hash('x')]")
    record_digest(fetched.tree.root)
    first, _ = fetched.ask(cached=False)
    for name, value in (("QOLA_X", "1"), ("PYTHONPATH", str(tmp_path / "path"))):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.chdir(tmp_path)
    assert sources(fetched.ask(cached=False)[0]) == sources(first)
    kernel = next(iter(first.kernels))
    out = tmp_path / "out"
    fetched.ask(cached=False, out=out)
    line = (out / kernel.file).read_text().splitlines()[0]
    assert "[True, True, True, True]" in line
    assert os.path.dirname(pytest.__file__) not in line


def test_an_error_is_not_cached(fetched: Generator) -> None:
    """Prevents: a failure that stays, such as of a full disk."""
    text = fetched.script.read_text()
    fetched.script.write_text(f"{text}\nraise SystemExit('no')\n")
    record_digest(fetched.tree.root)
    for _ in range(2):
        before = fetched.runs
        with pytest.raises(CodegenError):
            fetched.ask()
        assert fetched.runs == before + 1
