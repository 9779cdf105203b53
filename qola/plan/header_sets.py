"""Which headers each group of compiles may read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qola.aiter.includes import closure, include_dirs
from qola.aiter.tree import AiterTree, ModuleConfig
from qola.errors import AiterError, Finding
from qola.plan.model import HeaderSet


def header_sets(
    tree: AiterTree,
    config: ModuleConfig,
    group: str,
    roots: Sequence[tuple[str, ...]],
    found: dict[str, HeaderSet],
) -> dict[tuple[str, ...], str]:
    """Add the header set of a group to `found`, and those of its parts that include different ones.

    Returns:
        The name of the header set for what a kernel instance includes.
    """
    every = header_set(tree, config, group, {name for some in roots for name in some})
    distinct = sorted(set(roots))
    if group in found:
        # Another module of the plan has kernel instances of the group, and names for their parts.
        found[group] = _joined(found[group], every)
        return dict.fromkeys(distinct, group)
    found[group] = every
    if len(distinct) == 1:
        return {distinct[0]: group}
    names = {some: f"{group}_{number}" for number, some in enumerate(distinct)}
    for some, name in names.items():
        found[name] = header_set(tree, config, name, some)
    return names


def _joined(one: HeaderSet, other: HeaderSet) -> HeaderSet:
    dirs = dict.fromkeys((*one.include_dirs, *other.include_dirs))
    return HeaderSet(one.name, tuple(dirs), tuple(sorted({*one.files, *other.files})))


def header_set(
    tree: AiterTree, config: ModuleConfig, name: str, includes_of: Iterable[str]
) -> HeaderSet:
    """Return the header set of what is included, and of all that this includes.

    Raises:
        AiterError: the tree has none of it.
    """
    dirs = include_dirs(tree, config)
    roots = set(includes_of)
    headers = closure(tree.root, dirs, sorted(roots))
    if not headers:
        raise AiterError(
            Finding(
                f"headers of {name}",
                f"none of {', '.join(sorted(roots)) or 'no includes'} below {', '.join(dirs)}",
                "the headers that generated sources include",
                "use an AITER tree with its submodules (git submodule update --init --recursive)",
            )
        )
    # A directory none of the headers comes from needs no -I.
    used = tuple(d for d in dirs if any(header.startswith(d + "/") for header in headers))
    return HeaderSet(name, used, headers)
