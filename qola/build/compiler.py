"""Fetches the pinned ROCm compiler for builds outside Bazel: `qola hipcc`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from qola import starlark
from qola.build import workspace
from qola.build.bazel import BuildOptions, ask, build, find_bazel
from qola.build.events import DEFAULT_OUTPUTS
from qola.cache import cache_directory, kept_directory
from qola.errors import Finding, ToolchainError
from qola.files import sha256_of_text
from qola.ruleset import ruleset_root
from qola.version import __version__

COMPILERS = "compilers"
"""Directory below the cache with compilers, each as lay_out_sdk.py arranges it."""

_HIPCC = Path("bin/hipcc")
_PINS = ("rules/rocm/lay_out_sdk.py", "third_party/rocm/packages.lock")
_TARGET = "//:hipcc"
_FILES = {
    ".bazelrc": "common --lockfile_mode=off\n",
    "BUILD.bazel": starlark.rule("filegroup", name="hipcc", srcs=["@qola_rocm_sdk//:sdk_hipcc"])
    + "\n",
}


def hipcc(environ: Mapping[str, str], progress: Callable[[str], None]) -> Path:
    """Return the path of the pinned compiler's hipcc, fetched on the first call.

    The compiler is copied out of Bazel's directory, by hard links where the file system has them:
    a CMake build directory keeps the path, whatever happens to Bazel's outputs.

    Raises:
        ToolchainError: there is no Bazel, or it cannot fetch the compiler.
        QolaError: another user may have written the cache.
    """
    ruleset = ruleset_root()
    cache = cache_directory(environ)
    pins = "".join((ruleset / name).read_text(encoding="utf-8") for name in _PINS)
    directory = cache / COMPILERS / sha256_of_text(pins)[:16]

    def make() -> None:
        progress("fetching the pinned ROCm compiler")
        fetched = _fetch(cache, ruleset, environ, progress)
        with tempfile.TemporaryDirectory(prefix=".compiler-", dir=directory.parent) as temporary:
            made = Path(temporary, "sdk")
            shutil.copytree(fetched.parents[1], made, symlinks=True, copy_function=_link)
            # Private whatever the umask: `kept_directory` checks it.
            made.chmod(0o700)
            made.rename(directory)

    return kept_directory(directory, directory / _HIPCC, "fetch", progress, make) / _HIPCC


def _fetch(
    cache: Path, ruleset: Path, environ: Mapping[str, str], progress: Callable[[str], None]
) -> Path:
    """Have Bazel fetch the compiler; return the path of hipcc in Bazel's directory."""
    bazel = find_bazel(environ, ruleset)
    use = [
        'qola = use_extension("@qola//rules:extensions.bzl", "qola")',
        'use_repo(qola, "qola_rocm_sdk")',
    ]
    module = [
        'module(name = "qola_compiler")',
        f'bazel_dep(name = "qola", version = "{__version__}")',
        starlark.rule("local_path_override", module_name="qola", path=ruleset.as_posix()),
        "\n".join(use),
    ]
    files = {
        **_FILES,
        ".bazelversion": (ruleset / ".bazelversion").read_text(encoding="utf-8"),
        "MODULE.bazel": "\n\n".join(module) + "\n",
    }
    directory = workspace.directory_of(cache, Path("compiler"), ruleset)
    workspace.write(directory, files)
    try:
        events = build(bazel, directory, [_TARGET], BuildOptions(), environ, progress)
    finally:
        # Nothing else is built in this workspace.
        ask([*bazel, "shutdown"], environ, directory)
    result = events.targets.get(_TARGET)
    if result is None or not result.success:
        found = "\n".join(events.errors()) or (result.reason if result else "") or events.told
        finding = Finding("@qola_rocm_sdk", found, "the pinned ROCm", "qola doctor")
        raise ToolchainError(finding, "the pinned compiler cannot be fetched")
    (file,) = result.outputs[DEFAULT_OUTPUTS]
    return file.resolve()


def _link(source: str, target: str) -> None:
    """Give a file a second name; copy it to another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
