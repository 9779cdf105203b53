"""The files of an AITER tree that a plan depends on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qola.aiter.attention import ATTENTION, is_assembly_alone
from qola.aiter.called_modules import DECORATOR
from qola.aiter.includes import closure, include_dirs
from qola.aiter.tree import CONFIG_FILE, AiterTree, ModuleConfig
from qola.codegen.asm.path import launched_subdirs
from qola.plan.model import HeaderSet
from qola.plan.request import ResolvedRequest
from qola_base.errors import AiterError, Finding
from qola_base.files import sha256_of


def watched_dirs(resolved: ResolvedRequest) -> tuple[str, ...]:
    """Return the directories whose listing changes a plan, relative to the tree, sorted."""
    tree = resolved.request.tree
    dirs = {"aiter/configs"}
    for module in resolved.modules:
        spec = module.spec
        launches = spec.name in ATTENTION or is_assembly_alone(spec.name)
        if launches and (spec.hsa_subdirs is None or spec.hsa_subdirs):
            for subdir in launched_subdirs(tree, module.config, spec.drop_srcs):
                dirs.update(f"{tree.hsa_dir}/{arch}/{subdir}" for arch in resolved.archs)
        dirs.update(src for src in module.config.srcs if (tree.root / src).is_dir())
    return tuple(sorted(dirs))


def input_files(
    tree: AiterTree, header_sets: Iterable[HeaderSet], sources: Iterable[str]
) -> tuple[str, ...]:
    """Return the configuration, the generators, the sources and all headers, sorted."""
    files = {file for headers in header_sets for file in headers.files}
    files.add(CONFIG_FILE)
    optional = ("aiter/jit/core.py", "aiter/_version.py", *sources)
    files.update(file for file in optional if (tree.root / file).is_file())
    own = (f"{tree.csrc_dir}/cpp_itfs", f"{tree.csrc_dir}/py_itfs_cu", tree.hsa_dir)
    for directory in (tree.fmha_dir, *own):
        scripts = (tree.root / directory).rglob("*.py")
        files.update(path.relative_to(tree.root).as_posix() for path in scripts)
    return tuple(sorted(files))


def calling_files(tree: AiterTree) -> dict[str, str]:
    """Return the digests of AITER's Python that declares modules and their functions, by path."""
    declaring = (file for file in tree.python_files() if f"{DECORATOR}(" in tree.text(file))
    return {file: sha256_of(tree.root / file) for file in sorted([CONFIG_FILE, *declaring])}


def find_headers(
    tree: AiterTree, config: ModuleConfig, name: str, roots: Iterable[str]
) -> HeaderSet:
    """Return the header set of some includes: these headers and all that they include in turn.

    Raises:
        AiterError: the tree has none of the headers.
    """
    dirs = include_dirs(tree, config)
    names = sorted(set(roots))
    headers = closure(tree.root, dirs, names)
    if not headers:
        raise AiterError(
            Finding(
                f"headers of {name}",
                f"none of {', '.join(names) or 'no includes'} below {', '.join(dirs)}",
                "the headers that generated sources include",
                "use an AITER tree with its submodules (git submodule update --init --recursive)",
            )
        )
    return HeaderSet(name, used_dirs(dirs, headers), headers)


def used_dirs(dirs: Sequence[str], headers: Sequence[str]) -> tuple[str, ...]:
    """Return the include directories that contain headers."""
    return tuple(d for d in dirs if any(header.startswith(f"{d}/") for header in headers))


def find_group_headers(
    tree: AiterTree,
    config: ModuleConfig,
    group: str,
    roots: Sequence[tuple[str, ...]],
    found: dict[str, HeaderSet],
) -> dict[tuple[str, ...], str]:
    """Add the header set of a group to `found`, and one for each distinct list of includes.

    Args:
        roots: the includes of each kernel instance of the group.

    Returns:
        The name of the header set for each list of includes.
    """
    union = find_headers(tree, config, group, {name for names in roots for name in names})
    distinct = sorted(set(roots))
    if group in found:
        # Another module of the plan has kernel instances of this group, and uses its set.
        dirs = dict.fromkeys((*found[group].include_dirs, *union.include_dirs))
        files = sorted({*found[group].files, *union.files})
        found[group] = HeaderSet(group, tuple(dirs), tuple(files))
        return dict.fromkeys(distinct, group)
    found[group] = union
    if len(distinct) == 1:
        return {distinct[0]: group}
    set_names = {names: f"{group}_{number}" for number, names in enumerate(distinct)}
    for names, set_name in set_names.items():
        found[set_name] = find_headers(tree, config, set_name, names)
    return set_names
