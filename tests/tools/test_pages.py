"""Documentation: links, examples, and names of variables, options, targets and tests."""

from __future__ import annotations

import ast
import importlib
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from fnmatch import filter as matching
from pathlib import Path
from typing import Any

import pytest
import yaml

from qola.cli import main
from qola.cli.command_line import build_parser
from qola.common.version import __version__
from qola.manifest.load import loads
from tests.mutations import MUTATIONS
from tests.support.build_files import targets
from tests.support.checkout import checkout_root
from tests.support.pythons import path_with_other_python
from tools.docs.cli import UPDATE
from tools.docs.pages import render_pages

ROOT = checkout_root()
_OF_PARTS = ("*/README.md", "gfxemu/fake_hip/*.md", "qola_lab/tests/*/*.md")
_GLOBS = ("*.md", "docs/**/*.md", "tests/*/*.md", "third_party/*/*.md", *_OF_PARTS)
_NOTEBOOKS = "examples/notebooks/*.ipynb"
PAGES = sorted(page for glob in (*_GLOBS, _NOTEBOOKS) for page in ROOT.glob(glob))
FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def prose_of(page: Path) -> str:
    """Return a page's text without code. For a notebook, return its Markdown cells."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n".join("".join(cell["source"]) for cell in cells)
    return FENCE.sub("", text)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub creates for a page's headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text).strip().lower().replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_are_valid(page: Path) -> None:
    """Prevents: a link to a moved page or heading, and code blocks without highlighting."""
    prose = prose_of(page)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        there = page.parent / target if target else page
        assert there.exists(), link
        assert not anchor or anchor in anchors(there), link
    assert not re.search(r"\n\n    \S", prose), "indented code: fence it, with a language"
    assert "```" not in prose, "a fence that does not end"


def test_targets_on_command_lines_exist() -> None:
    """Prevents: a documented command with a package or target that does not exist any more."""
    lines = [line for page in PAGES for line in page.read_text("utf-8").splitlines()]
    labels = {
        label
        for line in lines
        if "./bazelw " in line
        for label in re.findall(r"(?<![@\w:])//([\w/]+)(?::(\w+))?(?=[\s`;]|$)", line)
    }
    assert len(labels) > 5
    for package, name in sorted(labels):
        assert (name or Path(package).name) in targets(package), f"//{package}:{name}"


def defined_tests(file: str, *, by_hand: bool = False) -> set[str]:
    """Return the tests that a file defines, without those that are always skipped.

    Args:
        by_hand: whether a file that no target runs has tests.
    """
    package, _, name = file.rpartition("/")
    runs = [t for t in targets(package).values() if t["kind"] == "py_test" and name in t["srcs"]]
    body = ast.parse(text_of(file)).body if runs or by_hand else []
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    return {
        function.name
        for function in functions
        if function.name.startswith("test_")
        and not any("mark.skip(" in ast.unparse(mark) for mark in function.decorator_list)
    }


PYTHON = (
    "gfxemu/*.py",
    "qola/**/*.py",
    "qola_base/**/*.py",
    "qola_lab/*/*.py",
    "runtime/*/*.py",
)
"""The Python files of the parts, without tests."""
PARTS = ("gfxemu/", "qola_lab/", "runtime/")
"""Directories with tests of their own."""


def undefined_tests(text: str, root: str = "") -> list[str]:
    """Return the names of tests in a text that no BUILD file, .bzl file or test file defines.

    Args:
        text: labels, files, and names of tests of the files or of targets of their directories. No
            target has to run a file with "(by hand)" behind it.
        root: the directory of the files, except of those of a part.
    """
    wrong: list[str] = []
    defined: set[str] = set()
    names: list[str] = []
    package = ""
    for name in re.findall(r"`([^`]+)`", text):
        if label := re.fullmatch(r"(?://([\w/]+))?:(\w+)", name):
            package = label[1] or package
            target = targets(package).get(label[2], {})
            ok = target.get("kind", "").endswith("test")
            if ok and target["kind"] == "py_test":
                files = [f for f in target["srcs"] if f.startswith("test_") or f == "lint.py"]
                ok = any(defined_tests(f"{package}/{f}") or f == "lint.py" for f in files)
            wrong += [] if ok else [name]
        elif name.endswith(".py"):
            file = name if name.startswith(PARTS) else root + name
            found = defined_tests(file, by_hand=f"`{name}` (by hand" in text)
            defined |= found
            wrong += [] if found else [name]
        elif name.endswith((".bzl", "BUILD.bazel")):
            file = name if name.startswith(PARTS) else root + name
            package = file.rpartition("/")[0]
            found = {t for t, v in targets(package).items() if v["kind"].endswith("test")}
            defined |= found
            wrong += [] if found and (ROOT / file).is_file() else [name]
        elif re.fullmatch(r"test_\w+|[\w*]+_test", name):
            names.append(name)
    return wrong + [name for name in names if not matching(defined, name)]


def table_rows(page: str, heading: str = "") -> list[str]:
    """Return the last cell of each row of the tables below a heading, else of the page."""
    text = text_of(page)
    if heading:
        text = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    separators = {n for n, line in enumerate(rows) if line.startswith("| ---")}
    heads = {n - 1 for n in separators}
    return [
        line.rstrip("| ").rpartition(" | ")[2]
        for n, line in enumerate(rows)
        if n not in separators | heads
    ]


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page in one language."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


RENDERED = render_pages(ROOT / "docs/reference")
GENERATED = ("docs/reference/cli.md", "docs/reference/api.md")
GUIDES = [
    page
    for page in PAGES
    if page.suffix == ".md"
    and page.relative_to(ROOT).as_posix() not in GENERATED
    and blocks(page, r"\w+")
]
by_page = pytest.mark.parametrize(
    "page", GUIDES, ids=lambda page: page.relative_to(ROOT).as_posix()
)


def qola_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of the commands of qola in lines for a shell."""
    text = re.sub(r"<[^<>\n]*>|\$\([^()]*\)", "X", text.replace("\\\n", " "))
    for line in text.splitlines():
        start = r"(?:^|[;&|(] *|\w=\S* )(?:\./bazelw run //:qola -- |qola )(.+)$"
        for call in re.findall(start, line):
            # The end of a quoted script.
            whole = call.removesuffix("'") if call.count("'") % 2 else call
            words = shlex.split(whole, comments=True)
            ends = (at for at, word in enumerate(words) if re.fullmatch(r"[&|;]+|>+|2>.*", word))
            yield words[: next(ends, len(words))]


