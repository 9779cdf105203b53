"""The components of a bundle and their licenses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qola_base.errors import BundleError, Finding

#: Components of a bundle by directory below licenses/, and the license file that each needs.
COMPONENTS = {
    "aiter": "a LICENSE file next to the tree's sources (in a wheel: in .dist-info)",
    "composable_kernel": "3rdparty/composable_kernel/LICENSE "
    "(git submodule update --init --recursive)",
    "qola": "qola's own LICENSE",
}

# A text with this grant is the MIT license.
_MIT = (
    "permission is hereby granted, free of charge, to any person obtaining a copy of this software "
    'and associated documentation files (the "software"), to deal in the software without '
    "restriction, including without limitation the rights to use, copy, modify, merge, publish, "
    "distribute, sublicense, and/or sell copies of the software"
)


@dataclass(frozen=True)
class License:
    """The license of a component.

    Attributes:
        spdx: identifier of the SPDX license list, or LicenseRef-<component> for an unknown text.
        path: its file in the bundle.
    """

    spdx: str
    text: str
    path: str


def component_of(path: str) -> str:
    """Return the component of a license file or header of the AITER tree."""
    return "composable_kernel" if "composablekernel/" in path.replace("_", "") else "aiter"


def needed(headers: Iterable[str]) -> tuple[str, ...]:
    """Return the components of libraries with these headers of the AITER tree.

    Libraries with only assembly kernels may come from a tree without Composable Kernel.
    """
    of_tree = {component_of(header) for header in headers}
    return tuple(name for name in COMPONENTS if name in ("aiter", "qola") or name in of_tree)


def identify(component: str, text: str) -> License:
    """Identify the license of a text."""
    plain = re.sub(r"\s+", " ", text).replace("\u201c", '"').replace("\u201d", '"').lower()
    spdx = "MIT" if _MIT in plain else f"LicenseRef-{component.replace('_', '-')}"
    return License(spdx, text, f"licenses/{component}/LICENSE")


def collect(
    files: Iterable[str],
    qola_license: str,
    *,
    place: str,
    components: Sequence[str] = tuple(COMPONENTS),
) -> Mapping[str, License]:
    """Read the license of each component, in the order of `components`.

    Args:
        files: license files of the AITER tree; those of other components are ignored.
        place: the source of AITER, for messages.

    Raises:
        BundleError: a component has no license, or several.
    """
    found: dict[str, set[str]] = {component: set() for component in components}
    for component, file in (
        *((component_of(file), file) for file in files),
        ("qola", qola_license),
    ):
        if component in found:
            found[component].add(Path(file).read_text(encoding="utf-8"))
    findings = [
        Finding(
            f"licenses/{component}",
            f"{len(found[component]) or 'no'} license texts in {place}",
            f"one: {COMPONENTS[component]}",
            "use an AITER source with it: a bundle without the license may not be distributed",
        )
        for component in components
        if len(found[component]) != 1
    ]
    if findings:
        raise BundleError(findings, "the bundle's licenses are incomplete")
    return {component: identify(component, min(found[component])) for component in components}
