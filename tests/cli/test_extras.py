"""The packages of each extra: imports, pins, and commands in a Python that has only them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from qola.cli.commands import COMMANDS
from qola.common.extras import EXTRAS
from qola.common.packages import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PINS = ROOT / "third_party/python"

MODULES = {
    "report": ("qola_base/code_object", "qola_lab/trees", "qola/report"),
    "generators": ("qola/codegen",),
    "verify": (
        "gfxemu",
        *(f"qola_lab/{name}" for name in ("fmha", "models", "problems", "reference", "verify")),
    ),
    "bundle": ("qola/bundle",),
}
"""By extra, the packages that need it."""

NOT_IMPORTED = re.compile(r"\.tests\.|\.__main__$|fake_hip\.make_exports")
"""Tests and programs."""


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: Sequence[str]) -> set[str]:
    """Return the packages of requirements, without those of other files."""
    found = [re.match(r"[\w.-]+", line) for line in requirements if not line.startswith("-")]
    return {normalized(match[0]) for match in found if match}


def required(file: str) -> set[str]:
    """Return the packages of an .in file and of those that it includes."""
    lines = (PINS / file).read_text("utf-8").splitlines()
    below = [required(line.split()[1]) for line in lines if line.startswith("-r ")]
    return names(lines).union(*below)


def pinned(extra: str) -> set[str]:
    """Return the packages that an installation with an extra, "" for none, has."""
    files = ["runtime.txt", *([f"{extra}.txt"] if extra else [])]
    return names([line for file in files for line in (PINS / file).read_text("utf-8").splitlines()])


def run(extra: str, program: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python in which all packages but those of an extra are missing."""
    has = pinned(extra)
    hidden = [
        module
        for module, packages in packages_distributions().items()
        if module != "qola" and not has.intersection(map(normalized, packages))
    ]
    assert {"pytest", "hypothesis"} <= {*hidden}
    hide = f"import sys; sys.path[:] = {sys.path!r}\nsys.modules.update(dict.fromkeys({hidden!r}))"
    command = [sys.executable, "-c", f"{hide}\n{program}"]
    environ = {"QOLA_CACHE_HOME": str(cwd / "cache")}
    return subprocess.run(
        command, cwd=cwd, env=environ, capture_output=True, text=True, check=False
    )


def call(extra: str, words: Sequence[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Call the command line in such a Python."""
    return run(extra, f"from qola.cli import main; sys.exit(main({[*words]!r}))", cwd)


def test_extras_are_the_same_everywhere() -> None:
    """Prevents: pip installs other packages with an extra than tests have and errors name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for extra in MODULES:
        assert names(project["optional-dependencies"][extra]) == required(f"{extra}.in"), extra
    for extra, packages in EXTRAS.items():
        assert required(f"{extra}.in") - {*packages.values()} <= {"tinygrad"}
        assert {*packages.values()} <= required(f"{extra}.in")


@pytest.mark.parametrize("extra", MODULES)
def test_modules_import_only_the_packages_of_their_extra(extra: str, tmp_path: Path) -> None:
    """Prevents: `pip install qola[EXTRA]` lacks a package, and its commands end in a traceback."""
    files = [file for name in MODULES[extra] for file in sorted((ROOT / name).rglob("*.py"))]
    modules = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    program = "\n".join(
        f"import {module.removesuffix('.__init__')}"
        for module in modules
        if not NOT_IMPORTED.search(module)
    )
    result = run(extra, program, tmp_path)
    assert result.returncode == 0, result.stderr


WITHOUT = [
    ["--version"],
    ["completion", "bash"],
    ["help", "inspect", "health", "report", "dispatch"],
]


@pytest.mark.parametrize("words", WITHOUT, ids=" ".join)
def test_commands_without_an_extra(words: list[str], tmp_path: Path) -> None:
    """Prevents: a command that README calls after `pip install .` needs an extra."""
    result = call("", words, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")


COMMANDS_OF = [
    ("report", ["inspect", sys.executable], (0, "")),
    ("report", ["report", sys.executable, "-o", "page.html"], (0, "")),
    ("report", ["health", "--aiter", "."], (1, "no code object")),
    ("verify", ["dispatch", "none.toml", "hdim=64", "dtype=bf16", "seqlen_q=1"], (2, "none.toml")),
    ("verify", ["init", "m.toml", "--model", "config.json"], (2, "config.json")),
    ("verify", ["emulate", "program"], (5, "no such file")),
]
"""Commands that need an extra, exit codes and errors: wrong input is found after the imports."""


@pytest.mark.parametrize(("extra", "words", "expected"), COMMANDS_OF, ids=str)
def test_commands_of_an_extra(
    extra: str, words: list[str], expected: tuple[int, str], tmp_path: Path
) -> None:
    """Prevents: an error that does not name all packages to install, and a missing pin."""
    (tmp_path / "config.json").write_text("{}")
    result = call("", [*words], tmp_path)
    fix = f"-m pip install {' '.join(EXTRAS[extra].values())}\n"
    assert (result.returncode, fix in result.stderr) == (1, True), result.stderr
    result = call(extra, words, tmp_path)
    assert result.returncode == expected[0], result.stderr
    assert expected[1] in result.stderr
    assert "Traceback" not in result.stderr


def test_json_of_the_error(tmp_path: Path) -> None:
    """Prevents: --json prints no JSON if packages are missing."""
    result = call("", ["inspect", sys.executable, "--json"], tmp_path)
    (finding,) = json.loads(result.stdout)["error"]["findings"]
    assert finding["place"] == "qola inspect"


def test_the_guide_names_the_commands_of_each_extra() -> None:
    """Prevents: a guide that names other extras, or another command for an extra."""
    text = (ROOT / "docs/guide/setup.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `qola\[(\w+)\]` \|(.*)\|$", text, re.MULTILINE))
    assert rows.keys() == MODULES.keys()
    told = {(extra, word) for extra in EXTRAS for word in re.findall(r"`qola (\w+)", rows[extra])}
    assert told == {(extra, words[0]) for extra, words, _ in COMMANDS_OF}
    assert {word for _, word in told} <= COMMANDS.keys()
