"""Makes a release: `archive` packs the modules of a checkout, `entry` adds them to a registry.

Equal files give equal bytes: names are sorted, the owner is 0:0, the time 0. The compressed bytes
depend on the zlib of the Python that runs this.
"""

from __future__ import annotations

import argparse
import ast
import base64
import gzip
import hashlib
import json
import os
import shutil
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Files that consumers build with or read, and those that MODULE.bazel names.
FILES = (
    *(
        ".bazelignore",
        ".bazelrc",
        ".bazelversion",
        "BUILD.bazel",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
    ),
    *("LICENSE", "MODULE.bazel", "README.md", "bazelw", "pyproject.toml", "setup.py"),
)
DIRECTORIES = (
    *(
        ".bcr",
        "cmake",
        "docs",
        "examples",
        "gfxemu",
        "manifests",
        "qola",
        "qola_base",
        "qola_lab",
        "rules",
        "rules_hip",
        "runtime",
        "tests/e2e/own_rocm",
    ),
    *("tests/e2e/two_pins", "tests/manifests", "tests/servers", "third_party", "tools"),
)
LEFT_OUT = ("__pycache__", "_ruleset")
#: Tests of the parts, and what pip leaves there.
NOT_SHIPPED = (
    *("gfxemu/build/", "gfxemu/tests/", "qola_base/build/", "qola_lab/tests/"),
    *("runtime/tests/", "rules_hip/gfxemu/build/", "rules_hip/gfxemu/tests/"),
    "rules_hip/qola_base/build/",
)

TEMPLATES = ".bcr"
#: The modules of a release: directories of the checkout, as in .bcr/config.yml. Each has an archive
#: of its own; that of qola has all.
MODULES = ("", "rules_hip/")
_FROM_TEMPLATES = ("metadata.template.json", "presubmit.yml", "source.template.json")


class ReleaseError(Exception):
    """A release cannot be made; the message includes the fix."""


def module_of(module_file: str) -> tuple[str, str]:
    """Parse name and version of a MODULE.bazel.

    Raises:
        ReleaseError: the file has no call module(name = "...", version = "...").
    """
    for node in ast.parse(module_file).body:
        call = getattr(node, "value", None)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "module":
            values = {
                k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)
            }
            name, version = values.get("name"), values.get("version")
            if isinstance(name, str) and isinstance(version, str):
                return name, version
    raise ReleaseError('MODULE.bazel: expected module(name = "...", version = "...")')


def release_files(root: Path, module: str = "") -> dict[str, Path]:
    """Return the files of a checkout that the archive of a module contains, by name in the archive.

    Args:
        module: one of MODULES. Links in its directory are followed.
    """
    if module:
        files = {"LICENSE": root / "LICENSE", **_below(root, module)}
        files |= {
            f"{TEMPLATES}/{module}{name}": root / TEMPLATES / module / name
            for name in _FROM_TEMPLATES
        }
        return {name.replace(module, "", 1): path for name, path in files.items()}
    files = {name: root / name for name in FILES}
    for directory in DIRECTORIES:
        files |= _below(root, directory)
    return files


