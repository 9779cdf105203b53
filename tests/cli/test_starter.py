"""qola init: the starter manifest, and its file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from qola.cli import command_line as cli
from qola.cli.init import InitError, _checked
from qola.manifest.constants import TESTED_ARCHS
from qola.manifest.fields import FUNCTIONS, MODULES, OVERRIDE_KEYS, TABLES
from qola.manifest.json_schema import schema_text
from qola.manifest.load import load, loads
from qola.manifest.starter import starter_manifest, starter_tables
from qola.manifest.toml import TomlText
from qola.plan.modules import ModuleReport
from qola.query.planned import plan_of
from qola.query.serving import entries_of, serving_manifest
from qola_base.errors import ManifestError
from tests.support.later_tree import write_pybind_tree

Init = Callable[..., tuple[int, str, str]]


@pytest.fixture
def init(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Init:
    """Return a function that runs ``qola init`` in an empty directory."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(["init", *arguments], {}, directory=tmp_path)
        return code, *capsys.readouterr()

    return call


def test_the_text(repo_root: Path) -> None:
    """Prevents: a change of the starter manifest that no reviewer has read."""
    expected = (repo_root / "tests/golden/starter.toml").read_text("utf-8")
    assert starter_manifest() == expected, "python -m qola init - > tests/golden/starter.toml"


def test_the_starter_manifest_plans_and_is_small(aiter_tree: Path, tmp_path: Path) -> None:
    """Prevents: a first build fails, takes hours, or has a kernel with a proven fault."""
    file = tmp_path / "qola.toml"
    file.write_text(starter_manifest(archs=TESTED_ARCHS), "utf-8")
    environ = {"QOLA_CACHE_HOME": str(tmp_path / "cache")}
    plan = plan_of(file, aiter_root=aiter_tree, environ=environ)
    assert plan.name == "qola"
    assert plan.warnings == ()
    assert [module.library for module in plan.modules] == ["mine_libmha_fwd.so"]
    assert 0 < len(plan.kernels) < 30


def test_the_manifest_of_the_readme_has_no_proven_fault(
    aiter_tree: Path, repo_root: Path, tmp_path: Path
) -> None:
    """Prevents: the first manifest that a reader copies selects faulty kernels."""
    (text,) = re.findall(r"```toml\n(.*?)```", (repo_root / "README.md").read_text(), re.DOTALL)
    file = tmp_path / "mine.toml"
    file.write_text(text)
    environ = {"QOLA_CACHE_HOME": str(tmp_path / "cache")}
    plan = plan_of(file, aiter_root=aiter_tree, environ=environ)
    assert plan.warnings == ()
    assert f"# {len(plan.kernels)} kernels" in (repo_root / "README.md").read_text()


def test_every_key_is_mentioned() -> None:
    """Prevents: the starter manifest omits a key."""
    sections = re.split(r"^#?(?=\[)", starter_manifest(), flags=re.MULTILINE)
    # Only manifests in mode aiter have functions.
    for table in (table for table in TABLES if table is not FUNCTIONS):
        section = next(s for s in sections if s.startswith(f"{table.header}\n"))
        written = set(re.findall(r"^#?(\w+) = ", section, re.MULTILINE))
        listed = OVERRIDE_KEYS if table is MODULES else frozenset()
        assert written == set(table.by_key) - listed
        assert all(key in section for key in listed)


def test_every_commented_line_is_valid() -> None:
    """Prevents: a commented example line is invalid."""
    lines = starter_manifest().split("\n")
    candidates = [n for n, line in enumerate(lines) if re.match(r"#(\w+ = |\[)", line)]
    assert len(candidates) > 25
    everything = [line[1:] if n in candidates else line for n, line in enumerate(lines)]
    manifest = loads("\n".join(everything), file="qola.toml")
    assert {module.name for module in manifest.modules} == {"libmha_fwd", "libmha_bwd"}
    # Also separately: together, a line might satisfy the requirement of another line.
    top_level = [
        n for n in candidates[: lines.index("#[[modules]]")] if n < lines.index("#[[modules]]")
    ]
    for n in top_level:
        loads("\n".join([*lines[:n], lines[n][1:], *lines[n + 1 :]]), file="qola.toml")


def test_init_writes_qola_toml(init: Init, tmp_path: Path) -> None:
    """Prevents: init writes another file than the suggested next command reads."""
    code, out, err = init()
    assert (code, err) == (0, "")
    assert out == "qola.toml written; next: qola plan qola.toml\n"
    assert (tmp_path / "qola.toml").read_text() == starter_manifest()


def test_options_reach_the_text(init: Init, tmp_path: Path) -> None:
    """Prevents: init ignores an option, or the new manifest has warnings."""
    assert init("mine.toml", "--namespace", "te", "--arch", "gfx942", "--arch", "gfx950")[0] == 0
    manifest = load(tmp_path / "mine.toml")
    assert manifest.warnings == ()
    assert (manifest.namespace, manifest.archs) == ("te", ("gfx942", "gfx950"))
    assert "qola plan mine.toml\n" in (tmp_path / "mine.toml").read_text()


