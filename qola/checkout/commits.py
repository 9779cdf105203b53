"""Finds the full id of a commit that is named by a tag, a branch or its first digits."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from qola.errors import AiterError, Finding

_FULL = re.compile(r"[0-9a-f]{40}")
_SHORT = re.compile(r"[0-9a-f]{7,39}")
_TIMEOUT = 3600  # seconds


def resolve_commit(
    remote: str, name: str, *, progress: Callable[[str], None] = lambda _: None
) -> str:
    """Return the full id of a commit.

    A full id is taken as it is, without asking anybody; of a tag or branch git asks the remote;
    for first digits the remote's history is fetched, without files, and thrown away.

    Args:
        remote: URL or path that git can fetch from.
        name: full id, first digits (7 or more), tag or branch.

    Returns:
        40 hexadecimal digits.

    Raises:
        AiterError: the remote has no such commit, or several; or git fails, with its words.
    """
    if _FULL.fullmatch(name):
        return name
    wanted = (f"refs/tags/{name}^{{}}", f"refs/tags/{name}", f"refs/heads/{name}")
    listed = _git(["ls-remote", remote, *wanted], remote, name)
    found = {ref: commit for commit, _, ref in (s.partition("\t") for s in listed.splitlines())}
    for ref in wanted:
        if ref in found:
            return found[ref]
    if _SHORT.fullmatch(name):
        progress(f"looking for the commit {name}... in the history of {remote}")
        with tempfile.TemporaryDirectory(prefix="qola-") as directory:
            at = ["-C", directory]
            _git(["init", "--quiet", "--bare", directory], remote, name)
            refs = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
            _git([*at, "fetch", "--quiet", "--filter=tree:0", remote, *refs], remote, name)
            return _git([*at, "rev-parse", "--verify", f"{name}^{{commit}}"], remote, name)
    raise AiterError(
        Finding(
            f"the AITER commit {name}",
            f"no tag and no branch of that name in {remote}",
            "a commit (7 digits or more), a tag or a branch",
            f"git ls-remote {remote}",
        )
    )


def _git(args: list[str], remote: str, name: str) -> str:
    # A GIT_DIR inherited from a hook would mean the user's own repository; a prompt would hang.
    command = ["env", "-u", "GIT_DIR", "-u", "GIT_WORK_TREE", "GIT_TERMINAL_PROMPT=0", "git"]
    run = subprocess.run(
        [*command, *args],
        cwd=Path("/"),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=_TIMEOUT,
    )
    if run.returncode:
        words = run.stderr.strip() or f"exit code {run.returncode}"
        raise AiterError(
            Finding(
                f"the AITER commit {name}",
                f"git {' '.join(args)}: {words}",
                f"one commit of {remote}",
                "name it in full; git uses this machine's own configuration",
            ),
            "git could not find the AITER commit",
        )
    return run.stdout.strip()
