"""The command line on the real tree: output, exit codes, and what it leaves behind."""

from __future__ import annotations

import argparse
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
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from qola.checkout import default_tree as locate
from qola.cli import command_line as cli
from qola.cli.commands import COMMANDS as COMMAND_TABLE
from qola.errors import AiterError, ExitCode
from qola.fetch import fetched as fetched_module
from qola.fetch.fetched import record_digest
from qola.plan.model import Plan
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
    """Return a directory with a manifest in it, and empty directories for temporary files."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return write(tmp_path / "here", {MINE: MANIFEST})


class Result(NamedTuple):
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache for all tests: most are about what is made of a plan."""
    return tmp_path_factory.mktemp("shared") / "cache"


@pytest.fixture(autouse=True)
def fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the tree count as one that qola fetched, wherever it is from: no test writes to it."""
    monkeypatch.setattr(fetched_module, "fetched_digest", lambda _: "this tree")


@pytest.fixture
def run(
    here: Path, aiter_tree: Path, shared_cache: Path, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Return a function that runs a command in this process."""

    def call(*words: str, tree: bool = True) -> Result:
        more = ["--aiter-root", str(aiter_tree)] if tree else []
        cache = {"QOLA_CACHE_HOME": str(shared_cache)}
        code = cli.main([*words, *more], cache, directory=here)
        assert list((here.parent / "temporary").iterdir()) == [], "files are left behind"
        return Result(code, *capsys.readouterr())

    return call


def test_a_command_has_the_parser_of_its_own_module() -> None:
    """Prevents: a command that is unknown, or takes other options, when it is called by name."""
    commands = cli.build_parser().get_default("commands")
    assert list(cli.build_parser(None).get_default("commands")) == [*COMMAND_TABLE]
    assert sorted(COMMAND_TABLE) == sorted(commands)
    for name in {*COMMAND_TABLE} - {"help"}:
        own = cli.build_parser(name).get_default("commands")[name]
        assert own.format_help() == commands[name].format_help()


def test_the_list_of_commands_imports_no_planner() -> None:
    """Prevents: half a second before `qola --help` answers."""
    program = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules)); "
        "from qola.cli import main; main(['--help'])"
    )
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "\n    dispatch " in said.stdout
    modules = said.stdout.splitlines()[-1].split()
    assert "qola.cli.command_line" in modules
    assert not [name for name in modules if name.startswith(("qola.plan", "qola.api", "rich"))]


def change(here: Path) -> None:
    """Change the manifest: there is no plan of it, yet its generators' answers may be known."""
    with (here / MINE).open("a") as manifest:
        manifest.write(f"# {here}\n")


def test_plan_counts_kernels(run: Run, here: Path) -> None:
    """Prevents: counts that are not those of the plan, or a manifest's warnings lost."""
    change(here)
    found = run("plan", MINE)
    assert found.code == 0
    assert found.err == "qola: mine: generating kernel instances for gfx950\n"
    lines = found.out.splitlines()
    assert lines[0].startswith("mine: namespace qola, gfx950, AITER 0.1.7")
    assert lines[2:6] == [
        "libmha_fwd: libmha_fwd.so, receipt 700, 14 kernel instances",
        "direction  role  arch    hdim     bf16  batch  group  total",
        "fwd        fwd   gfx950  128x128    14     12      2     14",
        "total                               14     12      2     14",
    ]
    assert "warning: manifests/mine.toml:7 [[modules]].drop_srcs" in lines
    assert "\x1b" not in found.out + found.err


def test_plan_as_json_is_the_plan(run: Run) -> None:
    """Prevents: JSON that is mixed with words, or is not a plan.json."""
    found = run("plan", "--json", "--manifest", MINE, "--name", "other")
    plan = Plan.from_json(found.out)
    assert found.code == 0
    assert plan.name == "other"
    assert len(plan.kernels) == 14
    assert "warning: manifests/mine.toml:7" in found.err
    assert "estimate" not in json.loads(found.out)


