"""qola init: the starter manifest, and where it is written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from qola.cli import command_line as cli
from qola.inspect.planned import plan_of
from qola.inspect.serving import entries_of, serving_manifest
from qola.manifest.fields import FUNCTIONS, MODULES, OVERRIDE_KEYS, TABLES
from qola.manifest.json_schema import schema_text
from qola.manifest.load import load, loads
from qola.manifest.starter import starter_manifest
from qola.plan.modules import ModuleReport
from tests.support.later_tree import write_pybind_tree

Init = Callable[..., tuple[int, str, str]]


@pytest.fixture
def init(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Init:
    """Return a function that runs ``qola init`` in an empty directory."""

    def call(*words: str) -> tuple[int, str, str]:
        code = cli.main(["init", *words], {}, directory=tmp_path)
        return code, *capsys.readouterr()

    return call


def test_the_text(repo_root: Path) -> None:
    """Prevents: a change to the starter manifest that nobody has read."""
    expected = (repo_root / "tests/golden/starter.toml").read_text("utf-8")
    assert starter_manifest() == expected, "python -m qola init - > tests/golden/starter.toml"


def test_it_plans_and_is_small(aiter_tree: Path, tmp_path: Path) -> None:
    """Prevents: a first build that fails, or that takes hours."""
    file = tmp_path / "qola.toml"
    file.write_text(starter_manifest(), "utf-8")
    environ = {"QOLA_CACHE_HOME": str(tmp_path / "cache")}
    plan = plan_of(file, aiter_root=aiter_tree, environ=environ)
    assert plan.name == "qola"
    # CK of the pinned AITER has faulty kernels for gfx950.
    assert [w for w in plan.warnings if "guide/health.md" not in w.fix] == []
    assert [module.library for module in plan.modules] == ["mine_libmha_fwd.so"]
    assert 0 < len(plan.kernels) < 30


def test_every_key_is_mentioned() -> None:
    """Prevents: a key that somebody defines and that a beginner never hears of."""
    sections = re.split(r"^#?(?=\[)", starter_manifest(), flags=re.MULTILINE)
    # Only manifests in mode aiter have functions.
    for table in (table for table in TABLES if table is not FUNCTIONS):
        section = next(s for s in sections if s.startswith(f"{table.header}\n"))
        written = set(re.findall(r"^#?(\w+) = ", section, re.MULTILINE))
        listed = OVERRIDE_KEYS if table is MODULES else frozenset()
        assert written == set(table.by_key) - listed
        assert all(key in section for key in listed)


def test_every_line_that_is_left_out_may_be_put_in() -> None:
    """Prevents: an example beside a key that the key does not accept."""
    lines = starter_manifest().split("\n")
    candidates = [n for n, line in enumerate(lines) if re.match(r"#(\w+ = |\[)", line)]
    assert len(candidates) > 25
    everything = [line[1:] if n in candidates else line for n, line in enumerate(lines)]
    manifest = loads("\n".join(everything), file="qola.toml")
    assert {module.name for module in manifest.modules} == {"libmha_fwd", "libmha_bwd"}
    # One at a time too: all at once, a line might stand in for another.
    own = [n for n in candidates[: lines.index("#[[modules]]")] if n < lines.index("#[[modules]]")]
    for n in own:
        loads("\n".join([*lines[:n], lines[n][1:], *lines[n + 1 :]]), file="qola.toml")


def test_it_writes_qola_toml(init: Init, tmp_path: Path) -> None:
    """Prevents: a manifest of another name than the one the next command is shown for."""
    code, out, err = init()
    assert (code, err) == (0, "")
    assert out == "qola.toml written; next: qola plan qola.toml\n"
    assert (tmp_path / "qola.toml").read_text() == starter_manifest()


def test_options_reach_the_text(init: Init, tmp_path: Path) -> None:
    """Prevents: an option that is parsed and forgotten; a first contact that is a complaint."""
    assert init("mine.toml", "--namespace", "te", "--arch", "gfx942", "--arch", "gfx950")[0] == 0
    manifest = load(tmp_path / "mine.toml")
    assert manifest.warnings == ()
    assert (manifest.namespace, manifest.architectures) == ("te", ("gfx942", "gfx950"))
    assert "qola plan mine.toml\n" in (tmp_path / "mine.toml").read_text()


def test_standard_output(init: Init, tmp_path: Path) -> None:
    """Prevents: a file called "-", or anything but the manifest on standard output."""
    assert init("-") == (0, starter_manifest(), "")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_not_overwritten(init: Init, tmp_path: Path) -> None:
    """Prevents: the loss of a manifest that somebody wrote."""
    (tmp_path / "qola.toml").write_text("# mine\n")
    code, out, err = init("--schema")
    assert (code, out) == (2, "")
    assert "error: qola.toml\n" in err
    assert "--overwrite" in err
    assert [file.name for file in tmp_path.iterdir()] == ["qola.toml"]
    assert (tmp_path / "qola.toml").read_text() == "# mine\n"
    assert init("--overwrite")[0] == 0
    assert (tmp_path / "qola.toml").read_text() == starter_manifest()


def test_the_schema_beside_it(init: Init, tmp_path: Path) -> None:
    """Prevents: a first line that names a schema which is not there."""
    (tmp_path / "sub").mkdir()
    assert init("sub/a.toml", "--schema")[0] == 0
    first = (tmp_path / "sub/a.toml").read_text().split("\n", 1)[0]
    schema = tmp_path / "sub" / first.removeprefix("#:schema ")
    assert schema.read_text("utf-8") == schema_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--namespace", "a::b"], 'error: --namespace\n  found     "a::b"'),
        (["--namespace", "std"], "error: --namespace\n"),
        (["--arch", "gfx1199"], 'error: --arch\n  found     "gfx1199"'),
        (["--arch", "native,gfx950"], "error: --arch\n"),
        (["a.toml", "b.toml"], "one file"),
        (["-", "--schema"], "error: --schema\n"),
        (["nowhere/a.toml"], "mkdir -p nowhere"),
    ],
)
def test_what_cannot_be_written(words: list[str], message: str, init: Init, tmp_path: Path) -> None:
    """Prevents: a starter manifest that no command accepts, or an error that helps nobody."""
    code, out, err = init(*words)
    assert (code, out) == (2, "")
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_not_utf_8(init: Init, tmp_path: Path) -> None:
    """Prevents: a traceback, or a line of the manifest, by the name of its file."""
    for name in (os.fsdecode(b"\xff.toml"), "a\nb = 1.toml"):
        code, _, said = init(name)
        assert code == 0, said
        assert load(tmp_path / name).namespace


def test_all_modules_that_aiter_s_python_imports(init: Init, tmp_path: Path) -> None:
    """Prevents: a manifest with a module that cannot be planned, or that hides why."""
    tree = write_pybind_tree(tmp_path / "tree")
    options = ("--for", "aiter", "--aiter-root", str(tree), "--arch", "gfx950")
    code, out, err = init("serve.toml", *options)
    assert (code, out) == (0, "serve.toml written; next: qola plan serve.toml\n"), err
    manifest = load(tmp_path / "serve.toml")
    assert manifest.for_aiter
    assert [module.name for module in manifest.modules] == ["module_custom", "module_literal"]
    text = (tmp_path / "serve.toml").read_text("utf-8")
    reason = "PyInit_module_another, while Python calls"
    assert re.search(rf'{reason}.*\n#[^[]*\[\[modules]]\n#name = "module_other"\n', text)
    assert "libmha_fwd" not in text
    environ = {"QOLA_CACHE_HOME": str(tmp_path / "cache")}
    plan = plan_of(tmp_path / "serve.toml", aiter_root=tree, environ=environ)
    assert [m.symbol for m in plan.python_modules] == [
        "PyInit_module_custom",
        "PyInit_module_literal",
    ]


def test_modules_that_do_not_link_or_that_nothing_calls() -> None:
    """Prevents: hours of a build that fails, or that makes modules for AITER's tuner."""
    rocm = ModuleReport("module_hipb", "torch module", ("torch", "of ROCm: hipblaslt"), True, "")
    tuner = ModuleReport("module_gemm_tune", "torch module", ("torch",), True, "")
    fine = ModuleReport("module_norm", "torch module", ("torch", "of ROCm: hipcub"), True, "")
    reports = (rocm, tuner, fine)
    text = serving_manifest(entries_of(reports), ("gfx950",), aiter_id="", file="m.toml", names={})
    assert [module.name for module in loads(text, file="m.toml").modules] == ["module_norm"]
    assert "# needs hipblaslt of a ROCm on this machine: QOLA_ROCM=/opt/rocm\n#[[modules]]" in text
    assert "# only AITER's tuner imports it\n#[[modules]]" in text


