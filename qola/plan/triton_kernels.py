"""Kernels in Triton: what each table of the manifest compiles."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from qola.errors import Finding, ManifestError
from qola.fetch.commit_tree import commit_tree
from qola.files import UnfitFileError, bounded_bytes, sha256_of_text
from qola.folder import Folder
from qola.manifest.triton import TritonSpec, triton_name
from qola.manifest.types import Manifest
from qola.manifest.values import either, nearest
from qola.plan.model import PlannedFile, TritonInstance, TritonKernel
from qola.plan.request import ResolvedRequest
from qola.triton import own
from qola.triton.kernel import Kernel, expand

MAX_BYTES = 1 << 20
"""The most bytes of a kernel's file."""

TRITON_FILES = "triton_files.txt"
"""File of a repository with `triton_list`, which its rule watches."""


def triton_list(manifest: Manifest) -> str:
    """Return the files of a manifest's kernels that are beside it, a path a line."""
    paths = {path for spec in manifest.triton if not spec.commit for path in spec.files}
    return "".join(f"{path}\n" for path in sorted(paths))


def triton_trees(manifest: Manifest, environ: Mapping[str, str]) -> dict[str, Path]:
    """Return the trees of the commits that a manifest takes kernels of, by commit.

    Raises:
        QolaError: as `commit_tree`.
    """
    found: dict[str, Path] = {}
    for spec in manifest.triton:
        if spec.commit and spec.commit not in found:
            place = manifest.place("triton", spec.index, "commit")
            found[spec.commit] = commit_tree(spec.remote, spec.commit, environ, place)
    return found


def triton_files(
    manifest: Manifest, file: Path, trees: Mapping[str, Path] | None = None
) -> dict[str, str]:
    """Return the Python files that a manifest's kernels need, as `TritonSpec.files` calls them.

    Args:
        file: where the manifest is; paths of files beside it are relative to its directory.
        trees: of commits; None for the files beside the manifest alone.

    Raises:
        ManifestError: one cannot be read.
    """
    found: dict[str, str] = {}
    findings = []
    for spec in manifest.triton:
        root = (trees or {}).get(spec.commit) if spec.commit else file.parent
        if root is None:
            continue
        keys = ("file", *("deps" for _ in spec.deps))
        for key, name, path in zip(keys, spec.files, (spec.file, *spec.deps), strict=False):
            if name in found:
                continue
            try:
                found[name] = _text(root, path, within=bool(spec.commit))
            except (OSError, UnfitFileError, UnicodeDecodeError) as error:
                words = getattr(error, "strerror", None) or str(error)
                place = manifest.place("triton", spec.index, key)
                where = f"commit {spec.commit}" if spec.commit else "the manifest's directory"
                expected = f"a Python file, relative to {where}"
                findings.append(Finding(place, f"{path}: {words}", expected))
    if findings:
        raise ManifestError(findings)
    return found


def _text(root: Path, path: str, *, within: bool) -> str:
    """Return a file's text; a link in somebody else's tree may not lead out of it."""
    # Not resolve(), for which links in a circle are a RuntimeError before Python 3.13.
    if within and not Path(os.path.realpath(root / path)).is_relative_to(os.path.realpath(root)):
        raise UnfitFileError("a link that leads out of the tree")
    return bounded_bytes(root / path, MAX_BYTES).decode("utf-8")


def plan_triton(resolved: ResolvedRequest, output: Folder) -> tuple[TritonKernel, ...]:
    """Plan the kernels of all tables, and copy users' files to triton/<kernel>/.

    Raises:
        ManifestError: a kernel is not there, or choices do not fit it; all that is wrong.
    """
    found: list[TritonKernel] = []
    findings: list[Finding] = []
    for spec in resolved.request.manifest.triton:
        for function in spec.kernels:
            found += _collect(resolved, spec, function, output, findings)
    if findings:
        raise ManifestError(findings)
    return tuple(sorted(found, key=lambda kernel: kernel.name))


def _collect(
    resolved: ResolvedRequest,
    spec: TritonSpec,
    function: str,
    output: Folder,
    findings: list[Finding],
) -> list[TritonKernel]:
    try:
        return [_kernel(resolved, spec, function, output)]
    except ManifestError as error:
        findings += error.findings
        return []


def _kernel(
    resolved: ResolvedRequest, spec: TritonSpec, function: str, output: Folder
) -> TritonKernel:
    name = triton_name(spec.name, function)
    place = resolved.request.manifest.place("triton", spec.index, "kernels")
    files = dict(_files(resolved.request.triton, spec, function, place))
    source, *deps = files
    kernel = Kernel(
        name=name,
        source=f"{place}: {source}",
        text=files[source],
        function=function,
        choices=dict(spec.choices),
        archs=spec.archs or resolved.archs,
        signature=dict(spec.signature),
    )
    instances = expand(kernel)
    if spec.file:
        names = [PurePosixPath(file).name for file in files]
        if len(set(names)) != len(names):
            raise ManifestError(Finding(place, ", ".join(files), "files of different names"))
        for file, text in files.items():
            output.write(f"triton/{name}/{PurePosixPath(file).name}", text)
    directory = f"triton/{name}" if spec.file else "kernels"
    return TritonKernel(
        name=name,
        function=function,
        own=not spec.file,
        files=tuple(
            PlannedFile(PurePosixPath(f).stem, f"{directory}/{PurePosixPath(f).name}", sha256)
            for f, sha256 in ((f, sha256_of_text(files[f])) for f in (source, *deps))
        ),
        signature=kernel.signature,
        archs=kernel.archs,
        choices=kernel.choices,
        time_limit=spec.time_limit,
        instances=tuple(TritonInstance(one.name, one.arch, one.chosen) for one in instances),
    )


def _files(
    texts: Mapping[str, str], spec: TritonSpec, function: str, place: str
) -> Iterator[tuple[str, str]]:
    """Yield path and text of the file with the kernel, and of those it imports."""
    if spec.file:
        for name in spec.files:
            yield name, texts[name]
        return
    if function not in own.FILES:
        meant = nearest(function, own.FILES)
        fix = f'did you mean "{meant}"?' if meant else "of a file of yours: file = ..."
        raise ManifestError(Finding(place, function, either(own.FILES), fix))
    for file in (own.FILES[function], *own.PARTS):
        yield file, (own.DIRECTORY / file).read_text("utf-8")
