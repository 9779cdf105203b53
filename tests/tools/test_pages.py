"""Documentation: links, examples, and names of variables, options and targets."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from qola.cli.command_line import build_parser
from qola.manifest.load import loads
from qola.version import __version__
from tests.support.checkout import checkout_root
from tests.support.pythons import path_with_other_python
from tools.docs import cli

ROOT = checkout_root()
_GLOBS = ("*.md", "docs/**/*.md", "examples/*.md", "tests/*/*.md", "third_party/*/*.md")
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
        build = text_of(f"{package}/BUILD.bazel")
        assert f'"{(name or Path(package).name).removesuffix("_static")}"' in build, package


def test_security_promises_have_tests() -> None:
    """Prevents: a promise of SECURITY.md without a test, or whose test does not exist any more."""
    verified = text_of("SECURITY.md").partition("## Verification")[2].partition("\n## ")[0]
    rows = [line for line in verified.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 8
    for row in rows:
        tests = row.rpartition(" | ")[2]
        found = [ROOT / file for file in re.findall(r"`(tests/[\w/]+\.py)`", tests)]
        package = ""
        for place, name in re.findall(r"`(?://([\w/]+))?:(\w+)`", tests):
            package = place or package
            found.append(ROOT / package / f"{name}.py")
        assert found, row
        assert [path for path in found if not path.is_file()] == []


def test_readme_manifest_is_valid() -> None:
    """Prevents: an error for the first manifest that a newcomer copies."""
    (example,) = re.findall(r"```toml\n(.*?)```", text_of("README.md"), re.DOTALL)
    assert loads(example, file="README.md").warnings == ()


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
    defined = re.compile(r"^(?:hipError_t|const char\*) (hip\w+?)(?:R0600)?\(", re.MULTILINE)
    found = {
        name
        for path in (ROOT / "cc/fake_hip").glob("*.cpp")
        for name in defined.findall(path.read_text(encoding="utf-8"))
    }
    page = text_of("docs/guide/hip.md")
    section = page[page.index("### Functions of HIP") : page.index("When an emulated program is")]
    listed = re.findall(r"`(hip\w+)`", section)
    assert sorted(listed) == sorted(found)


def test_command_line_page_is_up_to_date() -> None:
    """Prevents: an option added, changed or removed without its documentation."""
    assert cli.render(build_parser()) == text_of("docs/reference/cli.md"), f"run: {cli.UPDATE}"


#: Names that look like settings: macros, AITER's names, the environment of compilers.
NO_SETTINGS = {"HIP_CLANG_PATH", "HIP_PLATFORM", "QOLA_KERNEL_ABI", "QOLA_ROCM_IDENTITY"}
PREFIXES = "(?:QOLA|NVTE|CK_JIT|GPU|ROCM|HIP|XDG|MAX)_[A-Z_]*[A-Z]"
READERS = {
    rf'"({PREFIXES})"': ("qola/**/*.py", "rules/**/*.bzl", "cc/**/*.cpp"),
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
    declared = r'\w+_flag\(\s*name = "(\w+)"'
    files = {"": "rules/private/settings.bzl", "rules/rocm": "rules/rocm/BUILD.bazel"}
    flags = [
        f"--@qola//{package}:{name}"
        for package, file in files.items()
        for name in re.findall(declared, text_of(file))
    ]
    assert len(flags) >= 4
    assert [flag for flag in flags if flag not in page] == []


def test_documented_messages_exist() -> None:
    """Prevents: a documented error text that no code prints."""
    globs = (
        "bazelw",
        "tools/setup/*.sh",
        "qola/**/*.py",
        "cc/**/*.cpp",
        "rules/**/*.bzl",
        "rules/**/*.sh",
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