@by_page
def test_shell_blocks_can_be_pasted(page: Path) -> None:
    """Prevents: a block with a command, option or file of qola that does not exist."""
    for block in blocks(page, "sh"):
        script = re.sub(r"<[^<>\n]*>", "X", block)
        checked = subprocess.run(["bash", "-n"], input=script, text=True, check=False)
        assert checked.returncode == 0, block
        for words in qola_commands(block):
            # "..." stands for further words.
            build_parser().parse_args([word for word in words if word != "..."])
        for command in re.findall(r"(?:^|[ /])(?:bazelw|bazel) (.+)$", block, re.MULTILINE):
            assert wrong_bazel_words(command.partition(" -- ")[0].split()) == [], command
    for block in (*blocks(page, "sh"), *blocks(page, "starlark")):
        places = r"(?<![\w/.@:-])(?:examples|manifests|tests|tools)/[\w./-]*\w(?![\w*<])"
        missing = [name for name in re.findall(places, block) if not (ROOT / name).exists()]
        assert missing == []


#: Attributes that all rules have, and those of cc_binary and cc_test that programs in HIP pass on.
_OF_EVERY_RULE = {"name", "tags", "testonly", "visibility", "target_compatible_with"}
_OF_PROGRAMS = {"data", "env", "args", "linkopts", "size", "timeout"}


def attributes_by_rule() -> dict[str, dict[str, bool]]:
    """Return the attributes of each rule and tag in api.md, and whether they are required."""
    found = {}
    for heading, text in re.findall(
        r"^### (\S+)\n(.*?)(?=^###? |\Z)",
        text_of("docs/reference/api.md"),
        re.MULTILINE | re.DOTALL,
    ):
        rows = re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|", text, re.MULTILINE)
        found[heading] = {name: default.strip() == "required" for name, default in rows}
    for program in ("hip_binary", "hip_test"):
        further = dict.fromkeys([*found["hip_library"], *_OF_PROGRAMS], False)
        found[program] = further | found[program]
    return found


