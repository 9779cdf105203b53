"""Kept answers of CK's generator: what makes a new one, and what is never kept."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qola.aiter.tree import AiterTree, read_tree
from qola.codegen import answers, generate, kept
from qola.codegen.process import run_module
from qola.codegen.types import KernelSet, Selection
from qola.errors import CodegenError
from qola.folder import Folder
from tests.python.codegen.fake_ck import make_tree

BOTH = ("gfx942", "gfx950")
KEY = "0" * 64


class Generator:
    """CK's generator in a tree of a test's own, with the answers it gave."""

    def __init__(self, tree: AiterTree, known: Path) -> None:
        self.tree = tree
        self.known = known
        self.folder = tree.root / tree.fmha_dir
        self.runs = 0

    def entries(self) -> list[Path]:
        """Return the files of kept answers."""
        return sorted(self.known.iterdir()) if self.known.is_dir() else []

    def ask(self, archs: tuple[str, ...] = BOTH, *, known: bool = True) -> tuple[KernelSet, int]:
        """Return what is generated, and how often the generator ran for it."""
        before = self.runs
        selection = Selection(keep_unreachable=True)
        module = self.tree.module("libmha_fwd")
        where = self.known if known else None
        found = generate.generate(self.tree, module, selection, archs, Folder(), known=where)
        return found, self.runs - before


@pytest.fixture
def generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator:
    made = Generator(make_tree(tmp_path / "tree"), tmp_path / "cache/generated")

    def counted(module: str, arguments: list[str], *, cwd: Path, place: str) -> None:
        made.runs += 1
        run_module(module, arguments, cwd=cwd, place=place)

    monkeypatch.setattr("qola.codegen.generate.run_module", counted)
    return made


def append(path: Path, text: str) -> None:
    path.write_text((path.read_text() if path.exists() else "") + text)


def test_an_answer_is_kept(generator: Generator) -> None:
    """Prevents: a generator that runs for what it has said before, or another plan for it."""
    found, runs = generator.ask(known=False)
    assert (runs, generator.entries()) == (1, [])
    assert generator.ask() == (found, 1)
    assert len(generator.entries()) == 1
    assert generator.ask() == (found, 0)
    assert found.kernels


def test_files_are_written_from_a_kept_answer(generator: Generator, tmp_path: Path) -> None:
    """Prevents: a plan whose sources are nowhere, since nobody generated them."""
    generator.ask()
    generator.known, was = tmp_path / "none", generator.known
    texts = []
    for known in (generator.known, was):
        out = tmp_path / f"out-{known.name}"
        module = generator.tree.module("libmha_fwd")
        generate.generate(generator.tree, module, Selection(), BOTH, Folder(out), known=known)
        files = [path for path in sorted(out.rglob("*")) if path.is_file()]
        texts.append({str(path.relative_to(out)): path.read_bytes() for path in files})
    assert texts[0] == texts[1]
    assert len(texts[0]) > 2


Edit = Callable[[Generator, Path, pytest.MonkeyPatch], None]

EDITS: dict[str, Edit] = {
    "the generator": lambda g, _, __: append(g.folder / "generate.py", "# later\n"),
    "what it imports": lambda g, _, __: append(g.folder / "switches.py", "LATER = True\n"),
    "a module that shadows Python's": lambda g, _, __: append(g.folder / "fnmatch.py", ""),
    "a file in a directory below": lambda g, _, __: append(g.folder / "ops/new.py", ""),
    "a link to a directory": lambda g, root, _: (g.folder / "more").symlink_to(root),
    "an empty directory": lambda g, _, __: (g.folder / "empty").mkdir(),
    "Python": lambda _, __, patch: patch.setattr(sys, "version", "3.99.0 (main)"),
    "a module of qola": lambda _, root, __: append(root / "qola/codegen/ck/rows.py", "# later\n"),
    "what a link leads to": lambda _, root, __: append(root / "linked", "later"),
    "a module beside qola": lambda _, root, __: append(root / "fnmatch.py", ""),
}


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of qola that the key is of."""
    root = tmp_path / "copy"
    shutil.copytree(answers._PACKAGE, root / "qola", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(answers, "_PACKAGE", root / "qola")
    return root


@pytest.mark.quick(4)
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_makes_a_new_answer(
    generator: Generator, beside: Path, monkeypatch: pytest.MonkeyPatch, edit: str
) -> None:
    """Prevents: a stale answer, after an edit of something that decides it."""
    (generator.folder / "ops").mkdir()
    (beside / "linked").write_text("")
    (generator.folder / "ops/link").symlink_to(beside / "linked")
    assert generator.ask()[1] == 1
    assert generator.ask()[1] == 0
    EDITS[edit](generator, beside, monkeypatch)
    assert generator.ask()[1] == 1


def test_another_request_or_tree_has_another_answer(generator: Generator, tmp_path: Path) -> None:
    """Prevents: kernels of other archs, or of a tree that only looks alike."""
    generator.ask()
    assert generator.ask(("gfx950",))[1] == 1
    shutil.copytree(generator.tree.root, tmp_path / "twin")
    generator.tree = read_tree(tmp_path / "twin")
    assert generator.ask()[1] == 1


def read_in(generator: Generator, file: str) -> None:
    """Have the generator put what a file beside it, or elsewhere, says into each kernel."""
    script = generator.folder / "generate.py"
    text = script.read_text()
    assert text.count('KERNEL = """') == 1
    head = f'KERNEL = "// " + (Path(__file__).parent / {file!r}).read_text() + """'
    script.write_text(text.replace('KERNEL = """', head))


def sources(found: KernelSet) -> set[str]:
    return {kernel.sha256 for kernel in found.kernels}


@pytest.mark.parametrize(("header", "again"), [("fmha_fwd.hpp", 0), ("../../../include/ck.hpp", 1)])
def test_a_header_that_is_read_makes_a_new_answer(
    generator: Generator, header: str, again: int
) -> None:
    """Prevents: kernels of a header as it was, whether it lies beside the generator or not."""
    file = generator.folder / header
    file.parent.mkdir(exist_ok=True)
    file.write_text("before\n")
    read_in(generator, header)
    first, _ = generator.ask()
    assert generator.ask() == (first, again)
    file.write_text("after\n")
    second, runs = generator.ask()
    assert runs == 1
    assert not sources(first) & sources(second)


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    "line",
    [
        "os.listdir('/')",
        "os.scandir(HERE + '/..').close()",
        "import subprocess; subprocess.run(['true'])",
        "os.system('true')",
        "import socket; socket.gethostname()",
        "open('/proc/cpuinfo').close()",
        "os.close(os.open('/etc/passwd', os.O_RDONLY))",
        "open(HERE + '/linked/file').close()",
        "open(HERE + '/linked/../switches.py').close()",
        "sys.path.insert(0, HERE + '/../lib'); import absent_module",
        "open(HERE + '/made.py', 'w').close()",
        "open(HERE + '/switches.py', 'a').write('#')",
    ],
)
def test_what_looks_elsewhere_is_not_kept(generator: Generator, tmp_path: Path, line: str) -> None:
    """Prevents: an answer that something decided which is in no key."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").write_text("")
    (tmp_path / "switches.py").write_text("")
    (generator.folder.parent / "lib").mkdir()
    (generator.folder / "linked").symlink_to(tmp_path / "elsewhere")
    code = f"import os, sys\nHERE = os.path.dirname(os.path.abspath(__file__))\ntry:\n    {line}\n"
    code += "except ImportError:\n    pass\n"
    script = generator.folder / "generate.py"
    start = "from __future__ import annotations\n"
    script.write_text(script.read_text().replace(start, start + code, 1))
    assert generator.ask()[1] == 1
    assert generator.entries() == []


def test_an_error_is_not_kept(generator: Generator) -> None:
    """Prevents: a failure that stays, such as of a full disk."""
    append(generator.folder / "generate.py", "\nraise SystemExit('no')\n")
    with pytest.raises(CodegenError):
        generator.ask()
    assert generator.entries() == []


def damaged(entry: Path, how: str) -> None:
    data = entry.read_bytes()
    middle = len(data) // 2
    changed = {
        "cut short": data[:middle],
        "empty": b"",
        "a byte altered": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "longer": data + b"\0",
    }
    entry.write_bytes(changed[how])


@pytest.mark.parametrize("how", ["cut short", "empty", "a byte altered", "longer"])
def test_a_damaged_entry_is_replaced(generator: Generator, how: str) -> None:
    """Prevents: a plan of half an answer, or one that stays broken."""
    found, _ = generator.ask()
    (entry,) = generator.entries()
    good = entry.read_bytes()
    damaged(entry, how)
    assert generator.ask() == (found, 1)
    assert generator.entries() == [entry]
    assert entry.read_bytes() == good
    assert generator.ask() == (found, 0)


def test_an_entry_of_another_name_is_none(tmp_path: Path) -> None:
    """Prevents: an answer to another request, from a cache that was copied or mixed up."""
    kept.put(tmp_path, KEY, b"content")
    assert kept.get(tmp_path, KEY) == b"content"
    other = KEY[:-1] + "1"
    shutil.copyfile(tmp_path / KEY, tmp_path / other)
    assert kept.get(tmp_path, other) is None


def test_what_others_may_write_is_not_read(tmp_path: Path) -> None:
    """Prevents: sources of somebody else's in one's own libraries."""
    place = tmp_path / "kept"
    kept.put(place, KEY, b"content")
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o777)
    assert kept.get(place, KEY) is None
    kept.put(place, KEY[:-1] + "1", b"content")
    assert [path.name for path in place.iterdir()] == [KEY]


def test_a_place_that_takes_nothing_is_no_error(tmp_path: Path) -> None:
    """Prevents: a plan that fails because its answer cannot be kept."""
    (tmp_path / "file").write_text("")
    kept.put(tmp_path / "file/below", KEY, b"content")
    assert kept.get(tmp_path / "file/below", KEY) is None
    (tmp_path / KEY).mkdir()
    kept.put(tmp_path, KEY, b"content")
    assert kept.get(tmp_path, KEY) is None


def test_the_cache_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a cache that grows for ever, or loses what is used most."""
    monkeypatch.setattr(kept, "LIMIT", 3000)
    keys = [KEY[:-1] + str(number) for number in range(4)]
    for age, key in enumerate(keys[:3]):
        kept.put(tmp_path, key, os.urandom(900))
        os.utime(tmp_path / key, (age, age))
    assert kept.get(tmp_path, keys[0]) is not None
    kept.put(tmp_path, keys[3], os.urandom(900))
    assert sorted(path.name for path in tmp_path.iterdir()) == [keys[0], keys[2], keys[3]]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3000