def test_the_example_of_functions() -> None:
    """Prevents: an example whose lines a reader puts in, and that is refused."""
    text = serving_manifest((), ("gfx950",), aiter_id="", file="m.toml", names={})
    before, header, example = text.partition("#[[functions]]")
    lines = (header + example).splitlines()
    manifest = loads("\n".join([before, *(line[1:] for line in lines)]), file="m.toml")
    (function,) = manifest.functions
    assert (function.name, len([*function.combinations()])) == ("pa_ragged", 2)


CALLS = """
@compile_ops("module_custom")
def rms_norm(x): ...

@compile_ops("module_other")
def topk_softmax(x): ...
"""


def test_modules_that_a_server_calls(init: Init, tmp_path: Path) -> None:
    """Prevents: a manifest with modules that the server never calls, or without their reason."""
    tree = write_pybind_tree(tmp_path / "tree")
    (tree / "aiter/ops").mkdir()
    (tree / "aiter/ops/all.py").write_text(CALLS, "utf-8")
    options = ("--for", "vllm", "--aiter-root", str(tree), "--arch", "gfx950")
    code, _, err = init("serve.toml", *options)
    assert code == 0, err
    text = (tmp_path / "serve.toml").read_text("utf-8")
    assert [module.name for module in load(tmp_path / "serve.toml").modules] == ["module_custom"]
    assert '# for rms_norm\n[[modules]]\nname = "module_custom"\n' in text
    assert '#name = "module_other"' in text
    assert "module_other is a comment with the reason" in err
    assert "module_literal" not in text
    assert "# Those that vllm-project/vllm calls, in vllm/_aiter_ops.py (" in text


def test_native_archs_of_modules(
    init: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: modules planned for an arch of the name native, which all are refused."""
    write_pybind_tree(tmp_path / "aiter")
    monkeypatch.setattr("qola.manifest.archs.native_archs", lambda: ("gfx942",))
    words = ("--for", "aiter", "--arch", "native", "--aiter-root", "aiter")
    code, out, _ = init("-", *words)
    assert code == 0
    assert loads(out, file="-").architectures == ("gfx942",)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--for", "aiter", "--namespace", "te"), "--namespace te and --for aiter"),
        (("--aiter-root", "."), "--aiter-root . without --for aiter"),
        (("--for", "aiter", "--arch", "gfx95", "--aiter-root", "."), '"gfx95"'),
    ],
)
def test_options_that_do_not_go_together(init: Init, words: tuple[str, ...], found: str) -> None:
    """Prevents: an option without effect, and an arch that is refused once for each module."""
    code, out, err = init(*words)
    assert (code, out) == (2, "")
    assert found in err
    assert err.count("error:") == 1
