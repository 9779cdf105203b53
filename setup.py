"""Puts the Bazel ruleset into the wheel, as qola/_ruleset; all else is in pyproject.toml.

An installed qola builds without a checkout: its workspaces depend on that copy
(qola/common/ruleset.py finds it).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
TARGET = "qola/_ruleset"

FILES = (".bazelversion", "BUILD.bazel", "LICENSE", "MODULE.bazel", "bazelw")
DIRECTORIES = (
    *("gfxemu", "qola", "qola_base", "qola_lab", "rules", "rules_hip"),
    *("runtime", "third_party", "tools"),
)
LEFT_OUT = ("__pycache__", "_ruleset")
#: Tests of the parts, and what pip leaves there.
NOT_SHIPPED = (
    *("gfxemu/build/", "gfxemu/tests/", "qola_base/build/", "qola_lab/tests/"),
    *("rules_hip/gfxemu/build/", "rules_hip/gfxemu/tests/", "rules_hip/qola_base/build/"),
    "runtime/tests/",
)


def ruleset_files() -> list[str]:
    """Return the ruleset's files, relative to the root, sorted."""
    names = [name for directory in DIRECTORIES for name in _below(directory)]
    return sorted([*FILES, *(name for name in names if not name.startswith(NOT_SHIPPED))])


def _below(directory: str) -> Iterator[str]:
    # Links lead from rules_hip to other directories: the copy has their files.
    for place, directories, files in os.walk(ROOT / directory, followlinks=True):
        # Bazel's links lead out of the checkout.
        directories[:] = [
            name for name in directories if name not in LEFT_OUT and not name.startswith("bazel-")
        ]
        for name in files:
            yield Path(place, name).relative_to(ROOT).as_posix()


class BuildWithRuleset(build_py):
    """build_py that copies the ruleset too, except for an editable install, which has it."""

    def run(self) -> None:
        """Copy packages, then the ruleset."""
        super().run()
        if self.editable_mode:
            return
        for name, source in self._ruleset().items():
            os.makedirs(os.path.dirname(name), exist_ok=True)
            shutil.copy2(source, name)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return every file that is made: what an uninstallation removes."""
        return [*super().get_outputs(include_bytecode), *self._ruleset()]

    def get_source_files(self) -> list[str]:
        """Return what a source distribution has to hold."""
        return [*super().get_source_files(), *ruleset_files()]

    def _ruleset(self) -> dict[str, str]:
        return {os.path.join(self.build_lib, TARGET, name): name for name in ruleset_files()}


setup(cmdclass={"build_py": BuildWithRuleset})
