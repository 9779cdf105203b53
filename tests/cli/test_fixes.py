"""The files and directories that fixes of findings name."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from qola.aiter.known_faults import FILE as KNOWN_FAULTS
from qola.aiter.proven_faults import FILE as PROVEN_FAULTS
from qola.common.packages import PARTS, ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOP = (
    *("bench", "cmake", "examples", "gfxemu", "manifests", "qola", "qola_base", "qola_lab"),
    *("rules", "rules_hip", "runtime", "tests", "third_party"),
    "tools",
)
PATH = re.compile(rf"(?<![\w/.:@-])(?:{'|'.join(TOP)})/[\w./-]+\w")
"""A path in the repository. Pages of docs/ are named by docs_url, which a release replaces."""


def texts(node: ast.AST) -> Iterator[str]:
    """Yield the constant strings in an expression."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def fixes(file: Path) -> Iterator[str]:
    """Yield the constant strings of the fixes in a module: arguments, and variables named fix."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            if ast.unparse(node.func).rpartition(".")[2] == "Finding":
                for argument in node.args[3:4]:
                    yield from texts(argument)
            for keyword in node.keywords:
                if keyword.arg == "fix":
                    yield from texts(keyword.value)
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any("fix" in ast.unparse(target).lower() for target in targets):
                yield from texts(node.value)


def in_the_wheel(path: str) -> bool:
    """Return whether pip installs a file or directory of the repository at this path."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["qola"]
    name = path.removeprefix("qola/")
    is_data = any(fnmatchcase(name, pattern) for pattern in patterns)
    return path.startswith("qola/") and (is_data or path.endswith(".py")) and (ROOT / path).exists()


def test_fixes_name_files_that_pip_installs() -> None:
    """Prevents: a fix that names a file which only a clone of the repository has."""
    named = {
        (str(file.relative_to(ROOT)), path)
        for part in PARTS
        for file in sorted((ROOT / part).rglob("*.py"))
        if not {"_ruleset", "tests"} & {*file.relative_to(ROOT).parts}
        for text in fixes(file)
        for path in PATH.findall(text)
    }
    for file in (KNOWN_FAULTS, PROVEN_FAULTS):
        for fault in json.loads(file.read_text("utf-8")):
            text = json.dumps({key: fault[key] for key in ("fixed", "patch") if key in fault})
            named |= {(file.name, path) for path in PATH.findall(text)}
    assert named, "the search finds no path at all"
    assert [one for one in sorted(named) if not in_the_wheel(one[1])] == []
