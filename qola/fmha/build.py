"""Builds a manifest's libraries for use from Python."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from qola.build.bazel import BuildOptions
from qola.build.programs import build_program
from qola.build.setup import resolve_build
from qola.checkout.request import AiterOptions
from qola.errors import ExitCode, Finding, QolaError
from qola.plan.spec import BuildRequest, BuildSpec
from qola.progress import library_progress
from qola.verify.host import Built

#: The program of `qola dispatch`, which knows where its libraries are.
_PROGRAM = "dispatch"


class NotBuiltError(QolaError):
    """Libraries that do not build."""

    exit_code = ExitCode.NOT_BUILT
    default_title = "the libraries were not built"


def build_libraries(
    manifest_path: str | Path,
    *,
    archs: Sequence[str] | None = None,
    aiter_root: str | Path | None = None,
    groups: Sequence[str] | None = None,
    jobs: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Built]:
    """Build the attention libraries of a manifest, as `qola verify` does, with the same caches.

    Args:
        manifest_path: the manifest.
        archs, aiter_root, groups, jobs, environ: see `qola.build_kernels`.

    Returns:
        Libraries by module, libmha_fwd or libmha_bwd, for `Registry.of` and `Runner`.

    Raises:
        NotBuiltError: a library does not build; it has the compiler's words.
        QolaError: the manifest, the AITER tree, the plan or this machine is at fault.
    """
    environ = os.environ if environ is None else environ
    spec, aiter = BuildSpec(tuple(archs or ())), AiterOptions(aiter_root)
    request = BuildRequest(manifest_path, spec, aiter, tuple(groups or ()))
    with library_progress():
        chosen = resolve_build(request, environ)
        options = BuildOptions(jobs=jobs, quiet=True)
        program = build_program(_PROGRAM, chosen, options, environ)
    if program.path is None:
        place = Path(manifest_path).as_posix()
        raise NotBuiltError(Finding(place, program.error, "libraries that build"))
    return built_by(program.path)


def built_by(program: Path) -> dict[str, Built]:
    """Return the libraries of a program that Bazel made, by module."""
    said = subprocess.run([program, "--places"], check=True, stdout=subprocess.PIPE).stdout
    return {
        module: Built(module, **{name: Path(text) for name, text in places.items()})
        for module, places in json.loads(said).items()
    }