def wrong_attributes(block: str) -> list[str]:
    """Return the calls of rules and tags in Starlark that have a wrong attribute, or lack one."""
    known, wrong = attributes_by_rule(), []
    for call in ast.walk(ast.parse(block)):
        if not isinstance(call, ast.Call) or ast.unparse(call.func) not in known:
            continue
        attributes = known[ast.unparse(call.func)]
        given = {keyword.arg for keyword in call.keywords if keyword.arg}
        # "..." stands for further attributes.
        whole = not call.args and all(keyword.arg for keyword in call.keywords)
        required = {name for name, is_required in attributes.items() if is_required and whole}
        if given - attributes.keys() - _OF_EVERY_RULE or required - given:
            wrong.append(ast.unparse(call))
    return wrong


def starlark_blocks(page: Path) -> list[str]:
    """Return the blocks in Starlark, also those that a page highlights as Python."""
    named = [b for b in blocks(page, "python") if re.search(r"@qola//|# MODULE\.bazel|# BUILD", b)]
    return blocks(page, "starlark") + named


@by_page
def test_starlark_blocks_can_be_pasted(page: Path) -> None:
    """Prevents: a block with a missing name or attribute, or whose repository is not visible."""
    found = starlark_blocks(page)
    for block in found:
        assert wrong_attributes(block) == []
        load = r'load\("@(qola|rules_hip)//([^"]+)"((?:, *"\w+")+)\)'
        for module, file, names in re.findall(load, block):
            place = file.replace(":", "/")
            text = text_of(place if module == "qola" else f"rules_hip/{place}")
            for name in re.findall(r'"(\w+)"', names):
                assert re.search(rf"^(?:def )?_?{name}\b|^ +{name} = ", text, re.MULTILINE), name
    text = "\n".join(found)
    # Repositories of manifests are declared by the reader.
    assert not re.search(r'"@rocm\w*//', text), "no use_repo(hip, ...): name @rules_hip//rocm"


def test_wrong_attributes_are_found() -> None:
    """Prevents: the test above passes for a misspelt, removed or forgotten attribute."""
    good = 'hip_test(name = "t", srcs = ["t.hip"], emulated = True, size = "small")'
    tag = 'qola.manifest(name = "mine", file = "//:mine.toml")'
    assert wrong_attributes(f"{good}\n{tag}\nqola.manifest(...)") == []
    for wrong in (good.replace("emulated", "emulate"), tag.replace("file", "path")):
        assert len(wrong_attributes(wrong)) == 1, wrong
    assert len(wrong_attributes('qola.manifest(name = "mine")')) == 1


#: Tables that complete a part of a manifest.
_PARTS = {
    "qola": '[qola]\nnamespace = "mine"\n',
    "build": '[build]\narchitectures = ["gfx950"]\nmode = "cpp_itfs"\n',
    "modules": '[[modules]]\nname = "libmha_fwd"\n',
}


@by_page
def test_manifests_can_be_pasted(page: Path) -> None:
    """Prevents: an error for a manifest, or a part of one, that a page shows."""
    for block in blocks(page, "toml"):
        text = block.replace("RW...", "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3")
        tables = set(re.findall(r"^\[+(\w+)", text, re.MULTILINE))
        parts = {name: part for name, part in _PARTS.items() if name not in tables}
        if "functions" in tables:
            parts = {"build": _PARTS["build"].replace("cpp_itfs", "aiter")}
        if len(tables) > 1:
            # A whole manifest.
            parts = {}
        warnings = loads("\n".join([text, *parts.values()]), file=page.name).warnings
        # The manifests that newcomers copy.
        assert page.name not in ("README.md", "manifest.md") or warnings == ()


#: Commands that need no build, and those of them that take more than five seconds.
_QUICK, _SLOW = ("init", "list", "plan", "compat"), ("compat", "manifests/te.toml", "--for")


def first_commands() -> Iterator[Any]:
    """Yield the quick commands in the first block of each page whose input files exist."""
    for page in GUIDES:
        for words in qola_commands("".join(blocks(page, "sh")[:1])):
            inputs = [word for word in words[2:] if word.endswith((".toml", ".json"))]
            inputs += words[1:2] if words[0] != "init" else []
            if words[0] in _QUICK and all(
                (ROOT / word).exists() for word in inputs if word[0] != "-"
            ):
                marks = [pytest.mark.thorough] if {*words} & {*_SLOW} else []
                identity = f"{page.relative_to(ROOT)}: {shlex.join(words)}"
                yield pytest.param(words, marks=marks, id=identity)