@pytest.mark.thorough
def test_answers_are_cached_for_the_next_command(
    run: Run, here: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: generators that run again for each command, or another plan where they do not."""
    change(here)
    first = run("plan", "--json", "-q", MINE)
    told = run("explain", "--json", "-q", MINE)
    assert list((shared_cache / "generated").iterdir())
    manifest = (here / MINE).read_text()
    # Where the process of CK's generator is started.
    monkeypatch.delattr("qola.codegen.generate.run_module")
    (here / MINE).write_text(f"{manifest}# later\n")
    assert run("plan", "--json", "-q", MINE) == first
    (here / MINE).write_text(manifest)
    # Where a plan is made of answers.
    monkeypatch.delattr("qola.plan.planner.generate_module")
    assert run("plan", "--json", "-q", MINE) == first
    assert run("explain", "--json", "-q", MINE) == told
    assert len(run("list", MINE).out.splitlines()) == 14


def test_plan_estimates(run: Run) -> None:
    """Prevents: an estimate that ignores the cores."""
    words = ("plan", MINE, "--estimate", "-q")
    text = run(*words, "--jobs", "3").out
    assert "Estimated cost\n" in text
    assert re.search(r"^about \d+ (s|min) on 3 cores, from an empty cache", text, re.MULTILINE)
    assert re.search(r"^an estimate, from costs measured on \S", text, re.MULTILINE)
    data = json.loads(run(*words, "--json", "--jobs", "2").out)["estimate"]
    assert data["cores"] == 2
    assert data["cpu_seconds"] > 100
    longest = data["longest_seconds"]
    assert data["wall_seconds"] == pytest.approx(max(data["cpu_seconds"] / 2, longest), abs=1)


def test_modules_beside_attention_are_their_sources(run: Run, here: Path) -> None:
    """Prevents: sources called assembly kernels, or estimated as cheap as those of libraries."""
    names = ("module_activation", "module_aiter_operator", "module_attention_asm")
    modules = "".join(f'[[modules]]\nname = "{name}"\n' for name in names)
    (here / "beside.toml").write_text(f'[build]\narchitectures = ["gfx942"]\n{modules}')
    found = run("plan", "beside.toml", "-q", "--estimate").out.splitlines()
    assert (
        found[2] == "module_activation: module_activation.so, a torch module, sources: 2 of AITER's"
    )
    assert re.fullmatch(
        r"module_aiter_o.*, a torch module, sources: \d of AITER's, \d+ generated", found[4]
    )
    assert found[6].endswith(", a torch module, sources: 2 of AITER's")
    assert found[7].startswith("code objects of assembly kernels: 40 for gfx942")
    sources = re.findall(r"sources: (\d+) of AITER's(?:, (\d+) generated)?", "\n".join(found))
    number = sum(int(count) for counts in sources for count in counts if count)
    words = "seconds to minutes of compiling each, and bytes of the libraries"
    assert f"not estimated: {number} sources ({words}) of {', '.join(names)}" in found
    assert not [line for line in found if line.startswith(("Estimated", "about", "total"))]


def test_lazy_and_prebuilt_modules_for_aiter(run: Run, here: Path) -> None:
    """Prevents: an option that mode aiter ignores, or advice to choose another group of modules."""
    modules = '[[modules]]\nname = "module_activation"\n'
    (here / "serve.toml").write_text(
        f'[build]\narchitectures = ["gfx942"]\nmode = "aiter"\n{modules}'
    )
    for command in ("build", "fetch"):
        lazy = run(command, "serve.toml", "--lazy")
        assert (lazy.code, 'serve.toml:3 [build].mode is "aiter"' in lazy.err) == (2, True)
    fetched = run("fetch", "serve.toml")
    assert fetched.code == 9
    assert "serve.toml:3 [build].mode\n" in fetched.err
    assert "serve.toml --wheel 1.0 makes a wheel" in fetched.err


def test_list_prints_names(run: Run) -> None:
    """Prevents: names that are cut, or kernels that a filter should have left out."""
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


def test_explain_says_why(run: Run) -> None:
    """Prevents: a kernel whose absence cannot be traced to a line or a rule."""
    name = run("list", "-q", MINE).out.splitlines()[0]
    kept = run("explain", "-q", MINE, f"bazel-bin/x/{name}.pic.o").out
    assert kept.splitlines()[:2] == [f"{name}: in", "  kept by  [[mha_fwd_variants]] #1 (line 8)"]
    assert "mask=no" in kept
    without = [name.replace("_lse_", "_nlse_"), name.replace("_bf16_", "_fp16_")]
    found = run("explain", "-q", MINE, *without).out.splitlines()
    reasons = sorted(line.split(maxsplit=2)[2] for line in found)
    assert reasons == ["no variant has dtype=fp16", "receipt 700: lse must be yes"]
    assert {line.split()[1] for line in found} == set(without)
    several = run("explain", "-q", MINE, "dtype=bf16", "hdim=128", "lse=yes")
    verdicts = [line.split(maxsplit=2) for line in several.out.splitlines()]
    assert sum(word == "in" for word, *_ in verdicts) == 14
    assert several.err == f"14 in, {len(verdicts) - 14} out\n"
    assert all(reason for *_, reason in verdicts)
    words = ("explain", "-q", "--json", MINE, "dtype=fp16", "hdim=128", "mode=group", "lse=yes")
    data = json.loads(run(*words).out)
    assert {entry["in"] for entry in data} == {False}
    assert all(entry["reasons"] and entry["fields"]["lse"] is True for entry in data)
    assert data[0]["archs"] == ["gfx950"]


def test_explain_without_a_query_counts_rules(run: Run) -> None:
    """Prevents: kernels that no rule accounts for."""
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
        "rule": "[[mha_fwd_variants]] #1 (line 8)",
        "count": 14,
    }


@pytest.mark.thorough
def test_archs_and_modes_can_be_replaced(run: Run, here: Path) -> None:
    """Prevents: a manifest of ROCm/QoLA, without archs and mode, that cannot be looked at."""
    (here / "bare.toml").write_text(MANIFEST[MANIFEST.index("[[modules]]") :])
    assert "no AMD GPU" in run("plan", "bare.toml").err
    archs = ("--arch=gfx942", "--arch=gfx950,gfx942")
    found = run("plan", "-q", "bare.toml", "--mode=cpp_itfs", *archs)
    assert found.code == 0
    assert "20 kernel instances" in found.out


def test_groups(run: Run, here: Path) -> None:
    """Prevents: a plan of other modules than the same options build."""
    two = MANIFEST.replace("[[mha", f'group = "forward"\n{PYTHON_MODULE}[[mha')
    (here / "two.toml").write_text(two)
    both, other = run("plan", "two.toml", "-q"), run("plan", "two.toml", "-q", "--group", "other")
    assert ("libmha_fwd" in both.out, "module_aiter_enum" in both.out) == (True, True)
    assert ("libmha_fwd" in other.out, "module_aiter_enum" in other.out) == (False, True)
    assert len(run("list", "two.toml", "-q", "--group=forward;other").out.splitlines()) == 14
    assert run("list", "two.toml", "-q", "--group", "none").code == 2


@pytest.mark.parametrize(
    ("words", "code", "messages"),
    [
        ("plan nowhere.toml", 2, ["error: nowhere.toml", "No such file or directory"]),
        ("plan", 2, ["no manifest", "fix       qola init && qola plan qola.toml"]),
        (f"list {MINE} dtyp=bf16 x", 2, ["did you mean dtype=bf16?", "instance of that name"]),
        (
            f"plan {MINE} --arch gfx90",
            6,
            ["the archs asked for instead", "gfx90", "LLVM names: gfx900, gfx906"],
        ),
        (f"plan {MINE} --arch gfx9500,natve", 6, ["did you mean gfx950, native?"]),
    ],
)
def test_errors_end_with_their_exit_code(
    run: Run, words: str, code: int, messages: list[str]
) -> None:
    """Prevents: a script that takes a failure for a result, or a person for a compiler."""
    found = run(*words.split(), "-q")
    assert (found.code, found.out) == (code, "")
    for message in messages:
        assert message in found.err
    assert "Traceback" not in found.err


def test_without_a_tree_the_error_says_how_to_name_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a dead end in a checkout without Bazel and without a network."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    found = run("plan", MINE, tree=False)
    assert found.code == AiterError.exit_code == 3
    assert "--aiter-root DIR names" in found.err
    missing = run("plan", MINE, "--aiter-root=nowhere", tree=False)
    assert missing.code == 3
    assert "here/nowhere" in missing.err


@pytest.mark.parametrize(
    ("words", "message"),
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
def test_wrong_usage(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: options that are ignored."""
    assert cli.main(words, {}) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.startswith("usage: qola")
    assert said.out == ""
    # Wherever the word stands, and whether or not the command knows it.
    assert cli.main([*words, "--json"], {}) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["exit_code"] == 2
    (finding,) = error["findings"]
    assert finding["found"]
    assert finding["expected"].startswith("qola ")
    assert finding["fix"].endswith(" --help")


def test_every_command_takes_the_manifest_as_a_word(tmp_path: Path) -> None:
    """Prevents: `qola build mine.toml`, or ROCm/QoLA's --manifest, as wrong usage."""
    takers = {*COMMANDS} - WITHOUT_A_MANIFEST
    assert {"plan", "build", "checkout", "pack", "verify", "dispatch", "report"} <= takers
    for command in takers:
        needed = ["-o", "page.html"] if command == "report" else []
        for words in (["a.toml", "-q"], ["-q", "a.toml"], ["--manifest", "a.toml"]):
            args = cli._parse([command, *words, *needed], tmp_path)
            assert (args.manifest, args.words) == (Path("a.toml"), [])
    args = cli._parse(["list", "a.toml", "-q", "mode=group"], tmp_path)
    assert (args.manifest, args.words) == (Path("a.toml"), ["mode=group"])
    args = cli._parse(["report", "out/te", "a.toml", "-o", "page.html"], tmp_path)
    assert (args.manifest, args.words) == (Path("a.toml"), ["out/te"])


def test_without_a_manifest_the_fix_can_be_pasted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a fix that names a file which only this repository has."""
    needing = {*COMMANDS} - WITHOUT_A_MANIFEST - {"checkout", "report"}
    for command in needing:
        assert cli.main([command], {}, directory=tmp_path) == 2
        said = capsys.readouterr()
        assert "fix       qola init && qola plan qola.toml\n" in said.err
    assert cli.main(["init"], {}, directory=tmp_path) == 0
    capsys.readouterr()
    assert cli.main(["plan", "--json"], {}, directory=tmp_path) == 2
    said = json.loads(capsys.readouterr().out)["error"]
    assert said["findings"][0]["fix"] == "qola plan qola.toml"


COMMANDS: dict[str, argparse.ArgumentParser] = next(
    dict(action.choices)
    for action in cli.build_parser()._actions
    if isinstance(action, argparse._SubParsersAction)
)


def test_modules_tell_each_cause_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: one cause on each of 102 lines, or two silent minutes at each call."""
    root = write_pybind_tree(tmp_path / "tree")
    record_digest(root)
    words = ["modules", "--aiter-root", str(root)]
    environ = {"QOLA_CACHE_HOME": str(tmp_path / "cache")}
    assert cli.main(words, environ) == 0
    first = capsys.readouterr()
    assert "qola: planning each of 5 modules\n" in first.err
    assert first.out.count("no Composable Kernel") == 1
    assert "\nnot built: libmha_fwd, libmha_bwd\n  no Composable Kernel in " in first.out
    assert first.out.endswith("\n\n5 modules, 2 built\n")
    assert cli.main(words, environ) == 0
    assert capsys.readouterr() == (first.out, "")


WITHOUT_A_MANIFEST = {"cache", "compat", "completion", "doctor", "help", "init", "keygen"}
WITHOUT_A_MANIFEST |= {"health", "hipcc", "inspect", "modules"}


WITHOUT_JSON = {"completion", "help", "hipcc", "init", "keygen", "pack", "report"}


def test_an_option_means_the_same_everywhere() -> None:
    """Prevents: an option that has to be renamed, or means something else, in another command."""
    found: dict[str, set[tuple[object, ...]]] = {}
    names: dict[str, set[tuple[str, ...]]] = {}
    for command in COMMANDS.values():
        for action in command._actions:
            names.setdefault(action.dest, set()).add(tuple(action.option_strings))
            for name in filter(lambda name: name.startswith("--"), action.option_strings):
                meaning = (action.dest, type(action), action.type, str(action.choices))
                found.setdefault(name, set()).add(meaning)
    assert {name: meanings for name, meanings in found.items() if len(meanings) > 1} == {}
    assert {meaning: known for meaning, known in names.items() if len(known) > 1} == {}
    helps = {command: parser.format_help() for command, parser in COMMANDS.items()}
    places = {
        name: {c for c, text in helps.items() if re.search(rf"{name}\b", text)} for name in found
    }
    assert places["--quiet"] == {*COMMANDS}
    assert places["--manifest"] == {*COMMANDS} - WITHOUT_A_MANIFEST
    assert places["--json"] == {*COMMANDS} - {"checkout", *WITHOUT_JSON}
    assert places["--aiter-root"] == places["--manifest"] | {"compat", "init", "modules"}
    assert places["--group"] == places["--manifest"]
    assert places["--mode"] == places["--manifest"] - {"checkout"}
    assert places["--arch"] == places["--mode"] | {"init"}


def ends_well(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a command prints that does nothing else."""
    with pytest.raises(SystemExit) as caught:
        cli.main(words, {})
    assert not caught.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a command, an option or an exit code without a word about it."""
    text = ends_well([*command, "--help"], capsys)
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
    """Prevents: `qola` or `qola help`, as other such programs have it, as wrong usage."""
    for words in ([], ["help"]):
        code, out, err = run(*words, tree=False)
        assert (code, err) == (0, "")
        assert out.startswith("usage: qola [-h]")
        assert {*re.findall(r"^    ([a-z]+)\b", out, re.MULTILINE)} == {*COMMANDS}
    one = run("help", "pack", tree=False)
    assert one.out == COMMANDS["pack"].format_help()


_COMPLETE = """\
eval "$1"
COMP_WORDS=("${@:2}")
COMP_CWORD=$(($# - 2))
$(complete -p qola | sed 's/.*-F \\([^ ]*\\).*/\\1/')
printf '%s\\n' "${COMPREPLY[@]}"
"""


def complete(script: str, *words: str, directory: Path) -> list[str]:
    """Return what bash offers for the last word."""
    command = ["bash", "-c", _COMPLETE, "bash", script, *words]
    run = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert run.stderr == ""
    return run.stdout.split()


def test_completion(run: Run, here: Path) -> None:
    """Prevents: a script that the shell does not take, or that knows other commands."""
    found = run("completion", "bash", tree=False)
    assert found.code == 0
    assert complete(found.out, "qola", "pl", directory=here) == ["plan"]
    assert complete(found.out, "qola", "plan", "--est", directory=here) == ["--estimate"]
    every = {*complete(found.out, "qola", "", directory=here)}
    assert {*COMMANDS} <= every
    named = complete(found.out, "qola", "build", "-m", "manif", directory=here)
    assert "manifests" in "".join(named)
    assert complete(found.out, "qola", "build", "--mode", "cpp", directory=here) == ["cpp_itfs"]
    assert run("completion", "zsh", tree=False).out.startswith("#compdef qola")


def test_errors_as_json(run: Run) -> None:
    """Prevents: a script that has to read an error's text."""
    absent = ("-m", "absent.toml", "--json")
    for words in (("build", *absent, "-o", "out"), ("fetch", *absent), ("publish", *absent)):
        found = run(*words)
        error = json.loads(found.out)["error"]
        assert (found.code, error["exit_code"]) == (2, 2)
        assert error["title"] in found.err
        (finding,) = error["findings"]
        assert finding["place"].endswith("absent.toml")
        assert {*finding} == {"place", "found", "expected", "fix", "severity"}


def test_paths_are_those_of_the_user_under_bazel_run(
    here: Path, aiter_tree: Path, shared_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: `bazel run //:qola -- plan mine.toml` looking in the runfiles."""
    environ = {"BUILD_WORKING_DIRECTORY": str(here), "QOLA_CACHE_HOME": str(shared_cache)}
    words = ["plan", "-q", MINE, "--aiter-root", str(aiter_tree)]
    assert cli.main(words, environ) == 0
    assert "manifests/mine.toml:7 [[modules]].drop_srcs" in capsys.readouterr().out


def test_the_default_tree_is_beside_its_runfile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: the tree looked for in the runfiles, where only its stand-in is."""

    def create(environ: dict[str, str]) -> SimpleNamespace | None:
        folder = environ.get("RUNFILES_DIR")
        return SimpleNamespace(Rlocation=lambda path: f"{folder}/{path}") if folder else None

    library = SimpleNamespace(Create=create)
    monkeypatch.setitem(sys.modules, "python.runfiles.runfiles", library)
    tree, runfiles = tmp_path / "external/aiter", tmp_path / "x.runfiles"
    write(tree, {"AITER.json": "{}"})
    (runfiles / "aiter").mkdir(parents=True)
    (runfiles / "aiter/AITER.json").symlink_to(tree / "AITER.json")
    environ = {"RUNFILES_DIR": str(runfiles)}
    assert locate.find_tree(None, environ) == tree
    assert locate.find_tree(Path("other"), environ) == Path("other")
    assert locate.runfile_tree({}) is None
    (runfiles / "aiter/AITER.json").unlink()
    assert locate.runfile_tree(environ) is None


def start(
    here: Path,
    aiter_tree: Path,
    *words: str,
    cache: Path | None = None,
    more: Mapping[str, str] = MappingProxyType({}),
    **options: Any,
) -> subprocess.Popen[bytes]:
    """Start a command as a process of its own, in a group of its own, with further variables."""
    # Whoever starts tests in the background of a shell has them ignore it, and what they start too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    root = Path(cli.__file__).parents[2]
    environ = {
        "PYTHONPATH": os.pathsep.join([str(root), *(p for p in sys.path if p)]),
        "TMPDIR": str(here.parent / "temporary"),
        "QOLA_CACHE_HOME": str(cache or here.parent / "cache"),
        "TERM": "xterm",
        "COLUMNS": "80",
        **more,
    }
    command = [sys.executable, "-m", "qola.cli", *words, "--aiter-root", str(aiter_tree)]
    return subprocess.Popen(command, cwd=here, env=environ, start_new_session=True, **options)


def test_a_reader_that_has_enough_is_no_error(
    here: Path, aiter_tree: Path, shared_cache: Path
) -> None:
    """Prevents: a traceback from `qola list ... | head -1`."""
    change(here)
    read, into = os.pipe()
    pipes: dict[str, Any] = {"stdout": into, "stderr": subprocess.PIPE}
    process = start(here, aiter_tree, "list", MINE, cache=shared_cache, **pipes)
    os.close(into)
    os.close(read)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 141, error
    assert error == b"qola: mine: generating kernel instances for gfx950\n"


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("number", "code", "message"),
    [(signal.SIGINT, 130, b"interrupted"), (signal.SIGTERM, 143, b""), (signal.SIGHUP, 143, b"")],
)
def test_an_interrupted_command_leaves_nothing(
    here: Path, aiter_tree: Path, number: int, code: int, message: bytes
) -> None:
    """Prevents: qola waiting a minute for its generators, or leaving them or their files behind.

    The signal is for qola alone, as `kill`, a service manager or a container's runtime send it.
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
    assert running(temporary) == []
    assert not list((here.parent / "cache").rglob("*.*")), "something half-written"


def running(temporary: Path) -> list[str]:
    """Return the commands of processes that work in a directory."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = command.read_bytes()
            if os.fsencode(temporary) in words:
                found.append(words.replace(b"\0", b" ").decode())
    return found


def test_a_terminal_gets_tables_and_a_spinner(
    here: Path, aiter_tree: Path, shared_cache: Path
) -> None:
    """Prevents: a result that is mixed with the spinner's text."""
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
