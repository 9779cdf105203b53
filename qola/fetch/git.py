"""Fetches commits with the machine's own git, and finds the ids of commits."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.common.processes import TooLongError, TooMuchError, run_group
from qola_base.cache import cache_directory, kept_directory
from qola_base.errors import AiterError, Finding
from qola_base.progress import log
from qola_base.rule_main import run_main

TIMEOUT = 3000
"""Seconds for a fetch with its submodules. Composable Kernel is large; Bazel itself waits 3600."""

TIMEOUT_VARIABLE = "QOLA_GIT_TIMEOUT"

TREES = "trees"
"""Directory of the cache with the trees that qola fetches without Bazel."""

_PROTOCOLS = ("http", "https", "ssh", "file")
"""Accepted protocols. Others run commands (ext::), block (fd::), or are not encrypted (git://)."""

# Against a silent server; a slow one meets the timeout of the whole fetch.
_SILENT = ("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=300")
_MAX_OUTPUT = 64 << 20
_FULL_ID = re.compile("[0-9a-f]{40}")
_SHORT_ID = re.compile("[0-9a-f]{7,39}")
_INHERITED = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")


def check_commit(commit: str, place: str) -> None:
    """Raise AiterError if a commit is not a full id of 40 lower-case hexadecimal digits."""
    if not _FULL_ID.fullmatch(commit):
        raise AiterError(
            Finding(
                place,
                f'commit = "{commit}"',
                "40 hexadecimal digits; a branch or a short id can come to mean another tree",
                f"git rev-parse {commit}^{{commit}}",
            )
        )


def check_remote(remote: str, place: str) -> None:
    """Raise AiterError if git would use another protocol, or read the remote as an option."""
    # For git, `helper::anything` runs git-remote-helper.
    helper, scheme = re.match("[A-Za-z0-9+.-]*::", remote), re.match("([^/:]*)://", remote)
    strange = helper or (scheme and scheme[1] not in _PROTOCOLS)
    if strange or not remote or remote.startswith("-"):
        raise AiterError(
            Finding(
                place,
                f'remote = "{remote}"',
                "a directory, HOST:PATH, or a URL that begins with "
                + ", ".join(f"{name}://" for name in _PROTOCOLS),
                'for example remote = "https://github.com/ROCm/aiter.git"',
            )
        )


def fetch_commit(
    remote: str, commit: str, directory: Path, place: str, *, submodules: bool = True
) -> None:
    """Fetch the tree of a commit into an empty directory, without git's own files.

    This machine's git configuration supplies credentials and proxies, and decides whether a
    submodule may be a local path.

    Raises:
        AiterError: git failed or took too long, or the remote delivered another commit.
    """
    check_commit(commit, place)
    check_remote(remote, place)
    end = time.monotonic() + _timeout()

    def refused(found: str) -> AiterError:
        fix = f"git ls-remote {shlex.quote(remote)}"
        if "transport 'file' not allowed" in found:
            fix = "git config --global protocol.file.allow always"
        # Another user's repository: git names the command that trusts it.
        if trusted := re.search("git config --global --add safe.directory .*", found):
            fix = trusted[0]
        finding = Finding(place, found, f"commit {commit} of {remote}", fix)
        return AiterError(finding, "git could not fetch a commit")

    def git(*args: str, protocols: Sequence[str] = _PROTOCOLS) -> str:
        return run_git(args, directory, refused, end=end, protocols=protocols)

    git("init", "--quiet", ".")
    # A configured remote: relative URLs of submodules are relative to it.
    git("remote", "add", "origin", remote)
    git("fetch", "--quiet", "--depth=1", "origin", commit)
    git("checkout", "--quiet", "--detach", "FETCH_HEAD")
    found = git("rev-parse", "HEAD")
    if found != commit:
        raise AiterError(
            Finding(place, f"{found} from {remote}", commit, "pin the commit, not an annotated tag")
        )
    if submodules:
        # .gitmodules is foreign: only the user's own setting allows a path of this machine.
        local = git("config", "--default=user", "--get", "protocol.file.allow") == "always"
        named = [name for name in _PROTOCOLS if local or name != "file"]
        update = ("submodule", "update", "--quiet", "--init", "--recursive", "--depth=1")
        git("-c", "submodule.fetchJobs=2", *update, protocols=named)
    for entry in sorted(directory.rglob(".git")):
        # Of submodules it is a file that points into the directory at the root.
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def commit_tree(remote: str, commit: str, environ: Mapping[str, str], place: str) -> Path:
    """Return the tree of a commit in the cache, without submodules; fetch it the first time."""
    trees = cache_directory(environ) / TREES
    tree = trees / f"git-{commit}"

    def make() -> None:
        log.info(f"fetching commit {commit} of {remote}")
        with tempfile.TemporaryDirectory(prefix=".git-", dir=trees) as temporary:
            made = Path(temporary, "tree")
            # Not writable by others under any umask, as the cache demands.
            made.mkdir(mode=0o700)
            fetch_commit(remote, commit, made, place, submodules=False)
            made.rename(tree)

    return kept_directory(tree, tree, "fetch", make)


def resolve_commit(remote: str, name: str) -> str:
    """Return the full id of a commit that is named by a tag, a branch or its first digits.

    A full id is returned without network access. For first digits (7 or more), git fetches the
    remote's history without files into a temporary directory.

    Raises:
        AiterError: the remote has no such commit, or several, or git fails.
    """
    if _FULL_ID.fullmatch(name):
        return name
    place = f"the AITER commit {name}"
    check_remote(remote, place)

    fix = f"git ls-remote {shlex.quote(remote)}"

    def refused(found: str) -> AiterError:
        finding = Finding(place, found, f"one commit of {remote}", fix)
        return AiterError(finding, "git could not find the AITER commit")

    wanted = (f"refs/tags/{name}^{{}}", f"refs/tags/{name}", f"refs/heads/{name}")
    listed = run_git(["ls-remote", "--", remote, *wanted], Path("/"), refused)
    found = {ref: commit for commit, _, ref in (s.partition("\t") for s in listed.splitlines())}
    for ref in wanted:
        if ref in found:
            return found[ref]
    if _SHORT_ID.fullmatch(name):
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
            fix,
        )
    )


