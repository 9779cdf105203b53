"""Applies patches to AITER's sources: all or none.

unidiff parses them. qola places the hunks itself: libraries that apply diffs ignore parts that they
do not support (a rename's hunks, a file that looks patched), which would change kernels unnoticed.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import posixpath
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchedFile, PatchSet

from qola.fetch.hunks import Rejected, apply_hunks, is_change
from qola.fetch.pins import patch_files, pin_patches
from qola_base.errors import AiterError, Finding
from qola_base.files import UnfitFileError, bounded_bytes, whole, write_if_changed
from qola_base.progress import log
from qola_base.rule_main import run_main
from qola_base.system_errors import disk_error

_META = "aiter_meta"
_NONE = "/dev/null"
_SUBMODULE = "3rdparty/composable_kernel"
_MAX_PATCH = 64 << 20
_ENCODING = "latin-1"  # any bytes, unchanged: sources need not be UTF-8
_PREFIX = re.compile(r"[abciow12]/")  # git's, also those of diff.mnemonicPrefix
_LINK_MODES = {"120000": "a symbolic link", "160000": "a submodule"}
_TITLE = "the patches do not fit this AITER"
_INIT = "git submodule update --init --recursive, in the AITER tree"
_REBASE = (
    "rebase the patch: git apply --3way in a checkout of this AITER, git commit, git format-patch"
)


def apply_patches(
    root: Path, patches: Sequence[Path], *, display: str | None = None
) -> tuple[str, ...]:
    """Apply patches to a tree in order; on any reject the tree stays unchanged.

    Paths in a patch are relative to the root of a checkout, with or without git's prefixes ``a/``
    and ``b/``; an unpacked wheel has these files below ``aiter_meta/``. Supported are text patches
    of git diff and git format-patch: changed, new, deleted, renamed and copied files, and modes.

    ROCm/QoLA's patches change AITER and its submodule Composable Kernel in one file. If the tree
    lacks the submodule, the changes of its files are skipped: nothing can be built from them.

    Args:
        root: an AITER tree: a checkout, an unpacked wheel, or a directory of links to one.
        display: the patches' directory in messages; by default each patch has its own path.

    Returns:
        The changed, created and removed files, relative to the root, sorted.

    Raises:
        AiterError: a patch cannot be parsed, is refused, or does not fit: with the lines of the
            file and the hunk.
    """
    tree = _Overlay(root)
    try:
        for patch in patches:
            place = patch.as_posix() if display is None else posixpath.join(display, patch.name)
            if skipped := _apply_patch(tree, patch, place):
                log.warning(skipped)
        return tree.write()
    except OSError as error:
        raise AiterError(disk_error(error).findings, "the AITER tree cannot be patched") from None


def try_patches(root: Path, patches: Sequence[Path]) -> Iterator[tuple[Path, Finding | None]]:
    """Yield for each patch whether it fits a tree with the fitting ones before it; write nothing.

    The finding is None if it fits, a warning if parts are skipped, or the first reason.
    """
    tree = _Overlay(root)
    for patch in patches:
        after = tree.copy()
        try:
            skipped = _apply_patch(after, patch, patch.name)
        except AiterError as error:
            yield patch, error.findings[0]
        except OSError as error:
            yield patch, Finding(patch.name, str(error), "a patch and a tree that can be read")
        else:
            tree = after
            expected = "all of the patch, in a tree with its submodules"
            warning = Finding(patch.name, skipped, expected, _INIT, "warning")
            yield patch, warning if skipped else None


@dataclass(frozen=True)
class _File:
    """The content and executable bit of a file."""

    data: bytes
    executable: bool = False


class _Overlay:
    """A tree as it would be with some files changed. It may reach files through symbolic links."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._changed: dict[str, _File | None] = {}

    def read(self, path: str) -> _File | None:
        if path in self._changed:
            return self._changed[path]
        file = self.root / path
        if not file.is_file():
            return None
        return _File(file.read_bytes(), bool(file.stat().st_mode & stat.S_IXUSR))

    def has(self, path: str) -> bool:
        """Return whether a file or a directory is in the way of a new file."""
        names = (path, *map(str, PurePosixPath(path).parents))
        return (self.root / path).is_dir() or any(self.read(name) is not None for name in names)

    def copy(self) -> _Overlay:
        other = _Overlay(self.root)
        other._changed.update(self._changed)
        return other

    def put(self, path: str, file: _File | None) -> None:
        """Change, create or (None) remove a file in memory."""
        self._changed[path] = file

    def write(self) -> tuple[str, ...]:
        """Write all changes to the tree; return the affected files, sorted.

        Targets of links are never written: a linked directory is replaced by a directory of links,
        a linked file by a regular file.
        """
        for path, file in sorted(self._changed.items()):
            _materialise(self.root, PurePosixPath(path).parent)
            destination = self.root / path
            if file is None:
                destination.unlink(missing_ok=True)
                continue
            # A new file replaces the old one, which may be a link.
            with whole(destination) as stream:
                stream.write(file.data)
                os.fchmod(stream.fileno(), 0o755 if file.executable else 0o644)
        return tuple(sorted(self._changed))


