"""Applies patches to AITER's sources with `git apply`: all or none.

git changes copies of the files. It refuses files behind symbolic links, of which a local tree in
Bazel is made, and a wheel has most files at other paths than the checkout that a patch names. The
package unidiff parses the names, and the hunks for messages.
"""

from __future__ import annotations

import argparse
import json
import os
import posixpath
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk, PatchSet

from qola.common.processes import TooLongError, TooMuchError, run_group
from qola.fetch.pins import patch_files, pin_patches
from qola_base.errors import AiterError, Finding, unseen, visible
from qola_base.files import UnfitFileError, bounded_bytes, whole, write_if_changed
from qola_base.progress import log
from qola_base.rule_main import run_main
from qola_base.system_errors import disk_error

_META = "aiter_meta"
_NONE = "/dev/null"
_SUBMODULE = "3rdparty/composable_kernel"
_MAX_PATCH = 64 << 20
_TIMEOUT = 300
_ENCODING = "latin-1"  # any bytes, unchanged: sources need not be UTF-8
_PREFIX = re.compile(r"[abciow12]/")  # git's, also those of diff.mnemonicPrefix
#: As git reads modes.
_LINK = re.compile(r"^(?:index \S+|(?:old|new|new file|deleted file) mode)\s+0*(12|16)0000\b", re.M)
_TITLE = "the patches do not fit this AITER"
_INIT = "git submodule update --init --recursive, in the AITER tree"
_REBASE = (
    "rebase the patch: git apply --3way in a checkout of this AITER, git commit, git format-patch"
)
_EXPECTED = (
    "changes of files of this AITER that git apply accepts, named as in a checkout "
    "(aiter/..., csrc/..., hsa/..., 3rdparty/...), with or without a/ and b/ before them"
)
#: Reasons for a reject, by the option of `git apply` with which the patch fits.
_REASONS = {
    "--reverse": "the file has this change already\n",
    "--ignore-whitespace": "the lines are there, but with other white space or line ends (CRLF)\n",
}
_REJECTED = re.compile(r"^error: patch failed: (.*):(\d+)$", re.MULTILINE)


