"""ROCm/QoLA's precedence: which archs, patches, modules and kind of libraries a build gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from qola.archs import resolve, split
from qola.attention import ATTENTION
from qola.errors import Finding, ManifestError, QolaError
from qola.manifest_types import Manifest, ModuleSpec

DEFAULT_REMOTE = "https://github.com/ROCm/aiter.git"
"""Where a commit of AITER comes from unless a remote is named."""


CK_JIT = "NVTE_CK_JIT"

ARCHIVE_BATCH_SIZE = "AITER_ARCHIVE_BATCH_SIZE"
"""How many objects TransformerEngine hands to one call of ar."""

_CK_JIT_VALUES = {
    **dict.fromkeys(("0", "false", "off"), False),
    # The choice is qola's own.
    "auto": False,
    **dict.fromkeys(("1", "true", "on"), True),
}
"""Whether libraries are lazy, by the variable's value in lower case."""


class ChoiceError(QolaError):
    """The environment says what it may not say."""

    exit_code: ClassVar[int] = 2
    default_title: ClassVar[str] = "what to build is not clear"


def choose_archs(
    asked: Sequence[str],
    manifest: Manifest,
    gpu_archs: str,
    native: Callable[[], tuple[str, ...]],
) -> tuple[str, ...]:
    """Return the archs to build for instead of the manifest's, () for the manifest's own.

    Args:
        asked: archs of the command line, lists allowed.
        manifest: the manifest.
        gpu_archs: value of $GPU_ARCHS, "" if it is not set.
        native: asks the machine; called only if need be.

    Raises:
        PlanError, ToolchainError: as `resolve`.
    """
    archs = resolve(split(asked), manifest, split([gpu_archs]), native)
    return () if archs == tuple(sorted(set(manifest.architectures))) else archs


def choose_patches(asked: Path | None, manifest: Manifest | None, folder: Path) -> Path | None:
    """Return the folder of patches: the one asked for, else [qola].patches_dir, else None.

    An empty folder and /dev/null mean no patches, as they do for ROCm/QoLA.

    Args:
        asked: folder of the command line, absolute.
        manifest: the manifest, None for none.
        folder: what [qola].patches_dir is relative to.

    Raises:
        ManifestError: there is no such folder.
    """
    place = "--patches-dir"
    directory = asked
    if directory is None and manifest and manifest.patches_dir:
        place = manifest.place("qola", "patches_dir")
        directory = folder / manifest.patches_dir
    if directory is None or directory == Path("/dev/null"):
        return None
    if not directory.is_dir():
        raise ManifestError(
            Finding(
                place,
                f"{directory}: no such directory",
                "a folder of *.patch files",
                "--patches-dir /dev/null for no patches",
            ),
            "there are no such patches",
        )
    return directory if any(directory.iterdir()) else None


def choose_modules(manifest: Manifest, groups: Sequence[str]) -> tuple[ModuleSpec, ...]:
    """Return the modules to build: all, or those of the groups.

    Raises:
        ManifestError: no module has such a group.
    """
    wanted = split(groups)
    known = sorted({module.group for module in manifest.modules if module.group})
    unknown = [group for group in wanted if group not in known]
    if unknown:
        raise ManifestError(
            Finding(
                f"{manifest.file} [[modules]].group",
                f"none with {', '.join(unknown)}",
                f"a group out of {', '.join(known)}" if known else "modules with a group",
            )
        )
    return tuple(m for m in manifest.modules if not wanted or m.group in wanted)


def choose_lazy(
    asked: bool | None, environ: Mapping[str, str], note: Callable[[str], None]
) -> bool:
    """Return whether to build lazy libraries: what is asked for, else $NVTE_CK_JIT, else not.

    Args:
        asked: what the command line says, None for nothing.
        environ: the environment.
        note: told when the variable decides, which is TransformerEngine's and old.

    Raises:
        ChoiceError: the variable has a value it may not have.
    """
    given = environ.get(CK_JIT, "")
    if asked is not None or not given:
        return bool(asked)
    lazy = _CK_JIT_VALUES.get(given.lower())
    if lazy is None:
        full, on = (
            ", ".join(value for value, is_lazy in _CK_JIT_VALUES.items() if is_lazy == wanted)
            for wanted in (False, True)
        )
        raise ChoiceError(
            Finding(
                CK_JIT,
                given,
                f"{full} (libraries with their kernels inside) or {on} (lazy libraries)",
                f"unset {CK_JIT}; qola build --lazy or --no-lazy says it",
            )
        )
    note(f"{CK_JIT} is deprecated, use qola build --lazy or --no-lazy")
    return lazy


def check_static(
    static: bool,
    lazy: bool,
    modules: Sequence[ModuleSpec],
    environ: Mapping[str, str],
    note: Callable[[str], None],
) -> None:
    """Check that an archive can be made, where one is asked for.

    Args:
        static: whether it is asked for.
        lazy: whether the libraries are lazy ones.
        modules: the modules to build.
        environ: the environment.
        note: told of a variable of AITER's that says nothing to qola.

    Raises:
        ChoiceError: lazy libraries are asked for too, or no module can be in an archive.
    """
    if static and lazy:
        raise ChoiceError(
            Finding(
                "--static",
                "lazy libraries, which have no kernels inside",
                "an archive, or lazy libraries: an archive has its kernels inside",
                "leave out --lazy or --static; --no-lazy if NVTE_CK_JIT is set",
            )
        )
    if static and not any(module.name in ATTENTION for module in modules):
        raise ChoiceError(
            Finding(
                "--static",
                ", ".join(module.name for module in modules),
                f"{' or '.join(ATTENTION)} among the modules: an archive has no others",
                "leave out --static, or build another --group",
            )
        )
    if static and environ.get(ARCHIVE_BATCH_SIZE):
        note(f"{ARCHIVE_BATCH_SIZE} has nothing to do: an archive has one member a module")


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Return where qola keeps things: below XDG_CACHE_HOME, or ~/.cache."""
    base = environ.get("XDG_CACHE_HOME", "")
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    # The specification says to ignore a relative path.
    return (Path(base) if base.startswith("/") else home / ".cache") / "qola"
