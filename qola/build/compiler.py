"""Fetches the pinned ROCm compiler for builds outside Bazel: `qola hipcc`."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from qola import starlark
from qola.build import workspace
from qola.build.bazel import BuildOptions, ask, build, find_bazel
from qola.build.events import DEFAULT_OUTPUTS
from qola.cache import cache_directory, kept_directory
from qola.errors import Finding, ToolchainError
from qola.files import sha256_of_text
from qola.progress import log
from qola.ruleset import ruleset_root
from qola.version import __version__

_HIPCC = Path("bin/hipcc")
_PINS = ("rules/rocm/lay_out_sdk.py", "third_party/rocm/packages.lock")
_TARGET = "//:hipcc"


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
            fetched = _fetch(Path(temporary), ruleset, environ)
            sdk = Path(temporary, "sdk")
            # Copied: the user's Bazel may keep shared outputs on another file system.
            shutil.copytree(fetched, sdk, copy_function=_link)
            # Private despite the umask: `kept_directory` checks the mode.
            sdk.chmod(0o700)
            sdk.rename(directory)

    return kept_directory(directory, directory / _HIPCC, "fetch", make) / _HIPCC


def _fetch(directory: Path, ruleset: Path, environ: Mapping[str, str]) -> Path:
    """Fetch the compiler with Bazel into an output base in a directory; return its root."""
    bazel = find_bazel(environ, ruleset)
    output_base = shlex.quote(f"--output_base={directory / 'output_base'}")
    module = [
        'module(name = "qola_compiler")',
        f'bazel_dep(name = "qola", version = "{__version__}")',
        *workspace.overrides(ruleset),
    ]
    files = {
        ".bazelrc": f"startup {output_base}\ncommon --lockfile_mode=off\n",
        ".bazelversion": (ruleset / ".bazelversion").read_text(encoding="utf-8"),
        # A target of this workspace, whose name Bazel's events have.
        "BUILD.bazel": starlark.rule("filegroup", name="hipcc", srcs=["@qola//:hipcc"]) + "\n",
        "MODULE.bazel": "\n\n".join(module) + "\n",
    }
    place = directory / "workspace"
    workspace.write(place, files)
    try:
        events = build(bazel, place, [_TARGET], BuildOptions(), environ)
    finally:
        ask([*bazel, "shutdown"], environ, place)
    result = events.targets.get(_TARGET)
    if result is None or not result.success:
        found = "\n".join(events.errors()) or (result.reason if result else "")
        finding = Finding("@qola_rocm_sdk", found, "the pinned ROCm", "qola doctor")
        raise ToolchainError(finding, "the pinned compiler cannot be fetched")
    (file,) = result.outputs[DEFAULT_OUTPUTS]
    return file.resolve().parents[1]


def _link(source: str, target: str) -> None:
    """Hard-link a file, or copy it to another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
