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
class Forms:
    """The forms of the libraries of a build; qola/build/forms.py says which go together.

    Attributes:
        lazy: lazy libraries instead of libraries that contain their kernels; None lets
            $NVTE_CK_JIT decide. Python modules are never lazy.
        static: also an archive of the attention modules.
        split: device code of attention modules in packs, one per arch.
        wheel: version of a Python wheel of the bundle, "" for none.
        jax: the wheel also contains attention for JAX.
    """

    lazy: bool | None = False
    static: bool = False
    split: bool = False
    wheel: str = ""
    jax: bool = False

    def to_json(self) -> dict[str, bool]:
        """Return the forms as in keys of prebuilt bundles."""
        split = {"split": True} if self.split else {}
        return {"lazy": bool(self.lazy), "static": self.static, **split}


@dataclass(frozen=True)
class BuildRequest:
    """The manifest and the choices of a build or a plan.

    Attributes:
        groups: groups of modules to build, () for all modules.
        forms: forms of the libraries; a plan has all of them.
    """

    manifest_path: str | Path
    spec: BuildSpec = field(default_factory=BuildSpec)
    aiter: AiterOptions = field(default_factory=AiterOptions)
    groups: tuple[str, ...] = ()
    forms: Forms = field(default_factory=Forms)