def _below(root: Path, directory: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for place, directories, names in os.walk(root / directory, followlinks=True):
        # Links such as bazel-bin lead out of the checkout.
        directories[:] = [
            name
            for name in directories
            if name not in LEFT_OUT
            and not name.startswith("bazel-")
            and not name.endswith(".egg-info")
        ]
        for name in names:
            path = Path(place, name)
            shown = path.relative_to(root).as_posix()
            if (
                path.is_file()
                and not name.startswith("bazel-")
                and not shown.startswith(NOT_SHIPPED)
            ):
                found[shown] = path
    return found


def write_archive(files: Mapping[str, Path], output: Path, prefix: str) -> None:
    """Write a .tar.gz of files by name, below the directory `prefix`.

    Symlinks are followed, and the owner's x bit is preserved.
    """
    with (
        output.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, path in sorted(files.items()):
            entry = tarfile.TarInfo(f"{prefix}/{name}")
            status = path.stat()
            entry.mode = 0o755 if status.st_mode & 0o100 else 0o644
            entry.size = status.st_size
            with path.open("rb") as file:
                archive.addfile(entry, file)


def source_json(template: str, values: Mapping[str, str], archive: bytes) -> dict[str, Any]:
    """Return source.json of a registry's entry, from the template, values and digest."""
    source: dict[str, Any] = json.loads(_substituted(template, values))
    digest = hashlib.sha256(archive).digest()
    source["integrity"] = "sha256-" + base64.b64encode(digest).decode("ascii")
    return source


def metadata_json(template: str, values: Mapping[str, str], before: str) -> dict[str, Any]:
    """Return metadata.json of a registry with an additional version.

    Args:
        values: values of the template; VERSION is the version to add.
        before: the registry's metadata.json, "" for none.

    Raises:
        ReleaseError: the registry already has the version.
    """
    metadata: dict[str, Any] = json.loads(_substituted(template, values))
    old: dict[str, Any] = json.loads(before) if before else {}
    if values["VERSION"] in old.get("versions", []):
        raise ReleaseError(
            f"the registry has version {values['VERSION']} already; "
            "a release never changes: raise the version in MODULE.bazel"
        )
    # Published versions stay, regardless of the template. The registry requires Bazel's order.
    metadata["versions"] = sorted([*old.get("versions", []), values["VERSION"]], key=_in_order)
    metadata["yanked_versions"] = old.get("yanked_versions", {})
    return metadata


def _in_order(version: str) -> tuple[tuple[tuple[bool, int | str], ...], bool, str]:
    """Return a version's place among others: numbers by value, a release after its pre-releases."""
    release, _, before = version.partition("-")
    parts = tuple(
        (not part.isdigit(), int(part) if part.isdigit() else part) for part in release.split(".")
    )
    return parts, not before, before


def write_entries(
    archives: Sequence[Path], registry: Path, values: Mapping[str, str], url: str
) -> list[Path]:
    """Add the modules of archives to a registry (https://bazel.build/external/registry).

    Args:
        registry: its directory, created if missing.
        values: MAINTAINER, OWNER and REPO for the templates, which are in the archives.
        url: URL of the archives' directory, "" for the templates'.

    Returns:
        The directory of the version of each module.

    Raises:
        ReleaseError: see module_of and metadata_json, or a template is missing in an archive. The
            registry is unchanged.
    """
    entries = [_entry(archive, registry, values, url) for archive in archives]
    for entry in entries:
        _write_entry(entry)
    if not (registry / "bazel_registry.json").exists():
        (registry / "bazel_registry.json").write_text("{}\n", encoding="utf-8")
    return [entry.directory for entry in entries]


@dataclass(frozen=True)
class _Entry:
    """A version of a module in a registry, with metadata.json of all versions."""

    directory: Path
    files: Mapping[str, str]
    metadata: str


def _entry(archive: Path, registry: Path, values: Mapping[str, str], url: str) -> _Entry:
    """Return the entry of an archive's module."""
    texts = _texts(archive, ["MODULE.bazel", *(f"{TEMPLATES}/{name}" for name in _FROM_TEMPLATES)])
    templates = {name: texts[f"{TEMPLATES}/{name}"] for name in _FROM_TEMPLATES}
    name, version = module_of(texts["MODULE.bazel"])
    values = {**values, "VERSION": version, "TAG": f"v{version}"}
    module = registry / "modules" / name
    known = module / "metadata.json"
    before = known.read_text(encoding="utf-8") if known.exists() else ""
    metadata = metadata_json(templates["metadata.template.json"], values, before)
    source = source_json(templates["source.template.json"], values, archive.read_bytes())
    if url:
        source["url"] = f"{url.rstrip('/')}/{archive.name}"
    files = {
        "MODULE.bazel": texts["MODULE.bazel"],
        "presubmit.yml": templates["presubmit.yml"],
        "source.json": _json(source),
    }
    return _Entry(module / version, files, _json(metadata))


def _write_entry(entry: _Entry) -> None:
    module = entry.directory.parent
    aside = module / f".{entry.directory.name}.new"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    for name, text in entry.files.items():
        (aside / name).write_text(text, encoding="utf-8")
    (module / ".metadata.json.new").write_text(entry.metadata, encoding="utf-8")
    # Left by an interrupted run: no metadata.json names it.
    shutil.rmtree(entry.directory, ignore_errors=True)
    os.replace(aside, entry.directory)
    os.replace(module / ".metadata.json.new", module / "metadata.json")


def _substituted(template: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", value)
    return template


def _texts(archive: Path, names: Sequence[str]) -> dict[str, str]:
    texts = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            _, _, name = member.name.partition("/")
            if name in names and (file := tar.extractfile(member)):
                texts[name] = file.read().decode("utf-8")
    missing = sorted(set(names) - texts.keys())
    if missing:
        raise ReleaseError(
            f"{archive}: no {', '.join(missing)} in it; "
            "make it with ./bazelw run //tools/release -- archive"
        )
    return texts


def _json(data: Mapping[str, Any]) -> str:
    # The format of the registry's own tools.
    return json.dumps(data, indent=4) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="release", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    packer = commands.add_parser(
        "archive", help="pack each module of this checkout as <module>-<version>.tar.gz"
    )
    packer.add_argument("--output-dir", default="dist", type=Path, help="default: dist")
    entry = commands.add_parser("entry", help="add archives to a registry")
    entry.add_argument(
        "--archive",
        required=True,
        type=Path,
        action="append",
        help="of a module; repeat it for each",
    )
    entry.add_argument("--registry", required=True, type=Path, help="its directory")
    entry.add_argument(
        "--url", default="", help="URL of the archives' directory; default: the template's"
    )
    entry.add_argument("--owner", required=True, help="owner of the repository, for the templates")
    entry.add_argument(
        "--maintainer",
        required=True,
        help="the module's maintainer, whom the Bazel Central Registry requires",
    )
    entry.add_argument("--repo", default="qola", help="name of the repository (default: qola)")
    args = parser.parse_args(argv)
    # bazel run changes the directory; paths are relative to the caller's.
    here = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    try:
        if args.command == "archive":
            root = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
            for module in MODULES:
                print(_archive(Path(root) if root else _ROOT, module, here / args.output_dir))
        else:
            values = {"OWNER": args.owner, "REPO": args.repo, "MAINTAINER": args.maintainer}
            archives, registry = [here / name for name in args.archive], here / args.registry
            for target in write_entries(archives, registry, values, args.url):
                print(target / "source.json")
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


_ROOT = Path(__file__).resolve().parents[2]


def _archive(root: Path, module: str, output: Path) -> str:
    """Pack a module of a checkout; return a line in the format of sha256sum."""
    name, version = module_of((root / module / "MODULE.bazel").read_text(encoding="utf-8"))
    output.mkdir(parents=True, exist_ok=True)
    archive = output / f"{name}-{version}.tar.gz"
    aside = archive.with_suffix(".new")
    write_archive(release_files(root, module), aside, f"{name}-{version}")
    os.replace(aside, archive)
    return f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive}"


if __name__ == "__main__":
    sys.exit(main())
