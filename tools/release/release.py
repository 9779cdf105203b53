"""Makes a release: `archive` packs this checkout, `entry` enters an archive in a Bazel registry.

The same files give the same bytes: names are sorted, the owner is 0:0, the time 0. gzip's bytes are
those of the zlib in the Python that runs this.
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
from pathlib import Path
from typing import Any

#: What a consumer needs, what it reads, and what MODULE.bazel names for this repository's own use.
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
        "cc",
        "cmake",
        "docs",
        "examples",
        "manifests",
        "qola",
        "rules",
        "tests/e2e/own_rocm",
    ),
    *("tests/e2e/two_pins", "tests/manifests", "tests/servers", "third_party", "tools"),
)
LEFT_OUT = ("__pycache__", "_ruleset")

TEMPLATES = ".bcr"
_FROM_TEMPLATES = ("metadata.template.json", "presubmit.yml", "source.template.json")


class ReleaseError(Exception):
    """What cannot be released, and what helps."""


def module_of(module_file: str) -> tuple[str, str]:
    """Return name and version that a MODULE.bazel declares.

    Raises:
        ReleaseError: it has no call module(name = "...", version = "...").
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


def release_files(root: Path) -> dict[str, Path]:
    """Return the files of a release by their names in it; `root` is a checkout."""
    found = [root / name for name in FILES]
    for directory in DIRECTORIES:
        found += [path for path in (root / directory).rglob("*") if path.is_file()]
    names = {path.relative_to(root): path for path in found}
    return {
        name.as_posix(): path
        for name, path in names.items()
        # bazel-bin and its sisters lead out of a consumer that was built where it lies.
        if not any(part in LEFT_OUT or part.startswith("bazel-") for part in name.parts)
    }


def write_archive(files: Mapping[str, Path], output: Path, prefix: str) -> None:
    """Write a .tar.gz of files below one directory.

    Args:
        files: by name in the archive; symlinks are followed, and the owner's x bit is kept.
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
    """Return source.json of a registry's entry: the template with values and the digest in it."""
    source: dict[str, Any] = json.loads(_substituted(template, values))
    digest = hashlib.sha256(archive).digest()
    source["integrity"] = "sha256-" + base64.b64encode(digest).decode("ascii")
    return source


def metadata_json(template: str, values: Mapping[str, str], before: str) -> dict[str, Any]:
    """Return metadata.json of a registry with a version more.

    Args:
        values: what to put in; VERSION is the version to add.
        before: the registry's metadata.json, "" for none.

    Raises:
        ReleaseError: the registry has the version.
    """
    metadata: dict[str, Any] = json.loads(_substituted(template, values))
    old: dict[str, Any] = json.loads(before) if before else {}
    if values["VERSION"] in old.get("versions", []):
        raise ReleaseError(
            f"the registry has version {values['VERSION']} already; "
            "a release never changes: raise the version in MODULE.bazel"
        )
    # Theirs: what was published stays, whatever the template says.
    metadata["versions"] = [*old.get("versions", []), values["VERSION"]]
    metadata["yanked_versions"] = old.get("yanked_versions", {})
    return metadata


def write_entry(archive: Path, registry: Path, values: Mapping[str, str], url: str) -> Path:
    """Enter an archive in a registry, a directory as https://bazel.build/external/registry says.

    Args:
        registry: the directory; made where it is not there.
        values: OWNER and REPO for the templates, which come from the archive.
        url: where the archive will be, "" for that of the template.

    Returns:
        The directory of the version.

    Raises:
        ReleaseError: as module_of and metadata_json, or a template is not in the archive.
    """
    content = archive.read_bytes()
    texts = _texts(archive, ["MODULE.bazel", *(f"{TEMPLATES}/{name}" for name in _FROM_TEMPLATES)])
    name, version = module_of(texts["MODULE.bazel"])
    values = {**values, "VERSION": version, "TAG": f"v{version}"}
    module = registry / "modules" / name
    known = module / "metadata.json"
    metadata = metadata_json(
        texts[f"{TEMPLATES}/metadata.template.json"],
        values,
        known.read_text(encoding="utf-8") if known.exists() else "",
    )
    source = source_json(texts[f"{TEMPLATES}/source.template.json"], values, content)
    if url:
        source["url"] = url
    target = module / version
    aside = module / f".{version}.new"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    (aside / "MODULE.bazel").write_text(texts["MODULE.bazel"], encoding="utf-8")
    (aside / "presubmit.yml").write_text(texts[f"{TEMPLATES}/presubmit.yml"], encoding="utf-8")
    (aside / "source.json").write_text(_json(source), encoding="utf-8")
    (aside / "metadata.json").write_text(_json(metadata), encoding="utf-8")
    # Of a run that did not end: no metadata.json names it.
    shutil.rmtree(target, ignore_errors=True)
    os.replace(aside / "metadata.json", module / ".metadata.json.new")
    os.replace(aside, target)
    os.replace(module / ".metadata.json.new", known)
    if not (registry / "bazel_registry.json").exists():
        (registry / "bazel_registry.json").write_text("{}\n", encoding="utf-8")
    return target


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
    # As the registry's own tools write it.
    return json.dumps(data, indent=4) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="release", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    packer = commands.add_parser("archive", help="pack this checkout as <module>-<version>.tar.gz")
    packer.add_argument("--output-dir", default="dist", type=Path, help="default: dist")
    entry = commands.add_parser("entry", help="enter an archive in a registry")
    entry.add_argument("--archive", required=True, type=Path)
    entry.add_argument("--registry", required=True, type=Path, help="its directory")
    entry.add_argument("--url", default="", help="of the archive; default: the template's")
    entry.add_argument("--owner", required=True, help="who has the repository, for the templates")
    entry.add_argument("--repo", default="qola", help="name of the repository (default: qola)")
    args = parser.parse_args(argv)
    # bazel run starts elsewhere; paths are the caller's.
    here = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    try:
        if args.command == "archive":
            root = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
            print(_archive(Path(root) if root else _ROOT, here / args.output_dir))
        else:
            values = {"OWNER": args.owner, "REPO": args.repo}
            target = write_entry(here / args.archive, here / args.registry, values, args.url)
            print(target / "source.json")
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


_ROOT = Path(__file__).resolve().parents[2]


def _archive(root: Path, output: Path) -> str:
    """Pack a checkout; return the line that sha256sum would print."""
    name, version = module_of((root / "MODULE.bazel").read_text(encoding="utf-8"))
    output.mkdir(parents=True, exist_ok=True)
    archive = output / f"{name}-{version}.tar.gz"
    aside = archive.with_suffix(".new")
    write_archive(release_files(root), aside, f"{name}-{version}")
    os.replace(aside, archive)
    return f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive}"


if __name__ == "__main__":
    sys.exit(main())