def _materialise(root: Path, directory: PurePosixPath) -> None:
    """Replace linked directories from `root` down to `directory` by real ones."""
    for parent in (*reversed(directory.parents), directory):
        path = root / parent
        if path.is_symlink():
            origin = path.resolve()
            path.unlink()
            path.mkdir()
            for entry in sorted(origin.iterdir()):
                (path / entry.name).symlink_to(entry)
        else:
            path.mkdir(exist_ok=True)


def _apply_patch(tree: _Overlay, patch: Path, place: str) -> str:
    """Apply a patch in memory; return a warning about skipped files, or raise AiterError."""
    changes = list(_parse(patch, place))
    absent = [change for change in changes if _of_absent_submodule(tree, change)]
    present = (change for change in changes if change not in absent)
    findings = [f for change in present for f in _apply(tree, change, place)]
    if findings:
        raise AiterError(findings, _TITLE)
    if absent:
        return (
            f"{place}: {len(absent)} of {len(changes)} files skipped: the tree has no {_SUBMODULE}"
        )
    return ""


def _parse(patch: Path, place: str) -> PatchSet:
    expected = "a unified diff, as git diff and git format-patch write it"
    try:
        parsed = PatchSet.from_string(bounded_bytes(patch, _MAX_PATCH).decode(_ENCODING))
    except (UnidiffParseError, UnfitFileError) as error:
        raise AiterError(Finding(place, _shown(str(error)), expected), _TITLE) from None
    if not parsed:
        raise AiterError(Finding(place, "no change of any file", expected), _TITLE)
    return parsed


def _apply(tree: _Overlay, change: PatchedFile, place: str) -> Iterator[Finding]:
    """Apply a patch's change of one file; yield the reasons why it does not fit."""
    refused = _refused(change)
    if refused:
        yield Finding(
            f"{place} {_shown(change.path)}",
            refused,
            "changes of text files within the tree",
            "use an AITER source that has this change (qola.aiter_git, qola.aiter_local)",
        )
        return
    info = list(change.patch_info or ())
    git = any(line.startswith("diff --git ") for line in info)
    source, target = _tree_path(tree, change.source_file), _tree_path(tree, change.target_file)
    old = tree.read(source) if source else None
    if not git and change.is_added_file and old is None:
        source = ""  # diff -N without git marks a new file only by an empty old one
    if not git and change.is_removed_file:
        target = ""  # and a deleted file by an empty new one
    if source and old is None:
        yield Finding(
            f"{place} {_shown(source)}",
            "no such file in the tree",
            "a file of this AITER, named as in a checkout (aiter/..., csrc/..., hsa/..., "
            "3rdparty/...), with or without a/ and b/ before it",
            _REBASE,
        )
        return
    if target and target != source and tree.has(target):
        found, expected = "the tree has such a file already", "none: the patch makes it"
        yield Finding(f"{place} {_shown(target)}", found, expected, _REBASE)
        return
    before = old or _File(b"")
    lines = _lines(before.data.decode(_ENCODING))
    after, rejected = apply_hunks(lines, change)
    for reject in rejected:
        yield _rejection(place, _shown(source or target), reject, len(lines))
    if rejected:
        return
    if not target and after:
        yield Finding(
            f"{place} {_shown(source)}",
            f"{len(after)} lines more than the patch, which deletes the file, knows of",
            "the file as it was when the patch was made",
            _REBASE,
        )
        return
    executable = before.executable
    if change.target_mode and change.target_mode != change.source_mode:
        executable = change.target_mode.endswith("755")
    copied = any(line.startswith("copy from ") for line in info)
    if source and source != target and not copied:
        tree.put(source, None)
    if target:
        tree.put(target, _File("".join(after).encode(_ENCODING), executable))


