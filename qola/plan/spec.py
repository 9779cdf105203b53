"""The choices of one build: what replaces the manifest's own, and where the manifest is."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from qola.checkout.request import AiterOptions
from qola.codegen.types import LEVELS, Level
from qola.manifest.types import BuildMode
from qola_base.errors import Finding, ManifestError
from qola_base.json_types import WrongValueError, json_fields, parse_json, reader


@dataclass(frozen=True)
class BuildSpec:
    """The choices of one build that replace those of its manifest.

    The command line, the Python API and the tag `qola.manifest` each make one. `qola build` writes
    it into its workspace as JSON, and the repository rule of the manifest reads it.

    Attributes:
        archs: archs instead of [build].architectures, () for those.
        mode: build mode of modules without a mode of their own, None for the manifest's.
        require: level that each direction must reach, see `qola.codegen.types.Direction`.
        override_aiter_commit: plan with the AITER source although the manifest names another.
    """

    archs: tuple[str, ...] = ()
    mode: BuildMode | None = None
    require: Level = LEVELS[0]
    override_aiter_commit: bool = False

    def to_json(self) -> str:
        """Return the JSON that `from_json` reads."""
        return json.dumps(json_fields(self), indent=2, sort_keys=True) + "\n"

    @staticmethod
    def from_json(text: str, place: str) -> BuildSpec:
        """Return the spec of a JSON text; a wrong one is an error of the manifest `place`."""
        try:
            spec: BuildSpec = reader(BuildSpec)(parse_json(text))
        except WrongValueError as error:
            expected = (
                "the JSON that `qola build` writes: archs, mode, override_aiter_commit, require"
            )
            raise ManifestError(Finding(f"spec of {place}", str(error), expected)) from None
        return spec


@dataclass(frozen=True)
class BuildRequest:
    """The options of a build or a plan; `qola.api.build_kernels` explains them."""

    manifest_path: str | Path
    spec: BuildSpec = field(default_factory=BuildSpec)
    aiter: AiterOptions = field(default_factory=AiterOptions)
    groups: tuple[str, ...] = ()