@pytest.mark.parametrize("words", [*first_commands()])
def test_the_first_block_of_a_page_runs(words: list[str], aiter_tree: Path, tmp_path: Path) -> None:
    """Prevents: a first command that is valid, and fails."""
    for name in ("manifests", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    reads_tree = words[0] != "init" or "--for" in words
    tree = ["--aiter-root", str(aiter_tree)] if reads_tree else []
    environ = {**os.environ, "QOLA_CACHE_HOME": str(tmp_path / "cache")}
    assert main([*words, *tree], environ, directory=tmp_path) == 0


def test_first_commands_are_found() -> None:
    """Prevents: the test above runs nothing."""
    names = {parameter.values[0][0] for parameter in first_commands()}
    assert names == {*_QUICK}


def names_of_qola(block: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of what a block in Python imports from qola, or takes from fmha."""
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and re.match(r"qola(\.|$)", node.module or ""):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("fmha", "qola"):
            yield {"fmha": "qola.fmha"}.get(ast.unparse(node.value), "qola"), node.attr


@by_page
def test_python_and_json_blocks_can_be_pasted(page: Path) -> None:
    """Prevents: a block that is no Python or JSON, or that uses a name which qola does not have."""
    for block in set(blocks(page, "python")) - set(starlark_blocks(page)):
        for module, name in names_of_qola(block):
            assert hasattr(importlib.import_module(module), name), f"{module}.{name}"
    for block in blocks(page, "json"):
        json.loads(block)


def test_security_promises_have_tests() -> None:
    """Prevents: a promise of SECURITY.md without a test that runs."""
    rows = table_rows("SECURITY.md", "Verification")
    assert len(rows) > 8
    for row in rows:
        assert re.search(r"`(//|\w+/)", row), row
        assert undefined_tests(row) == [], row


def test_features_have_tests() -> None:
    """Prevents: a guide without a tested feature, or a feature whose test was removed."""
    rows = table_rows("docs/internals/features.md")
    assert len(rows) > 100
    for row in rows:
        assert undefined_tests(row, "tests/") == [], row
        assert re.search(r"\.(py|bzl|bazel)`|manual|none:", row), row
    guides = {path.name for path in (ROOT / "docs/guide").glob("*.md")}
    linked = set(re.findall(r"\(\.\./guide/([\w-]+\.md)", text_of("docs/internals/features.md")))
    assert guides - linked == set()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`//tests/setup:test_bazelw`, `:test_killed`", []),
        ("`//tests/setup:bazelw`, `//tests/setup:sources`", ["//tests/setup:bazelw"]),
        ("`tests/common/test_cache.py` and `tests/common/caches.py`", ["tests/common/caches.py"]),
        # A test file that no target runs, and a helper, which has no tests.
        ("`tests/torch/make_torch.py`, `tests/setup/cache_rule.py`", ["make_torch", "cache_rule"]),
        ("`tests/cli/test_cli.py` (`test_completion`, `test_none`)", ["test_none"]),
        ("`tests/hip/BUILD.bazel` (`wave32_*_test`, `scale_test`, `no_test`)", ["no_test"]),
        ("`//tests/tools:dockerfile`, `//tests/tools:docker`", ["//tests/tools:docker"]),
    ],
)
def test_undefined_tests_are_found(text: str, wrong: list[str]) -> None:
    """Prevents: the two tests above pass for a name that only occurs as text."""
    found = undefined_tests(text)
    assert all(any(name in one for one in found) for name in wrong), found
    assert len(found) == len(wrong) + text.count("sources")


def test_mutations_apply() -> None:
    """Prevents: a mutation that changes nothing, or whose feature or test does not exist."""
    features = text_of("docs/internals/features.md")
    assert len(MUTATIONS) >= 20
    for mutation in MUTATIONS:
        assert f"| {mutation.feature} | " in features, mutation.feature
        assert text_of(mutation.file).count(mutation.old) == 1, mutation.feature
        file, _, name = mutation.test.partition("::")
        assert name in defined_tests(file) or (not name and defined_tests(file)), mutation.test


WORKFLOW: dict[str, Any] = yaml.safe_load(text_of("examples/ci/qola.yml"))


def workflow_commands() -> Iterator[tuple[str, list[str]]]:
    """Yield each Bazel command of the workflow's jobs, for each entry of their matrix."""
    for name, job in WORKFLOW["jobs"].items():
        rows = job.get("strategy", {}).get("matrix", {}).get("include", [{}])
        for row, step in itertools.product(rows, job["steps"]):
            values = {**WORKFLOW["env"], **step.get("env", {})}
            text: str = step.get("run", "")
            for key, value in values.items():
                for column, entry in row.items():
                    value = value.replace(f"${{{{ matrix.{column} }}}}", entry)  # noqa: PLW2901
                text = text.replace(f"${{{key}}}", value)
            for line in text.splitlines():
                arguments = shlex.split(line)
                if arguments and arguments[0] == "./bazelw":
                    yield name, arguments[1:]


def wrong_bazel_words(words: Sequence[str]) -> list[str]:
    """Return the configurations and flags of qola in a command that do not exist."""
    configs = set(re.findall(r"^(?:build|common|test):(\S+)", text_of(".bazelrc"), re.M))
    wrong = []
    for word in words:
        option, _, value = word.partition("=")
        flag = re.fullmatch(r"--(?:@(?:qola|(rules_hip)))?//([\w/]*):(\w+)", option)
        if option == "--config":
            exists = value in configs
        elif flag:
            exists = is_flag(place_of(flag[1] or "qola", flag[2]), flag[3])
        else:
            continue
        wrong += [] if exists else [word]
    return wrong


def place_of(module: str, package: str) -> str:
    """Return the directory of a module's package."""
    return package if module == "qola" else f"{module}/{package}"


def is_flag(package: str, name: str) -> bool:
    """Return whether a target is a flag, or qola's alias of a flag of rules_hip."""
    target = targets(package)[name]
    if target["kind"] != "alias":
        kind: str = target["kind"]
        return kind.endswith("_flag")
    module, _, label = target["actual"].partition("//")
    below, _, actual = label.partition(":")
    return module == "@rules_hip" and is_flag(place_of("rules_hip", below), actual)


def test_workflow_commands_exist() -> None:
    """Prevents: a workflow with an option, configuration or target that qola does not have."""
    commands = list(workflow_commands())
    assert {name for name, _ in commands} == WORKFLOW["jobs"].keys()
    for name, arguments in commands:
        if arguments[:2] == ["run", "//:qola"]:
            assert targets("")["qola"]["actual"] == "//qola:program"
            # Invalid arguments end the process with a usage message.
            build_parser().parse_args(arguments[arguments.index("--") + 1 :])
            continue
        assert arguments[0] in ("build", "test"), (name, arguments)
        assert wrong_bazel_words(arguments) == [], name
        for word in arguments[1:]:
            option, _, value = word.partition("=")
            if option == "--credential_helper":
                host, _, path = value.partition("=")
                assert host == "cache.example.org"
                assert (ROOT / path.removeprefix("%workspace%/")).is_file()
            elif word.startswith("//:"):
                assert word.removeprefix("//:") in targets(""), (name, word)
            elif not re.match("--config=|--@qola//:", word):
                assert word == "//..." or option == "--remote_cache", (name, word)


def test_outputs_of_readme_commands_are_ignored() -> None:
    """Prevents: venv/ or build/ in a clone, which Bazel reads as packages and git as changes."""
    written = {"build", "out", *re.findall(r"-m venv (\S+)", text_of("README.md"))}
    assert len(written) > 2
    lines = text_of(".bazelignore").splitlines()
    ignored = {line for line in lines if not line.startswith("#")}
    assert written - ignored == set()
    assert {f"/{name}/" for name in ignored} - set(text_of(".gitignore").splitlines()) == set()


def test_program_starts(tmp_path: Path) -> None:
    """Prevents: `./bazelw run //:qola` fails, or its program with another Python's packages."""
    program = os.environ.get("QOLA_TEST_PROGRAM")
    command = [Path(program).absolute()] if program else [sys.executable, "-m", "qola"]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    directory = None if program else ROOT
    paths = [env["PATH"], *([path_with_other_python(tmp_path)] if program else [])]
    for path in paths:
        run = subprocess.run(
            [*command, "--version"],
            cwd=directory,
            env={**env, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (run.returncode, run.stdout) == (0, f"qola {__version__}\n"), run.stderr


def test_hip_page_lists_the_functions_of_the_fake_runtime() -> None:
    """Prevents: a function of the emulator's runtime that is not documented, or that is gone."""
    defined = re.compile(r"^(?:hipError_t|const char\*|int) (hip\w+?)(?:R0600)?\(", re.MULTILINE)
    found = {
        name
        for path in (ROOT / "gfxemu/fake_hip").glob("*.cpp")
        for name in defined.findall(path.read_text(encoding="utf-8"))
    }
    page = text_of("docs/guide/hip.md")
    section = page[page.index("### Functions of HIP") : page.index("When an emulated program is")]
    listed = re.findall(r"`(hip\w+)`", section)
    assert sorted(listed) == sorted(found)


@pytest.mark.parametrize("name", RENDERED)
def test_generated_pages_are_up_to_date(name: str) -> None:
    """Prevents: an option, key or rule added, changed or removed without its documentation."""
    assert RENDERED[name] == text_of(f"docs/reference/{name}"), f"run: {UPDATE}"


#: Names that look like settings: macros, AITER's names, the environment of compilers.
NO_SETTINGS = {"HIP_CLANG_PATH", "HIP_PLATFORM", "QOLA_KERNEL_ABI", "QOLA_ROCM_IDENTITY"}
PREFIXES = "(?:QOLA|NVTE|CK_JIT|GPU|ROCM|HIP|XDG|MAX)_[A-Z_]*[A-Z]"
READERS = {
    rf'"({PREFIXES})"': (*PYTHON, "rules/**/*.bzl", "runtime/**/*.cpp", "gfxemu/**/*.cpp"),
    rf"\$\{{?({PREFIXES})": ("bazelw", "tools/setup/*.sh", "tools/remote/grid.sh"),
}


def variables_read() -> set[str]:
    return {
        name
        for pattern, globs in READERS.items()
        for glob in globs
        for file in ROOT.glob(glob)
        if "_ruleset" not in file.parts
        for name in re.findall(pattern, file.read_text(encoding="utf-8"))
    } - NO_SETTINGS


def test_every_variable_is_documented() -> None:
    """Prevents: an undocumented variable, or a documented variable that no code reads."""
    page = text_of("docs/reference/settings.md").partition("## Build settings")[0]
    first = "".join(re.findall(r"^\| (.*?) \|", page, re.MULTILINE))
    documented = set(re.findall(r"`([A-Z_]+)`", first)) - {"QOLA_BUNDLE"}
    read = variables_read()
    assert read - documented == set()
    assert documented - read - {"AITER_ARCHIVE_BATCH_SIZE"} == set()


def test_build_settings_are_documented() -> None:
    """Prevents: a build flag that is only visible in BUILD files."""
    page = text_of("docs/reference/settings.md")
    found = {"qola": ("",), "rules_hip": ("hip", "kernels", "rocm")}
    flags = [
        f"--@{module}//{package}:{name}"
        for module, packages in found.items()
        for package in packages
        for name in targets(place_of(module, package))
        if is_flag(place_of(module, package), name)
    ]
    # A rule's transition sets it.
    flags.remove("--@rules_hip//kernels:sources")
    assert len(flags) >= 12
    own = text_of("rules_hip/README.md")
    assert [flag for flag in flags if flag not in page] == []
    labels = [flag.removeprefix("--@rules_hip") for flag in flags if "@rules_hip" in flag]
    assert [label for label in labels if f"`{label}`" not in own] == []


def test_documented_messages_exist() -> None:
    """Prevents: a documented error text that no code prints."""
    globs = (
        "bazelw",
        "tools/setup/*.sh",
        *PYTHON,
        "runtime/**/*.cpp",
        "gfxemu/**/*.cpp",
        "rules/**/*.bzl",
        "rules/**/*.sh",
        "rules_hip/*/*.bzl",
        "rules_hip/*/*.sh",
    )
    code = "\n".join(file.read_text("utf-8") for glob in globs for file in ROOT.glob(glob))
    page = text_of("docs/guide/troubleshooting.md")
    messages = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    bazels_own = "Inconsistent filesystem operations"
    messages = [text for text in messages if not text.startswith(bazels_own)]
    assert len(messages) > 20
    for message in messages:
        for part in filter(None, (part.strip(" ,") for part in message.split("..."))):
            assert part in code, message
