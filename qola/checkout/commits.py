"""Finds the full id of a commit that is named by a tag, a branch or its first digits."""

from __future__ import annotations

import re
import shlex
import tempfile
from pathlib import Path

from qola.errors import AiterError, Finding
from qola.fetch.git import check_remote, run_git
from qola.progress import log

_FULL = re.compile(r"[0-9a-f]{40}")
_SHORT = re.compile(r"[0-9a-f]{7,39}")


def resolve_commit(remote: str, name: str) -> str:
    """Return the full id of a commit: 40 hexadecimal digits.

    A full id is taken as it is, without asking anybody; of a tag or branch git asks the remote;
    for first digits (7 or more) the remote's history is fetched, without files, and thrown away.

    Raises:
        AiterError: the remote has no such commit, or several, or is not one to fetch from; or git
            fails, with its words.
    """
    if _FULL.fullmatch(name):
        return name
    place = f"the AITER commit {name}"
    check_remote(remote, place)

    def refused(found: str) -> AiterError:
        fix = f"git ls-remote {shlex.quote(remote)}"
        finding = Finding(place, found, f"one commit of {remote}", fix)
        return AiterError(finding, "git could not find the AITER commit")

    wanted = (f"refs/tags/{name}^{{}}", f"refs/tags/{name}", f"refs/heads/{name}")
    listed = run_git(["ls-remote", "--", remote, *wanted], Path("/"), refused)
    found = {ref: commit for commit, _, ref in (s.partition("\t") for s in listed.splitlines())}
    for ref in wanted:
        if ref in found:
            return found[ref]
    if _SHORT.fullmatch(name):
        log.info(f"looking for the commit {name}... in the history of {remote}")
        with tempfile.TemporaryDirectory(prefix="qola-") as directory:
            here = Path(directory)
            run_git(["init", "--quiet", "--bare"], here, refused)
            refs = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
            run_git(["fetch", "--quiet", "--filter=tree:0", remote, *refs], here, refused)
            return run_git(["rev-parse", "--verify", f"{name}^{{commit}}"], here, refused)
    raise AiterError(
        Finding(
            place,
            f"no tag and no branch of that name in {remote}",
            "a commit (7 digits or more), a tag or a branch",
            f"git ls-remote {shlex.quote(remote)}",
        )
    )
