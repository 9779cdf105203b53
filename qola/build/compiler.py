"""Keeps files that Bazel makes for work outside it: the pinned compiler, the fake HIP runtime."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from qola.build import workspace
from qola.build.bazel import BuildOptions, ask, build, find_bazel
from qola.build.events import DEFAULT_OUTPUTS
from qola.common import starlark
from qola.common.ruleset import ruleset_root
from qola.common.version import __version__
from qola_base.cache import cache_directory, kept_directory
from qola_base.errors import Finding, ToolchainError
from qola_base.files import sha256_of_text
from qola_base.progress import log

_HIPCC = Path("bin/hipcc")
_PINS = ("rules_hip/rocm/lay_out_sdk.py", "third_party/rocm/packages.lock")
_FAKE_HIP = "gfxemu/fake_hip"
_BUILT_FROM = (_FAKE_HIP, "rules_hip/rocm")
"""Directories whose files decide how the fake runtime is built."""


def hipcc(environ: Mapping[str, str]) -> Path:
    """Return the path of the pinned compiler's hipcc, fetched by the first call.

    Not below a Bazel output base, because CMake's build directories store the path.

    Raises:
        ToolchainError: Bazel was not found, or cannot fetch the compiler.
        QolaError: another user may have written the cache.
    """
    ruleset = ruleset_root()
    pins = "".join((ruleset / name).read_text(encoding="utf-8") for name in _PINS)
    # In the layout of lay_out_sdk.py.
    directory = cache_directory(environ) / "compilers" / sha256_of_text(pins)[:16]

    def make() -> None:
        log.info("fetching the pinned ROCm compiler")
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=directory.parent) as temporary:
            file = _make(Path(temporary), ruleset, environ, "@qola//:hipcc")
            fetched = file.resolve().parents[1]
            sdk = Path(temporary, "sdk")
            # Copied: the user's Bazel may keep shared outputs on another file system.
            shutil.copytree(fetched, sdk, copy_function=_link)
            # Private despite the umask: `kept_directory` checks the mode.
            sdk.chmod(0o700)
            sdk.rename(directory)

    return kept_directory(directory, directory / _HIPCC, "fetch", make) / _HIPCC


def fake_hip(environ: Mapping[str, str]) -> Path:
    """Return the path of the fake HIP runtime's library, built by the first call.

    Raises:
        ToolchainError: Bazel was not found, or cannot build it.
        QolaError: another user may have written the cache.
    """
    ruleset = ruleset_root()
    found = [path for name in _BUILT_FROM for path in sorted((ruleset / name).iterdir())]
    inputs = [*(ruleset / name for name in _PINS), *(path for path in found if path.is_file())]
    texts = [path.read_text(encoding="utf-8") for path in inputs]
    key = sha256_of_text("".join([__version__, *texts]))[:16]
    directory = cache_directory(environ) / "fake_hip" / key

    def make() -> None:
        log.info("building the HIP runtime without a GPU")
        with tempfile.TemporaryDirectory(prefix=".make-", dir=directory.parent) as temporary:
            built = _make(Path(temporary), ruleset, environ, f"@rules_hip//{_FAKE_HIP}")
            kept = Path(temporary, "kept")
            kept.mkdir(mode=0o700)
            # Its soname, by which programs need it.
            shutil.copyfile(built, kept / built.name)
            kept.rename(directory)

    kept_directory(directory, directory, "build of the fake HIP runtime", make)
    (library,) = directory.iterdir()
    return library


def _make(directory: Path, ruleset: Path, environ: Mapping[str, str], label: str) -> Path:
    """Build a target of one file with Bazel, in an output base in a directory; return the file."""
    bazel = find_bazel(environ, ruleset)
    output_base = shlex.quote(f"--output_base={directory / 'output_base'}")
    module = [
        'module(name = "qola_compiler")',
        *workspace.dependencies(ruleset),
    ]
    files = {
        ".bazelrc": f"startup {output_base}\ncommon --lockfile_mode=off\n"
        + workspace.shown_in_sandboxes((directory, ruleset)),
        # A target of this workspace, whose name Bazel's events have.
        "BUILD.bazel": starlark.rule("filegroup", name="made", srcs=[label]) + "\n",
        "MODULE.bazel": "\n\n".join(module) + "\n",
    }
    place = directory / "workspace"
    workspace.write(place, ruleset, files)
    try:
        events = build(bazel, place, ["//:made"], BuildOptions(), environ)
    finally:
        ask([*bazel, "shutdown"], environ, place)
    result = events.targets.get("//:made")
    if result is None or not result.success:
        found = "\n".join(events.errors()) or (result.reason if result else "")
        finding = Finding(label, found, "a target that Bazel builds", "qola doctor")
        raise ToolchainError(finding, f"{label} cannot be made")
    (file,) = result.outputs[DEFAULT_OUTPUTS]
    return file


def _link(source: str, target: str) -> None:
    """Hard-link a file, or copy it to another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
