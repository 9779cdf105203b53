"""The choices of one build that replace those of its manifest, as one wire format."""

from __future__ import annotations

import json
from dataclasses import dataclass

from qola.codegen.types import LEVELS, Level
from qola.errors import Finding, ManifestError
from qola.json_types import WrongValueError, parse_json, reader
from qola.manifest.types import BuildMode


@dataclass(frozen=True)
class BuildSpec:
    """The choices of one build that replace those of its manifest.

    The command line, the Python API and the tag `qola.manifest` each make one. `qola build` writes
    it into its workspace as JSON, and the repository rule of the manifest reads it.

    Attributes:
        archs: archs instead of [build].architectures, () for those.
        mode: build mode of modules that have none of their own, None for the manifest's.
        require: level that each direction must reach, see `qola.codegen.types.Direction`.
        override_aiter_commit: plan with the AITER source although the manifest names another.
    """

    archs: tuple[str, ...] = ()
    mode: BuildMode | None = None
    require: Level = LEVELS[0]
    override_aiter_commit: bool = False

    def to_json(self) -> str:
        """Return the JSON that `from_json` reads; its names are those of the attributes."""
        values = {
            "archs": list(self.archs),
            "mode": self.mode,
            "override_aiter_commit": self.override_aiter_commit,
            "require": self.require,
        }
        return json.dumps(values, indent=2) + "\n"

    @staticmethod
    def from_json(text: str, place: str) -> BuildSpec:
        """Return the spec of a JSON text.

        Args:
            place: the manifest that the spec is for, for messages.

        Raises:
            ManifestError: the text is not such a spec.
        """
        try:
            spec: BuildSpec = reader(BuildSpec)(parse_json(text))
        except WrongValueError as error:
            expected = (
                "the JSON that `qola build` writes: archs, mode, override_aiter_commit, require"
            )
            raise ManifestError(Finding(f"spec of {place}", str(error), expected)) from None
        return spec