@dataclass(frozen=True)
class CheckoutHead:
    """HEAD of a git checkout, as `read_head` returns it.

    Attributes:
        commit: full id; "" if the directory is not a checkout, or git cannot read it.
        tags: the tags of this commit.
        git_dir: git's own directory of the checkout; its files HEAD and logs/HEAD change with HEAD.
        problem: git's message if it cannot read HEAD.
    """

    commit: str = ""
    tags: tuple[str, ...] = ()
    git_dir: str = ""
    problem: str = ""


def read_head(directory: Path) -> CheckoutHead:
    """Read HEAD of a checkout, also of another user's; of no enclosing repository."""
    if not os.path.lexists(directory / ".git"):
        return CheckoutHead()
    try:
        (commit,) = read_checkout(directory, "rev-parse", "--verify", "HEAD")
        git_dir = "\n".join(read_checkout(directory, "rev-parse", "--absolute-git-dir"))
    except AiterError as error:
        return CheckoutHead(problem=error.findings[0].found)
    try:
        tags = tuple(read_checkout(directory, "tag", "--points-at", commit))
    except AiterError:
        # A partial clone may lack the objects of its tags.
        tags = ()
    return CheckoutHead(commit, tags, git_dir)


def read_checkout(directory: Path, *args: str) -> list[str]:
    """Return the lines that git prints about a checkout; AiterError with git's message.

    In a container, checkouts often belong to another user, whom git does not trust by default. No
    protocol is allowed, since git would fetch the missing objects of a partial clone by the command
    that this user's configuration names.
    """
    trusted = ("-c", "safe.directory=*", "--git-dir=.git")

    def refused(found: str) -> AiterError:
        found = found.replace(f"git {' '.join(trusted)} ", "git ")
        return AiterError(Finding(str(directory), found, "a checkout that git can read"))

    try:
        return run_git([*trusted, *args], directory, refused, protocols=()).splitlines()
    except OSError as error:
        raise refused(f"git: {error.strerror}") from None


def run_git(
    args: Sequence[str],
    directory: Path,
    refused: Callable[[str], AiterError],
    *,
    end: float | None = None,
    protocols: Sequence[str] = _PROTOCOLS,
) -> str:
    """Run git in a directory, independent of the caller's repository; return its output.

    Args:
        refused: makes the error to raise, from the command and git's message.
        end: deadline by `time.monotonic`; None allows the timeout of a fetch.
        protocols: allowed protocols, unless the user's GIT_ALLOW_PROTOCOL allows fewer.
    """
    # A GIT_DIR inherited from a hook would redirect the commands to the user's own repository.
    environ = {name: os.environ[name] for name in os.environ if name not in _INHERITED}
    own = environ.get("GIT_ALLOW_PROTOCOL", ":".join(protocols)).split(":")
    environ["GIT_ALLOW_PROTOCOL"] = ":".join(name for name in protocols if name in own)
    if not protocols:
        environ["GIT_NO_LAZY_FETCH"] = "1"
    # Fail instead of prompting for a password, which looks like a hang.
    environ["GIT_TERMINAL_PROMPT"] = "0"
    command = ["git", "-c", "core.autocrlf=false", "-c", "core.hooksPath=/dev/null", *_SILENT]
    limit = _timeout()
    left = limit if end is None else end - time.monotonic()
    try:
        run = run_group(
            [*command, *args], cwd=directory, env=environ, timeout=left, limit=_MAX_OUTPUT
        )
        if not run.code:
            return run.out.decode("utf-8", "replace").strip()
        why = run.err.decode("utf-8", "replace").strip() or f"exit code {run.code}"
    except TooLongError:
        why = f"no end after {limit} s; {TIMEOUT_VARIABLE} sets another limit"
    except TooMuchError:
        why = f"more than {_MAX_OUTPUT >> 20} MiB of names and messages"
    raise refused(f"git {' '.join(args)}: {why}")


def _timeout() -> int:
    text = os.environ.get(TIMEOUT_VARIABLE) or str(TIMEOUT)
    if re.fullmatch("[1-9][0-9]{0,5}", text):
        return int(text)
    expected = "seconds, from 1 to 999999"
    raise AiterError(Finding(TIMEOUT_VARIABLE, text, expected, f"export {TIMEOUT_VARIABLE}=7200"))


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of the aiter_git repository rule."""
    parser = argparse.ArgumentParser(prog="qola.fetch.git", description=__doc__)
    parser.add_argument("--remote", required=True, help="URL or path that git can fetch from")
    parser.add_argument("--commit", required=True, help="full commit id")
    parser.add_argument("--place", required=True, help="location of the pin, for errors")
    parser.add_argument("--output", required=True, type=Path, help="empty directory")
    args = parser.parse_args(argv)
    return run_main(lambda: fetch_commit(args.remote, args.commit, args.output, args.place))


if __name__ == "__main__":
    sys.exit(main())