def test_standard_output(init: Init, tmp_path: Path) -> None:
    """Prevents: init writes a file called "-", or other text to standard output."""
    assert init("-") == (0, starter_manifest(), "")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_not_overwritten(init: Init, tmp_path: Path) -> None:
    """Prevents: init overwrites a user's manifest."""
    (tmp_path / "qola.toml").write_text("# mine\n")
    code, out, err = init("--schema")
    assert (code, out) == (2, "")
    assert "error: qola.toml\n" in err
    assert "--overwrite" in err
    assert [file.name for file in tmp_path.iterdir()] == ["qola.toml"]
    assert (tmp_path / "qola.toml").read_text() == "# mine\n"
    assert init("--overwrite")[0] == 0
    assert (tmp_path / "qola.toml").read_text() == starter_manifest()


def test_the_schema_file(init: Init, tmp_path: Path) -> None:
    """Prevents: the first line names a schema file that does not exist."""
    (tmp_path / "sub").mkdir()
    assert init("sub/a.toml", "--schema")[0] == 0
    first = (tmp_path / "sub/a.toml").read_text().split("\n", 1)[0]
    schema = tmp_path / "sub" / first.removeprefix("#:schema ")
    assert schema.read_text("utf-8") == schema_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
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
def test_invalid_options(arguments: list[str], message: str, init: Init, tmp_path: Path) -> None:
    """Prevents: init writes a manifest that no command accepts, or an error names no cause."""
    code, out, err = init(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_not_utf_8(init: Init, tmp_path: Path) -> None:
    """Prevents: a file name causes a traceback, or adds a line to the manifest."""
    for name in (os.fsdecode(b"\xff.toml"), "a\nb = 1.toml"):
        code, _, err = init(name)
        assert code == 0, err
        assert load(tmp_path / name).namespace


def test_all_modules_that_aiters_python_imports(init: Init, tmp_path: Path) -> None:
    """Prevents: a module that cannot be planned is listed, or is omitted without the reason."""
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


def test_modules_that_do_not_link_or_are_unused() -> None:
    """Prevents: a build fails after hours, or builds modules that only AITER's tuner uses."""
    rocm = ModuleReport("module_hipb", "torch module", ("torch", "of ROCm: hipblaslt"), True, "")
    tuner = ModuleReport("module_gemm_tune", "torch module", ("torch",), True, "")
    fine = ModuleReport("module_norm", "torch module", ("torch", "of ROCm: hipcub"), True, "")
    reports = (rocm, tuner, fine)
    text = serving_manifest(entries_of(reports), ("gfx950",), aiter_id="", file="m.toml", names={})
    assert [module.name for module in loads(text, file="m.toml").modules] == ["module_norm"]
    assert "# needs hipblaslt of a ROCm on this machine: QOLA_ROCM=/opt/rocm\n#[[modules]]" in text
    assert "# only AITER's tuner imports it\n#[[modules]]" in text


def test_the_example_of_functions() -> None:
    """Prevents: the commented example of [[functions]] is invalid."""
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
    """Prevents: the manifest has modules that the server never calls, or no reason for a module."""
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
    """Prevents: modules are planned for an arch called native, which all modules reject."""
    write_pybind_tree(tmp_path / "aiter")
    monkeypatch.setattr("qola.manifest.archs.native_archs", lambda: ("gfx942",))
    arguments = ("--for", "aiter", "--arch", "native", "--aiter-root", "aiter")
    code, out, _ = init("-", *arguments)
    assert code == 0
    assert loads(out, file="-").archs == ("gfx942",)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("--for", "aiter", "--namespace", "te"), "--namespace te and --for aiter"),
        (("--aiter-root", "."), "--aiter-root . without --for aiter"),
        (("--for", "aiter", "--arch", "gfx95", "--aiter-root", "."), '"gfx95"'),
    ],
)
def test_conflicting_options(init: Init, arguments: tuple[str, ...], found: str) -> None:
    """Prevents: an option has no effect, or a wrong arch is reported once per module."""
    code, out, err = init(*arguments)
    assert (code, out) == (2, "")
    assert found in err
    assert err.count("error:") == 1


@pytest.mark.parametrize(
    "more", ["[prebuilt]\nurls = []\n", "[qola]\n", "x = 1\n", "\x1b", "#\r[prebuilt]\n", '"""']
)
def test_a_manifest_is_read_back(more: str) -> None:
    """Prevents: a manifest with tables that nobody chose, from text that was not quoted."""
    tables = starter_tables("mine", ("gfx950",))
    made = TomlText(starter_manifest("mine", ("gfx950",)), tables)
    assert _checked(made, "qola.toml") == made.text
    for text in (f"{made.text}\n{more}", f"{more}\n{made.text}"):
        with pytest.raises((InitError, ManifestError)):
            _checked(replace(made, text=text), "qola.toml")
    with pytest.raises(InitError, match="other values"):
        _checked(replace(made, tables={**tables, "qola": {"namespace": "other"}}), "qola.toml")