def apply_patches(
    root: Path, patches: Sequence[Path], *, display: str | None = None
) -> tuple[str, ...]:
    """Apply patches to a tree in order; on any reject the tree stays unchanged.

    Paths in a patch are relative to the root of a checkout, with or without git's prefixes ``a/``
    and ``b/``; an unpacked wheel has these files below ``aiter_meta/``. Supported are patches
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
    executable: bool

    @classmethod
    def read(cls, path: Path) -> _File:
        return cls(path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR))

    @property
    def mode(self) -> int:
        return 0o755 if self.executable else 0o644


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
        return _File.read(file)

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
                os.fchmod(stream.fileno(), file.mode)
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


@dataclass(frozen=True)
class _Change:
    """A patch's change of one file.

    Attributes:
        names: of the file before and after it, without prefixes; one if the names are the same, or
            if the change creates or deletes the file.
    """

    names: tuple[str, ...]
    hunks: Sequence[Hunk]


def _parse(patch: Path, place: str) -> tuple[list[_Change], bool]:
    """Return the changes of a patch, and whether its names have prefixes, such as a/ and b/."""
    expected = "a unified diff, as git diff and git format-patch write it"
    try:
        text = bounded_bytes(patch, _MAX_PATCH).decode(_ENCODING)
        parsed = PatchSet.from_string(text)
    except (UnidiffParseError, UnfitFileError) as error:
        raise AiterError(Finding(place, _shown(str(error)), expected), _TITLE) from None
    if not parsed:
        raise AiterError(Finding(place, "no change of any file", expected), _TITLE)
    if refused := _refused(text, parsed):
        raise AiterError(Finding(place, refused, _EXPECTED), _TITLE)
    names = [[n for n in (c.source_file, c.target_file) if n != _NONE] for c in parsed]
    prefixed = all(_PREFIX.match(name) for own in names for name in own)
    return [
        _Change(tuple(dict.fromkeys(name[2 * prefixed :] for name in own)), change)
        for change, own in zip(parsed, names, strict=True)
    ], prefixed


def _refused(text: str, patch: PatchSet) -> str:
    """Return the part of a patch for which git would ignore or guess something, "" for none."""
    if "\0" in text:
        return "a null character, at which git ends a name"
    if link := _LINK.search(text):
        return "a symbolic link" if link[1] == "12" else "a submodule"
    for change in patch:
        for number, hunk in enumerate(change, 1):
            if hunk.source_start and not hunk.source_length:
                why = "no context that says where it belongs; make it with git diff -U3"
                return f"{_shown(change.path)}: hunk {number} has {why}"
    return ""


def _apply_patch(tree: _Overlay, patch: Path, place: str) -> str:
    """Apply a patch in memory; return a warning about skipped files, or raise AiterError."""
    changes, prefixed = _parse(patch, place)
    absent = [c for c in changes if all(_is_of_absent_submodule(tree, n) for n in c.names)]
    arguments = ["-p1" if prefixed else "-p0", "--whitespace=nowarn"]
    arguments += [f"--exclude={name}" for change in absent for name in change.names]
    arguments.append(str(patch.resolve()))
    with tempfile.TemporaryDirectory(prefix="qola-") as directory:
        copies = Path(directory).resolve() / "copies"
        before = _copy_files(tree, changes, copies)
        if len(absent) < len(changes) and _git_apply(copies, arguments):
            raise AiterError(_rejections(copies, arguments, changes, before, place), _TITLE)
        _take_files(tree, before, copies, place)
    if not absent:
        return ""
    return f"{place}: {len(absent)} of {len(changes)} files skipped: the tree has no {_SUBMODULE}"


def _copy_files(tree: _Overlay, changes: Iterable[_Change], copies: Path) -> dict[str, _File]:
    """Copy the files that a patch changes to a new directory; return them by name."""
    copies.mkdir()
    before: dict[str, _File] = {}
    for name in {name for change in changes for name in change.names}:
        path = PurePosixPath(name)
        # git refuses other names.
        below = not path.is_absolute() and ".." not in path.parts and path.parts
        if below and (file := tree.read(_tree_path(tree, name))):
            before[name] = file
            (copies / name).parent.mkdir(parents=True, exist_ok=True)
            (copies / name).write_bytes(file.data)
            (copies / name).chmod(file.mode)
    return before


def _take_files(tree: _Overlay, before: Mapping[str, _File], copies: Path, place: str) -> None:
    """Change a tree in memory as git has changed the copies of its files."""
    paths = [path for path in sorted(copies.rglob("*")) if path.is_symlink() or not path.is_dir()]
    if links := [path.name for path in paths if path.is_symlink()]:
        found = f"a symbolic link, {visible(links[0])}"
        raise AiterError(Finding(place, found, _EXPECTED, _REBASE), _TITLE)
    after = {path.relative_to(copies).as_posix(): _File.read(path) for path in paths}
    for name in before.keys() - after.keys():
        tree.put(_tree_path(tree, name), None)
    findings = []
    for name, file in after.items():
        path = _tree_path(tree, name)
        if unseen(name) or (name not in before and tree.has(path)):
            found = "control characters" if unseen(name) else "the tree has such a file already"
            finding = Finding(f"{place} {visible(path)}", found, "a new file", _REBASE)
            findings.append(finding)
        elif file != before.get(name):
            tree.put(path, file)
    if findings:
        raise AiterError(findings, _TITLE)


def _git_apply(copies: Path, arguments: Sequence[str]) -> str:
    """Have git change the copies; return its messages if it fails."""
    # Without configuration, and without a repository that contains the directory.
    home = str(copies.parent)
    env = {"GIT_CONFIG_NOSYSTEM": "1", "HOME": home, "GIT_CEILING_DIRECTORIES": home}
    env |= {"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)}
    command = ["git", "apply", *arguments]
    try:
        done = run_group(
            command, cwd=copies, env=env, timeout=_TIMEOUT, limit=_MAX_PATCH, merged=True
        )
    except FileNotFoundError:
        finding = Finding("PATH", "no git", "git, which applies patches", "install git")
        raise AiterError(finding, _TITLE) from None
    except (TooLongError, TooMuchError):
        return f"no end after {_TIMEOUT} s, or more than {_MAX_PATCH >> 20} MiB of messages"
    return (done.out.decode(_ENCODING) or f"exit code {done.code}") if done.code else ""


def _rejections(
    copies: Path,
    arguments: Sequence[str],
    changes: Iterable[_Change],
    before: Mapping[str, _File],
    place: str,
) -> list[Finding]:
    """Return an error for each hunk that does not fit, or one with git's message."""
    fits = (o for o in _REASONS if not _git_apply(copies, ["--check", o, *arguments]))
    reason = _REASONS.get(next(fits, ""), "")
    message = _git_apply(copies, ["--reject", *arguments])
    hunks = {
        (name, hunk.source_start): (number, hunk)
        for change in changes
        for name in change.names
        for number, hunk in enumerate(change.hunks, 1)
    }
    findings = []
    for name, line in _REJECTED.findall(message):
        if (name, int(line)) not in hunks or name not in before:
            continue
        number, hunk = hunks[name, int(line)]
        start, lines = hunk.source_start, before[name].data.decode(_ENCODING).split("\n")
        found = lines[max(start - 1, 0) :][: max(hunk.source_length, 1)]
        where = f"{name} lines {start}-{start + len(found) - 1}:" if found else f"{name} is shorter"
        findings.append(
            Finding(
                f"{place} hunk {number}",
                _shown("\n".join([f"{reason}{where}", *found])),
                f"the context and removed lines of the rejected hunk:\n{_shown(str(hunk))}",
                _REBASE,
            )
        )
    return findings or [Finding(place, _shown(message), _EXPECTED, _REBASE)]


def _is_of_absent_submodule(tree: _Overlay, name: str) -> bool:
    """Return whether a file is of Composable Kernel, in a tree without that submodule."""
    folder = tree.root / _tree_path(tree, _SUBMODULE)
    is_absent = not (folder.is_dir() and any(folder.iterdir()))
    return is_absent and name.removeprefix(f"{_META}/").startswith(f"{_SUBMODULE}/")


def _tree_path(tree: _Overlay, name: str) -> str:
    """Return the path of a checkout's file in this tree."""
    path = posixpath.normpath(name.removeprefix(f"{_META}/"))
    wheel = (tree.root / _META).is_dir()
    return f"{_META}/{path}" if wheel and not path.startswith("aiter/") else path


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
