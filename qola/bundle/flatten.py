"""Merges headers of several include directories into one, so that users need a single -I.

A header keeps its path below its include directory. Each #include is resolved before and after the
merge, and must find the same file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.aiter.includes import closure, find, includes
from qola_base.errors import BundleError, Finding
from qola_base.files import lossy_text


@dataclass(frozen=True)
class HeaderUser:
    """The headers that users of one library include.

    Attributes:
        roots: headers as in a user's #include; `include_dirs` is in the compiler's order.
    """

    roots: tuple[str, ...]
    include_dirs: tuple[str, ...]


def flatten(root: Path, users: Sequence[HeaderUser]) -> dict[str, str]:
    """Return the headers that `users` need, by path in the merged include directory.

    Raises:
        BundleError: a root is missing, two different files have the same path, or an #include would
            find another file than before.
    """
    findings: list[Finding] = []
    flat: dict[str, str] = {}
    edges: dict[str, tuple[str, list[str]]] = {}
    for user in users:
        dirs = [posixpath.normpath(d) for d in user.include_dirs]
        findings += [
            Finding(f'#include "{name}"', f"not in {', '.join(dirs)}", "a public header")
            for name in user.roots
            if find(root, name, dirs) is None
        ]
        for file in closure(root, dirs, user.roots):
            name = landing(file, dirs)
            if name is None:
                findings.append(
                    Finding(file, "included only by a relative path", f"a file below {dirs}")
                )
                continue
            edges[file] = (name, dirs)
            other = flat.setdefault(name, file)
            if other != file and (root / other).read_bytes() != (root / file).read_bytes():
                findings.append(
                    Finding(
                        f"include/{name}",
                        f"{other} and {file}, which differ",
                        "one file: a bundle has one include directory",
                        "separate bundles for modules with different include directories",
                    )
                )
    for file, (name, its_dirs) in sorted(edges.items()):
        findings += _changed_includes(root, flat, file, name, its_dirs)
    if findings:
        raise BundleError(dict.fromkeys(findings), "the headers conflict in one include directory")
    return dict(sorted(flat.items()))


def landing(file: str, include_dirs: Iterable[str]) -> str | None:
    """Return the path of `file` below its deepest include directory, or None outside of all."""
    found = [d for d in include_dirs if file.startswith(d + "/")]
    return file[len(max(found, key=len)) + 1 :] if found else None


def _changed_includes(
    root: Path, flat: Mapping[str, str], file: str, name: str, dirs: Sequence[str]
) -> list[Finding]:
    """Find the #include lines of one header that would find another file after the merge."""
    findings = []
    text = lossy_text(root / file)
    for spelled, quoted in includes(text):
        own = [posixpath.dirname(file) or "."] if quoted else []
        target = find(root, spelled, [*own, *dirs])
        before = landing(target, dirs) if target else None
        near = posixpath.normpath(posixpath.join(posixpath.dirname(name), spelled))
        after = near if quoted and near in flat else posixpath.normpath(spelled)
        if (after if after in flat else None) != before:
            findings.append(
                Finding(
                    f"{file}: #include {spelled}",
                    f"would find {f'include/{after}' if after in flat else 'no file'}",
                    target or "no file of the bundle, but one of the system or HIP",
                    "separate bundles for modules with different include directories",
                )
            )
    return findings