def _of_absent_submodule(tree: _Overlay, change: PatchedFile) -> bool:
    """Return whether a change is of Composable Kernel, in a tree without that submodule."""
    names = [name for name in (change.source_file, change.target_file) if name != _NONE]
    inside = (_checkout_path(name).startswith(f"{_SUBMODULE}/") for name in names)
    folder = tree.root / _tree_path(tree, _SUBMODULE)
    return all(inside) and not (folder.is_dir() and any(folder.iterdir()))


def _refused(change: PatchedFile) -> str:
    """Return the unsupported part of a change, "" for none."""
    if change.is_binary_file:
        return "a binary file"
    if not all(any(map(is_change, hunk)) for hunk in change):
        return "a hunk without lines"
    for mode in (change.source_mode, change.target_mode):
        if mode in _LINK_MODES:
            return _LINK_MODES[mode]
    for name in (change.source_file, change.target_file):
        if name == _NONE:
            continue
        path = PurePosixPath(_checkout_path(name))
        if any(ord(c) < 32 or ord(c) == 127 for c in name):
            return f"{_shown(name)}: a name with control characters"
        if name.startswith('"'):
            return f"{_shown(name)}: a name that git quotes"
        if path.is_absolute() or ".." in path.parts or not path.parts:
            return f"{_shown(name)}: a path out of the tree"
    return ""


def _checkout_path(name: str) -> str:
    """Return a patch's path without git's prefix, as a checkout has it."""
    path = name[2:] if _PREFIX.match(name) else name
    return path.removeprefix(f"{_META}/")


def _tree_path(tree: _Overlay, name: str) -> str:
    """Return the path of a checkout's file in this tree; "" for /dev/null."""
    if name == _NONE:
        return ""
    path = posixpath.normpath(_checkout_path(name))
    wheel = (tree.root / _META).is_dir()
    return f"{_META}/{path}" if wheel and not path.startswith("aiter/") else path


def _lines(text: str) -> list[str]:
    # splitlines would also split at form feeds.
    return io.StringIO(text, newline="\n").readlines()


def _rejection(place: str, file: str, reject: Rejected, length: int) -> Finding:
    if reject.found:
        end = reject.start + len(reject.found) - 1
        found = f"{file} lines {reject.start}-{end}:\n" + "".join(reject.found).rstrip("\n")
    else:
        found = f"{file}, which has {length} lines"
    if reject.reason:
        found = f"{reject.reason}\n{found}"
    return Finding(
        f"{place} hunk {reject.number}",
        _shown(found),
        f"the context and removed lines of the rejected hunk:\n{_shown(reject.hunk)}",
        _REBASE,
    )


def _shown(text: str) -> str:
    """Decode a patch's text, read as latin-1, as UTF-8 for a message."""
    return text.strip("\n").encode(_ENCODING, "replace").decode("utf-8", "replace")


def _patch(args: argparse.Namespace) -> None:
    patches = patch_files(args.patches_dir, place=args.place)
    result = {
        "patches": [pin.to_json() for pin in pin_patches(patches)],
        "touched": apply_patches(args.root, patches, display=args.display),
    }
    write_if_changed(args.output, json.dumps(result))


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of the repository rules of AITER sources."""
    parser = argparse.ArgumentParser(prog="qola.fetch.patches", description=__doc__)
    parser.add_argument("--patches-dir", required=True, type=Path, help="directory of the patches")
    parser.add_argument("--display", required=True, help="the directory's name in messages")
    parser.add_argument("--place", required=True, help="place of the option, for messages")
    parser.add_argument("--root", required=True, type=Path, help="the tree")
    parser.add_argument(
        "--output", required=True, type=Path, help="JSON: patches and files touched"
    )
    args = parser.parse_args(argv)
    return run_main(lambda: _patch(args))


if __name__ == "__main__":
    sys.exit(main())
