"""Kernels in Triton: reads their files, and plans their compiles."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from qola.common.folder import Folder
from qola.common.suggestions import nearest
from qola.fetch.git import commit_tree
from qola.manifest.types import Manifest, TritonSpec, triton_name
from qola.manifest.values import either
from qola.plan.model import PlannedFile, TritonInstance, TritonKernel
from qola.triton import own
from qola.triton.kernel import Kernel, expand
from qola_base.errors import Finding, ManifestError
from qola_base.files import UnfitFileError, bounded_bytes, sha256_of_text

MAX_BYTES = 1 << 20
"""Maximum size of a kernel's file in bytes."""

TRITON_FILES = "triton_files.txt"
"""File of a repository with `triton_list`, which its rule watches."""


def triton_list(manifest: Manifest) -> str:
    """List the Triton files that are relative to the manifest, one path a line."""
    paths = {path for spec in manifest.triton if not spec.commit for path in spec.files}
    return "".join(f"{path}\n" for path in sorted(paths))


def triton_trees(manifest: Manifest, environ: Mapping[str, str]) -> dict[str, Path]:
    """Fetch the trees of the commits that a manifest takes Triton kernels from, by commit."""
    found: dict[str, Path] = {}
    for spec in manifest.triton:
        if spec.commit and spec.commit not in found:
            place = manifest.place("triton", spec.index, "commit")
            found[spec.commit] = commit_tree(spec.remote, spec.commit, environ, place)
    return found


def triton_files(
    manifest: Manifest, file: Path, trees: Mapping[str, Path] | None = None
) -> dict[str, str]:
    """Read the Python files of a manifest's Triton kernels; the keys are of `TritonSpec.files`.

    Args:
        file: the manifest's file; paths of a kernel without a commit are relative to its directory.
        trees: by commit; None reads only the files of kernels without a commit.
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
                found[name] = _read(root, path, within=bool(spec.commit))
            except (OSError, UnfitFileError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                place = manifest.place("triton", spec.index, key)
                where = f"commit {spec.commit}" if spec.commit else "the manifest's directory"
                expected = f"a Python file, relative to {where}"
                findings.append(Finding(place, f"{path}: {reason}", expected))
    if findings:
        raise ManifestError(findings)
    return found


def _read(root: Path, path: str, *, within: bool) -> str:
    # A link in a fetched tree must not lead out of it. Path.resolve() raises RuntimeError for links
    # in a circle before Python 3.13.
    if within and not Path(os.path.realpath(root / path)).is_relative_to(os.path.realpath(root)):
        raise UnfitFileError("a link that leads out of the tree")
    return bounded_bytes(root / path, MAX_BYTES).decode("utf-8")


def plan_triton(
    manifest: Manifest, texts: Mapping[str, str], archs: Sequence[str], output: Folder
) -> tuple[TritonKernel, ...]:
    """Plan the kernels of all [[triton]] tables, and copy users' files to triton/<kernel>/.

    Args:
        texts: as `triton_files` returns them.
        archs: of kernels without archs of their own.
    """
    found: list[TritonKernel] = []
    findings: list[Finding] = []
    for spec in manifest.triton:
        place = manifest.place("triton", spec.index, "kernels")
        for function in spec.kernels:
            try:
                found.append(_plan_kernel(spec, function, place, texts, archs, output))
            except ManifestError as error:  # noqa: PERF203
                findings += error.findings
    if findings:
        raise ManifestError(findings)
    return tuple(sorted(found, key=lambda kernel: kernel.name))


def _plan_kernel(
    spec: TritonSpec,
    function: str,
    place: str,
    texts: Mapping[str, str],
    archs: Sequence[str],
    output: Folder,
) -> TritonKernel:
    name = triton_name(spec.name, function)
    files = _files(texts, spec, function, place)
    source = next(iter(files))
    kernel = Kernel(
        name=name,
        source=f"{place}: {source}",
        text=files[source],
        function=function,
        choices=dict(spec.choices),
        archs=spec.archs or tuple(archs),
        signature=dict(spec.signature),
    )
    instances = expand(kernel)
    directory = "kernels"
    if spec.file:
        directory = f"triton/{name}"
        names = [PurePosixPath(file).name for file in files]
        if len(set(names)) != len(names):
            raise ManifestError(Finding(place, ", ".join(files), "files of different names"))
        for file, text in files.items():
            output.write(f"{directory}/{PurePosixPath(file).name}", text)
    return TritonKernel(
        name=name,
        function=function,
        own=not spec.file,
        files=tuple(
            PlannedFile(
                PurePosixPath(file).stem,
                f"{directory}/{PurePosixPath(file).name}",
                sha256_of_text(text),
            )
            for file, text in files.items()
        ),
        signature=kernel.signature,
        archs=kernel.archs,
        choices=kernel.choices,
        timeout=spec.timeout,
        instances=tuple(TritonInstance(one.name, one.arch, one.chosen) for one in instances),
    )


def _files(texts: Mapping[str, str], spec: TritonSpec, function: str, place: str) -> dict[str, str]:
    """Return the file with the kernel and then its imports, by path."""
    if spec.file:
        return {name: texts[name] for name in spec.files}
    if function not in own.FILES:
        meant = nearest(function, own.FILES)
        fix = f'did you mean "{meant}"?' if meant else "name the file of your kernel: file = ..."
        raise ManifestError(Finding(place, function, either(own.FILES), fix))
    return {
        file: (own.DIRECTORY / file).read_text("utf-8")
        for file in (own.FILES[function], *own.PARTS)
    }
