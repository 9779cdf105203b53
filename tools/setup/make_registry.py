"""Makes a file:// Bazel registry from the modules that Debian packages under /usr/share/bazel.

Every version a packaged module or Bazel itself asks for is served with the packaged sources, and so
are the releases up to the packaged one, so that minimum versions written for the Bazel Central
Registry resolve here too. Whichever version Bazel selects, its source is the packaged one.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# Released versions that modules may name as their minimum, none above the packaged one.
RELEASES: Mapping[str, tuple[str, ...]] = {
    "bazel_features": (
        *("1.0.0", "1.1.0", "1.1.1", "1.2.0", "1.3.0", "1.4.0", "1.4.1", "1.5.0", "1.6.0"),
        *("1.7.0", "1.7.1", "1.8.0", "1.9.0", "1.9.1", "1.10.0", "1.11.0"),
    ),
    "bazel_skylib": (
        *("1.0.3", "1.1.1", "1.2.0", "1.2.1", "1.3.0", "1.4.0", "1.4.1", "1.4.2", "1.5.0"),
        *("1.6.0", "1.6.1", "1.7.0", "1.7.1", "1.8.0", "1.8.1", "1.8.2", "1.9.0"),
    ),
    "platforms": ("0.0.4", "0.0.5", "0.0.6", "0.0.7", "0.0.8", "0.0.9", "0.0.10"),
    "rules_cc": (
        *("0.0.1", "0.0.2", "0.0.3", "0.0.4", "0.0.5", "0.0.6", "0.0.8", "0.0.9", "0.0.10"),
        "0.0.11",
    ),
    "rules_license": ("0.0.3", "0.0.4", "0.0.7"),
    "rules_pkg": ("0.7.0", "0.8.0", "0.8.1", "0.9.0", "0.9.1"),
    "rules_python": (
        *("0.10.2", "0.14.0", "0.15.1", "0.16.1", "0.17.3", "0.18.1", "0.19.0", "0.20.0"),
        *("0.21.0", "0.22.0", "0.22.1"),
    ),
    "rules_shell": ("0.1.1", "0.1.2", "0.2.0", "0.3.0", "0.4.0"),
}

# Modules that Bazel itself names and that C++ and Python builds never load: empty, with their
# extension where Bazel uses it.
STAND_INS: Mapping[str, Mapping[str, str]] = {
    "apple_support": {},
    "buildozer": {
        "buildozer_binary.bzl": "def _repo(ctx):\n"
        '    ctx.file("BUILD.bazel")\n\n'
        "_buildozer = repository_rule(_repo)\n\n"
        "def _extension(_module_ctx):\n"
        '    _buildozer(name = "buildozer_binary")\n\n'
        "buildozer_binary = module_extension(_extension)\n"
    },
    "protobuf": {},
    "zlib": {},
}


@dataclass(frozen=True)
class Module:
    """A packaged module: its name, its directory and the text of its MODULE.bazel."""

    name: str
    path: str
    text: str


def _calls(text: str, function: str) -> Iterator[ast.Call]:
    """The top-level calls of `function` in a MODULE.bazel, whose syntax is a subset of Python's."""
    for statement in ast.parse(text).body:
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Name(id=name)) as call) if name == function:
                yield call


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _string(call: ast.Call, name: str) -> str | None:
    value = _keyword(call, name)
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    return None


def module_name(text: str) -> str:
    """The name in a MODULE.bazel's module() call; ValueError without one."""
    name = next((_string(call, "name") for call in _calls(text, "module")), None)
    if name is None:
        raise ValueError("no module(name = ...) call with a literal name")
    return name


def dependencies(text: str) -> set[tuple[str, str]]:
    """The (module, version) pairs a MODULE.bazel asks for, those for its development left out."""
    return {
        (name, version)
        for call in _calls(text, "bazel_dep")
        if _keyword(call, "dev_dependency") is None
        if (name := _string(call, "name")) and (version := _string(call, "version"))
    }


def with_version(text: str, version: str) -> str:
    """The MODULE.bazel with this version in its module() call; nothing else changes."""
    call = next(_calls(text, "module"))
    lines = text.splitlines(keepends=True)
    old = _keyword(call, "version")
    if old is not None:
        line, start, end, new = old.lineno - 1, old.col_offset, old.end_col_offset, f'"{version}"'
    else:  # right behind "module("
        line, start = call.func.lineno - 1, (call.func.end_col_offset or 0) + 1
        end, new = start, f'version = "{version}", '
    lines[line] = lines[line][:start] + new + lines[line][end:]
    return "".join(lines)


def registry(modules: Iterable[Module], bazel_tools: str, root: str) -> dict[str, str]:
    """The registry's files (relative path to text) for these modules.

    `bazel_tools` is the text of Bazel's own MODULE.bazel, `root` the registry's absolute directory.
    ValueError names the modules that are asked for and neither packaged nor stood in for.
    """
    packaged = {module.name: module for module in modules}
    asked = set(dependencies(bazel_tools))
    for module in packaged.values():
        asked |= dependencies(module.text)
    released = {name: RELEASES.get(name, ()) for name in packaged}
    asked |= {(name, version) for name, versions in released.items() for version in versions}
    missing = sorted({name for name, _ in asked} - set(packaged) - set(STAND_INS))
    if missing:
        raise ValueError(f"modules that are asked for and not packaged: {', '.join(missing)}")

    files = {"bazel_registry.json": "{}\n"}
    for name in sorted({name for name, _ in asked} | set(packaged)):
        versions = sorted(version for asked_name, version in asked if asked_name == name)
        stand_in = name not in packaged
        path = f"{root}/stand-ins/{name}" if stand_in else packaged[name].path
        text = f'module(name = "{name}", version = "0")\n' if stand_in else packaged[name].text
        for version in versions:
            base = f"modules/{name}/{version}"
            files[f"{base}/MODULE.bazel"] = with_version(text, version)
            files[f"{base}/source.json"] = json.dumps({"type": "local_path", "path": path}) + "\n"
        metadata = {"versions": versions, "yanked_versions": {}}
        files[f"modules/{name}/metadata.json"] = json.dumps(metadata, indent=1) + "\n"
        if stand_in:
            files[f"stand-ins/{name}/MODULE.bazel"] = text
            files[f"stand-ins/{name}/BUILD.bazel"] = ""
            files |= {f"stand-ins/{name}/{file}": body for file, body in STAND_INS[name].items()}
    return files


def packaged_modules(bazel: Path) -> list[Module]:
    """The modules under rules/ and tools/ of Debian's Bazel directory."""
    files = sorted([*bazel.glob("rules/*/MODULE.bazel"), *bazel.glob("tools/*/MODULE.bazel")])
    texts = [(file, file.read_text()) for file in files]
    return [Module(module_name(text), str(file.parent), text) for file, text in texts]


def main(argv: list[str]) -> int:
    """Write the registry; returns 1, with a message, when a needed module is missing."""
    parser = argparse.ArgumentParser(description="Makes a Bazel registry of Debian's modules.")
    parser.add_argument("--bazel", type=Path, required=True, help="such as /usr/share/bazel")
    parser.add_argument("--out", type=Path, required=True, help="the registry's directory")
    args = parser.parse_args(argv)
    try:
        bazel_tools = (args.bazel / "embedded_tools/MODULE.bazel").read_text()
        files = registry(packaged_modules(args.bazel), bazel_tools, str(args.out))
    except (OSError, ValueError) as error:
        fix = "add its Debian package to third_party/debian/packages.conf"
        print(f"make_registry: {error}; {fix}", file=sys.stderr)
        return 1
    for name, text in files.items():
        file = args.out / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
