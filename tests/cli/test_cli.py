"""Run commands on the real AITER tree, and check output, exit codes and remaining files."""

from __future__ import annotations

import argparse
import ast
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from gfxemu.isa import ISAS
from qola.checkout import default_tree as locate
from qola.cli import command_line as cli
from qola.cli.commands import COMMANDS as COMMAND_TABLE
from qola.fetch import fetched as fetched_module
from qola.fetch.fetched import record_digest
from qola.plan.model import Plan
from qola_base.errors import AiterError, ExitCode
from qola_lab.cli.emulate import EMULATED
from tests.support.folders import write
from tests.support.later_tree import write_pybind_tree
from tests.support.waiting import wait_for

MANIFEST = """\
[build]
architectures = ["gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
receipt = 700
drop_srcs = ["gone.cu", "gone.cu"]
[[mha_fwd_variants]]
dtype = "bf16"
hdim = 128
has_bias = false
has_alibi = false
has_dropout = false
"""

PYTHON_MODULE = '[[modules]]\nname = "module_aiter_enum"\nmode = "pybind"\ngroup = "other"\n'
MINE = "manifests/mine.toml"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with a manifest, and create an empty directory for temporary files."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return write(tmp_path / "here", {MINE: MANIFEST})


class Result(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache for all tests, because most tests only read plans."""
    return tmp_path_factory.mktemp("shared") / "cache"


@pytest.fixture(autouse=True)
def fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that qola fetched the tree; no test writes to it."""
    monkeypatch.setattr(fetched_module, "fetched_digest", lambda _: "this tree")


@pytest.fixture
def run(
    here: Path, aiter_tree: Path, shared_cache: Path, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Return a function that runs a command in this process."""

    def call(*arguments: str, tree: bool = True) -> Result:
        options = ["--aiter-root", str(aiter_tree)] if tree else []
        cache = {"QOLA_CACHE_HOME": str(shared_cache)}
        code = cli.main([*arguments, *options], cache, directory=here)
        assert list((here.parent / "temporary").iterdir()) == [], "files are left behind"
        return Result(code, *capsys.readouterr())

    return call


def test_a_command_has_the_parser_of_its_module() -> None:
    """Prevents: a command called by name is unknown, or has other options."""
    commands = cli.build_parser().get_default("commands")
    assert list(cli.build_parser(None).get_default("commands")) == [*COMMAND_TABLE]
    assert sorted(COMMAND_TABLE) == sorted(commands)
    for name in {*COMMAND_TABLE} - {"help"}:
        command = cli.build_parser(name).get_default("commands")[name]
        assert command.format_help() == commands[name].format_help()


def test_the_list_of_commands_imports_no_planner() -> None:
    """Prevents: `qola --help` takes half a second."""
    program = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules)); "
        "from qola.cli import main; main(['--help'])"
    )
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "\n    dispatch " in result.stdout
    modules = result.stdout.splitlines()[-1].split()
    assert "qola.cli.command_line" in modules
    assert not [name for name in modules if name.startswith(("qola.plan", "qola.api", "rich"))]


def change(here: Path) -> None:
    """Change the manifest, so that no cached plan exists. Cached generator answers may exist."""
    with (here / MINE).open("a") as manifest:
        manifest.write(f"# {here}\n")


def test_plan_counts_kernels(run: Run, here: Path) -> None:
    """Prevents: `plan` prints wrong counts, or omits the manifest's warnings."""
    change(here)
    result = run("plan", MINE)
    assert result.code == 0
    assert result.err == "qola: mine: generating kernel instances for gfx950\n"
    lines = result.out.splitlines()
    assert lines[0].startswith("mine: namespace qola, gfx950, AITER 0.1.7")
    assert lines[2:6] == [
        "libmha_fwd: libmha_fwd.so, receipt 700, 14 kernel instances",
        "direction  role  arch    hdim     bf16  batch  group  total",
        "fwd        fwd   gfx950  128x128    14     12      2     14",
        "total                               14     12      2     14",
    ]
    assert "warning: manifests/mine.toml:7 [[modules]].drop_srcs" in lines
    assert "\x1b" not in result.out + result.err


def test_plan_as_json_is_the_plan(run: Run) -> None:
    """Prevents: `plan --json` prints other text, or differs from plan.json."""
    result = run("plan", "--json", "--manifest", MINE, "--name", "other")
    plan = Plan.from_json(result.out)
    assert result.code == 0
    assert plan.name == "other"
    assert len(plan.kernels) == 14
    assert "warning: manifests/mine.toml:7" in result.err
    assert "estimate" not in json.loads(result.out)


@pytest.mark.thorough
def test_answers_are_cached_for_the_next_command(
    run: Run, here: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: each command runs the generators again, or a cached plan differs."""
    change(here)
    first = run("plan", "--json", "-q", MINE)
    explained = run("explain", "--json", "-q", MINE)
    assert list((shared_cache / "generated").iterdir())
    manifest = (here / MINE).read_text()
    # Make each start of CK's generator fail.
    monkeypatch.delattr("qola.codegen.generate.run_module")
    (here / MINE).write_text(f"{manifest}# later\n")
    assert run("plan", "--json", "-q", MINE) == first
    (here / MINE).write_text(manifest)
    # Make each computation of a plan from answers fail.
    monkeypatch.delattr("qola.plan.planner.generate_module")
    assert run("plan", "--json", "-q", MINE) == first
    assert run("explain", "--json", "-q", MINE) == explained
    assert len(run("list", MINE).out.splitlines()) == 14


def test_plan_estimates(run: Run) -> None:
    """Prevents: the estimate ignores the number of cores."""
    arguments = ("plan", MINE, "--estimate", "-q")
    text = run(*arguments, "--jobs", "3").out
    assert "Estimated cost\n" in text
    assert re.search(r"^about \d+ (s|min) on 3 cores, from an empty cache", text, re.MULTILINE)
    assert re.search(r"^an estimate, from costs measured on \S", text, re.MULTILINE)
    data = json.loads(run(*arguments, "--json", "--jobs", "2").out)["estimate"]
    assert data["cores"] == 2
    assert data["cpu_seconds"] > 50
    longest = data["longest_seconds"]
    compiling = data["wall_seconds"] - data["start_seconds"]
    assert compiling == pytest.approx(max(data["cpu_seconds"] / 2, longest), abs=1)


def test_plan_lists_the_sources_of_other_modules(run: Run, here: Path) -> None:
    """Prevents: sources are shown as assembly kernels, or estimated like those of libraries."""
    names = ("module_activation", "module_aiter_operator", "module_attention_asm")
    modules = "".join(f'[[modules]]\nname = "{name}"\n' for name in names)
    (here / "beside.toml").write_text(f'[build]\narchitectures = ["gfx942"]\n{modules}')
    lines = run("plan", "beside.toml", "-q", "--estimate").out.splitlines()
    assert (
        lines[2] == "module_activation: module_activation.so, a torch module, sources: 2 of AITER's"
    )
    assert re.fullmatch(
        r"module_aiter_o.*, a torch module, sources: \d of AITER's, \d+ generated", lines[4]
    )
    assert lines[6].endswith(", a torch module, sources: 2 of AITER's")
    assert lines[7].startswith("code objects of assembly kernels: 40 for gfx942")
    sources = re.findall(r"sources: (\d+) of AITER's(?:, (\d+) generated)?", "\n".join(lines))
    number = sum(int(count) for counts in sources for count in counts if count)
    reason = "seconds to minutes of compiling each, and bytes of the libraries"
    assert f"not estimated: {number} sources ({reason}) of {', '.join(names)}" in lines
    assert not [line for line in lines if line.startswith(("Estimated", "about", "total"))]


def test_prebuilt_modules_for_aiter(run: Run, here: Path) -> None:
    """Prevents: an error that suggests another group of modules."""
    modules = '[[modules]]\nname = "module_activation"\n'
    (here / "serve.toml").write_text(
        f'[build]\narchitectures = ["gfx942"]\nmode = "aiter"\n{modules}'
    )
    fetched = run("fetch", "serve.toml")
    assert fetched.code == 9
    assert "serve.toml:3 [build].mode\n" in fetched.err
    assert "serve.toml --wheel 1.0 makes a wheel" in fetched.err


def test_list_prints_names(run: Run) -> None:
    """Prevents: `list` truncates names, or prints kernels that the filter excludes."""
    every = run("list", MINE, "-q").out.splitlines()
    assert len(every) == 14
    assert all(re.fullmatch(r"fmha_fwd_d128_bf16_\w+_gfx950", line) for line in every)
    group = run("list", "-m", MINE, "-q", "mode=group", "hdim=128", "mask=yes")
    assert group.out.splitlines() == [n for n in every if "_group_" in n and "_mask_" in n]
    long = run("list", "-q", "--long", MINE, "mode=group").out.splitlines()
    assert len(long) == 1 + 2
    assert long[0].split()[-1] == "name"
    assert {line.split()[-1] for line in long[1:]} == {n for n in every if "_group_" in n}
    data = json.loads(run("list", "-q", "--json", MINE, "mode=group").out)
    assert [entry["name"] for entry in data] == [n for n in every if "_group_" in n]
    assert {entry["module"] for entry in data} == {"libmha_fwd"}
    assert data[0]["fields"]["mode"] == "group"


def test_explain_names_the_reason(run: Run) -> None:
    """Prevents: `explain` names no manifest line or rule for an absent kernel."""
    name = run("list", "-q", MINE).out.splitlines()[0]
    included = run("explain", "-q", MINE, f"bazel-bin/x/{name}.pic.o").out
    assert included.splitlines()[:2] == [
        f"{name}: in",
        f"  kept by  {MINE}:8 [[mha_fwd_variants]]",
    ]
    assert "mask=no" in included
    without = [name.replace("_lse_", "_nlse_"), name.replace("_bf16_", "_fp16_")]
    lines = run("explain", "-q", MINE, *without).out.splitlines()
    reasons = sorted(line.split(maxsplit=2)[2] for line in lines)
    assert reasons == ["no variant has dtype=fp16", "receipt 700: lse must be yes"]
    assert {line.split()[1] for line in lines} == set(without)
    several = run("explain", "-q", MINE, "dtype=bf16", "hdim=128", "lse=yes")
    verdicts = [line.split(maxsplit=2) for line in several.out.splitlines()]
    assert sum(word == "in" for word, *_ in verdicts) == 14
    assert several.err == f"14 in, {len(verdicts) - 14} out\n"
    assert all(reason for *_, reason in verdicts)
    arguments = ("explain", "-q", "--json", MINE, "dtype=fp16", "hdim=128", "mode=group", "lse=yes")
    data = json.loads(run(*arguments).out)
    assert {entry["in"] for entry in data} == {False}
    assert all(entry["reasons"] and entry["fields"]["lse"] is True for entry in data)
    assert data[0]["archs"] == ["gfx950"]


def test_explain_without_a_query_counts_rules(run: Run) -> None:
    """Prevents: `explain` omits kernels from its counts."""
    text = run("explain", "-q", MINE).out
    title, _, *lines = text.splitlines()
    kept, dropped = map(int, re.findall(r"\d+", title))
    assert kept == 14
    assert sum(int(line.split()[-1]) for line in lines) == kept + dropped
    data = json.loads(run("explain", "-q", "--json", MINE).out)
    assert sum(entry["count"] for entry in data) == kept + dropped
    assert data[0] == {
        "module": "libmha_fwd",
        "direction": "fwd",
        "role": "fwd",
        "in": True,
        "rule": f"{MINE}:8 [[mha_fwd_variants]]",
        "count": 14,
    }


@pytest.mark.thorough
def test_archs_and_modes_can_be_replaced(run: Run, here: Path) -> None:
    """Prevents: a ROCm/QoLA manifest without archs and mode cannot be planned."""
    (here / "bare.toml").write_text(MANIFEST[MANIFEST.index("[[modules]]") :])
    assert "no AMD GPU" in run("plan", "bare.toml").err
    archs = ("--arch=gfx942", "--arch=gfx950,gfx942")
    result = run("plan", "-q", "bare.toml", "--mode=cpp_itfs", *archs)
    assert result.code == 0
    assert "20 kernel instances" in result.out


def test_groups(run: Run, here: Path) -> None:
    """Prevents: `plan` and `build` select other modules for the same options."""
    two = MANIFEST.replace("[[mha", f'group = "forward"\n{PYTHON_MODULE}[[mha')
    (here / "two.toml").write_text(two)
    both, other = run("plan", "two.toml", "-q"), run("plan", "two.toml", "-q", "--group", "other")
    assert ("libmha_fwd" in both.out, "module_aiter_enum" in both.out) == (True, True)
    assert ("libmha_fwd" in other.out, "module_aiter_enum" in other.out) == (False, True)
    assert len(run("list", "two.toml", "-q", "--group=forward;other").out.splitlines()) == 14
    assert run("list", "two.toml", "-q", "--group", "none").code == 2


@pytest.mark.parametrize(
    ("arguments", "code", "messages"),
    [
        ("plan nowhere.toml", 2, ["error: nowhere.toml", "No such file or directory"]),
        (f"list {MINE} dtyp=bf16 x", 2, ["did you mean dtype=bf16?", "instance of that name"]),
        (
            f"plan {MINE} --arch gfx90",
            6,
            [
                "the archs asked for instead",
                "gfx90",
                "gfx942, gfx950, any other that the tree has kernels for",
            ],
        ),
        (f"plan {MINE} --arch gfx9500,natve", 6, ["did you mean gfx950, native?"]),
    ],
)
def test_errors_end_with_their_exit_code(
    run: Run, arguments: str, code: int, messages: list[str]
) -> None:
    """Prevents: a script or a user does not notice an error."""
    result = run(*arguments.split(), "-q")
    assert (result.code, result.out) == (code, "")
    for message in messages:
        assert message in result.err
    assert "Traceback" not in result.err


def test_without_a_tree_the_error_names_aiter_root(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: without Bazel and network, an error does not mention --aiter-root."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    result = run("plan", MINE, tree=False)
    assert result.code == AiterError.exit_code == 3
    assert "--aiter-root DIR names" in result.err
    missing = run("plan", MINE, "--aiter-root=nowhere", tree=False)
    assert missing.code == 3
    assert "here/nowhere" in missing.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-q"], "the following arguments are required: COMMAND"),
        (["make"], "unknown command make; qola help lists the commands"),
        (["plna", "m.toml"], "unknown command plna; did you mean plan?"),
        (["-q", "buidl"], "unknown command buidl; did you mean build?"),
        (["help", "explian"], "unknown command explian; did you mean explain?"),
        (["plan", "--jobs", "0"], "invalid number above 0 value: '0'"),
        (["plan", "--jobs", "x"], "invalid number above 0 value: 'x'"),
        (["plan", "m.toml", "--hdim", "64"], "unknown option --hdim"),
        (["build", "m.toml", "n.toml"], "unknown word n.toml"),
        (["build", "-m", "m.toml", "n.toml"], "unknown word n.toml"),
        (["keygen", "k", "extra", "words"], "unknown word extra words"),
        (["plan", "--mode", "x"], "invalid choice"),
    ],
)
def test_wrong_usage(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: qola ignores a wrong option or argument."""
    assert cli.main(arguments, {}) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.err.startswith("usage: qola")
    assert output.out == ""
    # --json works at every position, even if the command is unknown.
    assert cli.main([*arguments, "--json"], {}) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["exit_code"] == 2
    (finding,) = error["findings"]
    assert finding["found"]
    assert finding["expected"].startswith("qola ")
    assert finding["fix"].endswith(" --help")


def test_every_command_accepts_a_manifest(tmp_path: Path) -> None:
    """Prevents: a command rejects `qola build mine.toml`, or ROCm/QoLA's --manifest."""
    commands = {*COMMANDS} - WITHOUT_A_MANIFEST
    assert {"plan", "build", "checkout", "pack", "verify", "dispatch", "report"} <= commands
    for command in commands:
        output = ["-o", "page.html"] if command == "report" else []
        for arguments in (["a.toml", "-q"], ["-q", "a.toml"], ["--manifest", "a.toml"]):
            args = cli._parse([command, *arguments, *output], tmp_path)
            assert (args.manifest, args.words) == (Path("a.toml"), [])
    args = cli._parse(["list", "a.toml", "-q", "mode=group"], tmp_path)
    assert (args.manifest, args.words) == (Path("a.toml"), ["mode=group"])
    args = cli._parse(["report", "out/te", "a.toml", "-o", "page.html"], tmp_path)
    assert (args.manifest, args.words) == (Path("a.toml"), ["out/te"])


def test_without_a_manifest_the_fix_can_be_pasted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a suggested command names a file that exists only in this repository."""
    commands = {*COMMANDS} - WITHOUT_A_MANIFEST - {"checkout", "report"}
    for command in commands:
        assert cli.main([command], {}, directory=tmp_path) == 2
        output = capsys.readouterr()
        assert "fix       qola init && qola plan qola.toml\n" in output.err
    assert cli.main(["init"], {}, directory=tmp_path) == 0
    capsys.readouterr()
    assert cli.main(["plan", "--json"], {}, directory=tmp_path) == 2
    output = json.loads(capsys.readouterr().out)["error"]
    assert output["findings"][0]["fix"] == "qola plan qola.toml"


COMMANDS: dict[str, argparse.ArgumentParser] = next(
    dict(action.choices)
    for action in cli.build_parser()._actions
    if isinstance(action, argparse._SubParsersAction)
)


def test_modules_reports_each_cause_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: `modules` repeats a cause on 102 lines, or plans silently at each call."""
    root = write_pybind_tree(tmp_path / "tree")
    record_digest(root)
    arguments = ["modules", "--aiter-root", str(root)]
    environ = {"QOLA_CACHE_HOME": str(tmp_path / "cache")}
    assert cli.main(arguments, environ) == 0
    first = capsys.readouterr()
    assert "qola: planning each of 5 modules\n" in first.err
    assert first.out.count("no Composable Kernel") == 1
    assert "\nnot built: libmha_fwd, libmha_bwd\n  no Composable Kernel in " in first.out
    assert first.out.endswith("\n\n5 modules, 2 built\n")
    assert cli.main(arguments, environ) == 0
    assert capsys.readouterr() == (first.out, "")


WITHOUT_A_MANIFEST = {"cache", "compat", "completion", "doctor", "help", "init", "keygen"}
WITHOUT_A_MANIFEST |= {"emulate", "health", "hipcc", "inspect", "modules"}


WITHOUT_JSON = {"completion", "emulate", "help", "hipcc", "init", "keygen", "pack", "report"}


def test_an_option_means_the_same_everywhere() -> None:
    """Prevents: an option has another name or meaning in another command."""
    meanings_by_option: dict[str, set[tuple[object, ...]]] = {}
    names: dict[str, set[tuple[str, ...]]] = {}
    for command in COMMANDS.values():
        for action in command._actions:
            names.setdefault(action.dest, set()).add(tuple(action.option_strings))
            for name in filter(lambda name: name.startswith("--"), action.option_strings):
                meaning = (action.dest, type(action), action.type, str(action.choices))
                meanings_by_option.setdefault(name, set()).add(meaning)
    assert {
        name: meanings for name, meanings in meanings_by_option.items() if len(meanings) > 1
    } == {}
    assert {meaning: known for meaning, known in names.items() if len(known) > 1} == {}
    helps = {command: parser.format_help() for command, parser in COMMANDS.items()}
    commands = {
        name: {c for c, text in helps.items() if re.search(rf"{name}\b", text)}
        for name in meanings_by_option
    }
    assert commands["--quiet"] == {*COMMANDS}
    assert commands["--manifest"] == {*COMMANDS} - WITHOUT_A_MANIFEST
    assert commands["--json"] == {*COMMANDS} - {"checkout", *WITHOUT_JSON}
    assert commands["--aiter-root"] == commands["--manifest"] | {"compat", "init", "modules"}
    assert commands["--group"] == commands["--manifest"]
    assert commands["--mode"] == commands["--manifest"] - {"checkout"}
    assert commands["--arch"] == commands["--mode"] | {"init"}


def run_and_exit(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that exits with success; return its standard output."""
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments, {})
    assert not caught.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a command, an option or an exit code has no help text."""
    text = run_and_exit([*command, "--help"], capsys)
    assert text.startswith("usage: qola")
    codes = dict(re.findall(r"^  (\d+) +(.+)$", text.partition("exit codes:\n")[2], re.MULTILINE))
    assert {"0", "1", "2", "130"} <= {*codes}
    assert codes.items() <= {(str(int(code)), code.meaning) for code in ExitCode}
    for line in re.findall(r"^  (-.*)$", text, re.MULTILINE):
        option = re.match(r"(-\w( \S+)?, )?--[\w-]+( [A-Z]\S*| \{.*\})?(, --no-[\w-]+)?", line)
        assert option, line
        after = line[option.end() :].strip()
        assert after or re.search(re.escape(line) + r"\n {10,}\w", text), f"{line}: no help"


def test_the_help_command(run: Run) -> None:
    """Prevents: `qola` or `qola help` is wrong usage."""
    for arguments in ([], ["help"]):
        code, out, err = run(*arguments, tree=False)
        assert (code, err) == (0, "")
        assert out.startswith("usage: qola [-h]")
        assert {*re.findall(r"^    ([a-z]+)\b", out, re.MULTILINE)} == {*COMMANDS}
    pack_help = run("help", "pack", tree=False)
    assert pack_help.out == COMMANDS["pack"].format_help()


_COMPLETE = """\
eval "$1"
COMP_WORDS=("${@:2}")
COMP_CWORD=$(($# - 2))
$(complete -p qola | sed 's/.*-F \\([^ ]*\\).*/\\1/')
printf '%s\\n' "${COMPREPLY[@]}"
"""


def complete(script: str, *words: str, directory: Path) -> list[str]:
    """Return bash's completions of the last word."""
    command = ["bash", "-c", _COMPLETE, "bash", script, *words]
    run = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert run.stderr == ""
    return run.stdout.split()


def test_completion(run: Run, here: Path) -> None:
    """Prevents: the shell cannot load the script, or the script completes other commands."""
    result = run("completion", "bash", tree=False)
    assert result.code == 0
    assert complete(result.out, "qola", "pl", directory=here) == ["plan"]
    assert complete(result.out, "qola", "plan", "--est", directory=here) == ["--estimate"]
    commands = {*complete(result.out, "qola", "", directory=here)}
    assert {*COMMANDS} <= commands
    paths = complete(result.out, "qola", "build", "-m", "manif", directory=here)
    assert "manifests" in "".join(paths)
    assert complete(result.out, "qola", "build", "--mode", "cpp", directory=here) == ["cpp_itfs"]
    assert run("completion", "zsh", tree=False).out.startswith("#compdef qola")


def test_errors_as_json(run: Run) -> None:
    """Prevents: a script must parse the text of an error."""
    absent = ("-m", "absent.toml", "--json")
    for arguments in (("build", *absent, "-o", "out"), ("fetch", *absent), ("publish", *absent)):
        result = run(*arguments)
        error = json.loads(result.out)["error"]
        assert (result.code, error["exit_code"]) == (2, 2)
        assert error["title"] in result.err
        (finding,) = error["findings"]
        assert finding["place"].endswith("absent.toml")
        assert {*finding} == {"place", "found", "expected", "fix", "severity"}


def test_bazel_run_resolves_paths_in_the_users_directory(
    here: Path, aiter_tree: Path, shared_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: `bazel run //:qola -- plan mine.toml` looks for the file in the runfiles."""
    environ = {"BUILD_WORKING_DIRECTORY": str(here), "QOLA_CACHE_HOME": str(shared_cache)}
    arguments = ["plan", "-q", MINE, "--aiter-root", str(aiter_tree)]
    assert cli.main(arguments, environ) == 0
    assert "manifests/mine.toml:7 [[modules]].drop_srcs" in capsys.readouterr().out


def test_the_default_tree_is_the_target_of_its_runfile(tmp_path: Path) -> None:
    """Prevents: qola looks for the tree in the runfiles, which contain only a link to a file."""
    tree, runfiles = tmp_path / "external/aiter", tmp_path / "x.runfiles"
    write(tree, {"AITER.json": "{}"})
    mapping = "short\n,aiter,absent\nqola~,aiter,qola~~qola~aiter\nqola~,other,_main\n"
    write(runfiles, {"_repo_mapping": mapping})
    link = runfiles / "qola~~qola~aiter/AITER.json"
    link.parent.mkdir()
    link.symlink_to(tree / "AITER.json")
    environ = {"RUNFILES_DIR": str(runfiles)}
    assert locate.find_tree(None, environ) == tree
    assert locate.find_tree(Path("other"), environ) == Path("other")
    assert locate.runfile_tree({}) is None
    link.unlink()
    assert locate.runfile_tree(environ) is None


def start(
    here: Path,
    aiter_tree: Path,
    *arguments: str,
    cache: Path | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
    **options: Any,
) -> subprocess.Popen[bytes]:
    """Start a command as a process in a new process group, with additional variables."""
    # A shell starts background jobs with SIGINT ignored, and child processes inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    root = Path(cli.__file__).parents[2]
    environ = {
        "PYTHONPATH": os.pathsep.join([str(root), *(p for p in sys.path if p)]),
        "TMPDIR": str(here.parent / "temporary"),
        "QOLA_CACHE_HOME": str(cache or here.parent / "cache"),
        "TERM": "xterm",
        "COLUMNS": "80",
        **variables,
    }
    command = [sys.executable, "-m", "qola.cli", *arguments, "--aiter-root", str(aiter_tree)]
    return subprocess.Popen(command, cwd=here, env=environ, start_new_session=True, **options)


def test_a_closed_pipe_is_not_an_error(here: Path, aiter_tree: Path, shared_cache: Path) -> None:
    """Prevents: a traceback from `qola list ... | head -1`."""
    change(here)
    read_end, write_end = os.pipe()
    pipes: dict[str, Any] = {"stdout": write_end, "stderr": subprocess.PIPE}
    process = start(here, aiter_tree, "list", MINE, cache=shared_cache, **pipes)
    os.close(write_end)
    os.close(read_end)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 141, error
    assert error == b"qola: mine: generating kernel instances for gfx950\n"


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("number", "code", "message"),
    [(signal.SIGINT, 130, b"interrupted"), (signal.SIGTERM, 143, b""), (signal.SIGHUP, 143, b"")],
)
def test_an_interrupted_command_cleans_up(
    here: Path, aiter_tree: Path, number: int, code: int, message: bytes
) -> None:
    """Prevents: qola waits a minute for its generators, or leaves processes or files.

    Only qola gets the signal, as from `kill`, a service manager or a container runtime.
    """
    process = start(here, aiter_tree, "plan", MINE, stderr=subprocess.PIPE)
    temporary = here.parent / "temporary"
    wait_for(lambda: list(temporary.glob("*/request.json")))
    process.send_signal(number)
    started = time.monotonic()
    _, error = process.communicate(timeout=60)
    assert time.monotonic() - started < 10
    assert process.returncode == code
    assert message in error
    assert b"Traceback" not in error
    assert list(temporary.iterdir()) == []
    assert processes_in(temporary) == []
    assert not list((here.parent / "cache").rglob("*.*")), "a partially written file"


def processes_in(temporary: Path) -> list[str]:
    """Return the command lines of processes that work in a directory."""
    command_lines = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            arguments = command.read_bytes()
            if os.fsencode(temporary) in arguments:
                command_lines.append(arguments.replace(b"\0", b" ").decode())
    return command_lines


def test_a_terminal_gets_tables_and_a_spinner(
    here: Path, aiter_tree: Path, shared_cache: Path
) -> None:
    """Prevents: the spinner's text is mixed into the result."""
    change(here)
    leader, follower = pty.openpty()
    terminal: dict[str, Any] = {"stdout": follower, "stderr": follower}
    process = start(here, aiter_tree, "plan", MINE, cache=shared_cache, **terminal)
    os.close(follower)
    chunks = []
    try:
        while chunk := os.read(leader, 4096):
            chunks.append(chunk)
    except OSError:
        pass  # the terminal's other end is closed
    assert process.wait(timeout=60) == 0
    text = b"".join(chunks).decode()
    assert "\x1b[" in text
    assert "generating kernel instances" in text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert re.search(r"fwd +fwd +gfx950 +128x128 +14 +12 +2 +14", plain)


def test_devices_of_emulate_are_those_of_the_emulator() -> None:
    """Prevents: a device that is refused only after the fake runtime was built."""
    assert set(EMULATED) == set(ISAS)


def test_bazel_knows_the_archs_that_are_emulated(repo_root: Path) -> None:
    """Prevents: a hip_test for an arch that the emulator refuses, or none for a supported arch."""
    text = (repo_root / "rules_hip/hip/hip_program.bzl").read_text(encoding="utf-8")
    (found,) = re.findall(r"^EMULATED_ARCHS = (\[.*\])$", text, re.MULTILINE)
    assert set(ast.literal_eval(found)) == set(ISAS)
