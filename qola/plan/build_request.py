"""The options of a build or a plan, as the command line and the Python API make them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from qola.checkout.request import AiterOptions
from qola.plan.spec import BuildSpec


@dataclass(frozen=True)
class BuildRequest:
    """The options of a build or a plan; `qola.api.build_kernels` explains them.

    Attributes:
        spec: its archs may be lists with ; between.
        groups: build only modules of these groups; () for all.
    """

    manifest_path: str | Path
    spec: BuildSpec = field(default_factory=BuildSpec)
    aiter: AiterOptions = field(default_factory=AiterOptions)
    groups: tuple[str, ...] = ()
