"""Fetches one pinned commit with its submodules, with the machine's own git."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from qola.errors import AiterError, Finding
from qola.rule_main import run_main

_TIMEOUT = 3600  # seconds per command: Composable Kernel is large


def check_commit(commit: str, place: str) -> None:
    """Refuse a commit that is not named in full: it can come to mean another tree.

    Raises:
        AiterError: not 40 small hexadecimal digits.
    """
    if not re.fullmatch("[0-9a-f]{40}", commit):
        raise AiterError(
            Finding(
                place,
                f'commit = "{commit}"',
                "40 hexadecimal digits; a branch or a short id can come to mean another tree",
                f"git rev-parse {commit}^{{commit}}",
            )
        )


def fetch_commit(
    remote: str, commit: str, directory: Path, place: str, *, submodules: bool = True
) -> None:
    """Make an empty directory the tree of a commit, without git's own files.

    A submodule with a relative URL is found beside `remote`. Credentials, proxies and what
    protocols are allowed come from this machine's own configuration of git.

    Raises:
        AiterError: no full id, no git, git failed (with its words), or another commit came.
    """
    check_commit(commit, place)

    def refused(found: str) -> AiterError:
        fix = f"git ls-remote {shlex.quote(remote)}"
        if "transport 'file' not allowed" in found:
            fix = "git config --global protocol.file.allow always"
        finding = Finding(place, found, f"commit {commit} of {remote}", fix)
        return AiterError(finding, "git could not fetch a commit")

    def git(*args: str) -> str:
        return run_git(args, directory, refused)

    git("init", "--quiet", ".")
    # As a remote, not as an argument of fetch: relative URLs of submodules are relative to it.
    git("remote", "add", "origin", remote)
    git("fetch", "--quiet", "--depth=1", "origin", commit)
    git("checkout", "--quiet", "--detach", "FETCH_HEAD")
    found = git("rev-parse", "HEAD")
    if found != commit:
        raise AiterError(
            Finding(place, f"{found} from {remote}", commit, "pin the commit, not an annotated tag")
        )
    if submodules:
        jobs = ("-c", "submodule.fetchJobs=2")
        git(*jobs, "submodule", "update", "--quiet", "--init", "--recursive", "--depth=1")
    for entry in sorted(directory.rglob(".git")):
        # Of submodules it is a file that points into the directory at the root.
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def run_git(args: Sequence[str], directory: Path, refused: Callable[[str], AiterError]) -> str:
    """Run git in a directory, independent of the caller's repository; return what it prints.

    Raises:
        AiterError: git failed; it is what `refused` makes of the command and git's words.
    """
    # A GIT_DIR inherited from a hook would send all of this into the user's own repository.
    # No prompt: a fetch that waits for a password looks like a hang.
    command = ["env", "-u", "GIT_DIR", "-u", "GIT_WORK_TREE", "-u", "GIT_INDEX_FILE"]
    command += ["GIT_TERMINAL_PROMPT=0", "git"]
    command += ["-c", "core.autocrlf=false", "-c", "core.hooksPath=/dev/null", *args]
    said = f"git {' '.join(args)}: "
    try:
        run = subprocess.run(
            command,
            cwd=directory,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        raise refused(f"{said}no end after {_TIMEOUT} s") from None
    if run.returncode:
        raise refused(said + (run.stderr.strip() or f"exit code {run.returncode}"))
    return run.stdout.strip()


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of the aiter_git repository rule."""
    parser = argparse.ArgumentParser(prog="qola.fetch.git", description=__doc__)
    parser.add_argument("--remote", required=True, help="URL or path that git can fetch from")
    parser.add_argument("--commit", required=True, help="full commit id")
    parser.add_argument("--place", required=True, help="where the pin stands, for messages")
    parser.add_argument("--output", required=True, type=Path, help="empty directory")
    args = parser.parse_args(argv)
    return run_main(lambda: fetch_commit(args.remote, args.commit, args.output, args.place))


if __name__ == "__main__":
    sys.exit(main())
