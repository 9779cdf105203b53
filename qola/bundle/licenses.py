"""The components of a bundle and their licenses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from qola.errors import BundleError, Finding

#: What a bundle holds parts of, by its directory below licenses/, and what to do without its text.
COMPONENTS = {
    "aiter": "a LICENSE file beside the tree's sources (a wheel has it in its .dist-info)",
    "composable_kernel": "3rdparty/composable_kernel/LICENSE "
    "(git submodule update --init --recursive)",
    "qola": "qola's own LICENSE",
}

# The grant that makes a text the MIT license, whatever stands around it.
_MIT = (
    "permission is hereby granted, free of charge, to any person obtaining a copy of this software "
    'and associated documentation files (the "software"), to deal in the software without '
    "restriction, including without limitation the rights to use, copy, modify, merge, publish, "
    "distribute, sublicense, and/or sell copies of the software"
)


@dataclass(frozen=True)
class License:
    """The license of a component.

    `spdx` is of the SPDX license list, or LicenseRef-<component> for a text qola does not know.
    """

    spdx: str
    text: str
    path: str


def component_of(path: str) -> str:
    """Return the component that a license file of the AITER tree belongs to."""
    return "composable_kernel" if "composablekernel/" in path.replace("_", "") else "aiter"


def needed(headers: Iterable[str]) -> tuple[str, ...]:
    """Return the components that libraries with these headers of the AITER tree are made of.

    Libraries of assembly kernels alone may come from a tree without Composable Kernel.
    """
    of_tree = {component_of(header) for header in headers}
    return tuple(name for name in COMPONENTS if name in ("aiter", "qola") or name in of_tree)


def identify(component: str, text: str) -> License:
    """Return the license that `text` is."""
    plain = re.sub(r"\s+", " ", text).replace("\u201c", '"').replace("\u201d", '"').lower()
    spdx = "MIT" if _MIT in plain else f"LicenseRef-{component.replace('_', '-')}"
    return License(spdx, text, f"licenses/{component}/LICENSE")


def collect(
    texts: Iterable[tuple[str, str]], *, place: str, components: Sequence[str] = tuple(COMPONENTS)
) -> Mapping[str, License]:
    """Return the license of each component, in the order given.

    Args:
        texts: (component, text) pairs; those of other components do not count.
        place: where AITER came from, for messages.

    Raises:
        BundleError: a component has no license, or several.
    """
    found: dict[str, set[str]] = {component: set() for component in components}
    for component, text in texts:
        if component in found:
            found[component].add(text)
    findings = [
        Finding(
            f"licenses/{component}",
            f"{len(found[component]) or 'no'} license texts in {place}",
            f"one: {COMPONENTS[component]}",
            "use an AITER source that has it: a bundle without may not be passed on",
        )
        for component in components
        if len(found[component]) != 1
    ]
    if findings:
        raise BundleError(findings, "the bundle's licenses are not complete")
    return {component: identify(component, min(found[component])) for component in components}
