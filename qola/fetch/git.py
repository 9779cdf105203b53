"""Fetches one pinned commit with its submodules, with the machine's own git."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from qola.errors import AiterError, Finding
from qola.processes import TooLongError, TooMuchError, run_group
from qola.rule_main import run_main

TIMEOUT = 3000
"""Seconds for a fetch with its submodules. Composable Kernel is large; Bazel itself waits 3600."""

TIMEOUT_VARIABLE = "QOLA_GIT_TIMEOUT"

_PROTOCOLS = ("http", "https", "ssh", "file")
"""What a remote may be fetched by; others run commands (ext::), wait for ever (fd::), or guard
nothing (git://)."""

# Of a server that has fallen silent; one that drips meets the time limit of the whole fetch.
_SILENT = ("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=300")
_MAX_OUTPUT = 64 << 20
_INHERITED = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")


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


def check_remote(remote: str, place: str) -> None:
    """Refuse what git would take for an option, or fetch by another protocol than the usual ones.

    Raises:
        AiterError: the remote is not a path, a URL of http, https, ssh or file, or HOST:PATH.
    """
    # As git reads them: `helper::anything` runs git-remote-helper.
    helper, scheme = re.match("[A-Za-z0-9+.-]*::", remote), re.match("([^/:]*)://", remote)
    strange = helper or (scheme and scheme[1] not in _PROTOCOLS)
    if strange or not remote or remote.startswith("-"):
        raise AiterError(
            Finding(
                place,
                f'remote = "{remote}"',
                "a directory, HOST:PATH, or a URL that begins with "
                + ", ".join(f"{name}://" for name in _PROTOCOLS),
                'remote = "https://github.com/ROCm/aiter.git", say',
            )
        )


def fetch_commit(
    remote: str, commit: str, directory: Path, place: str, *, submodules: bool = True
) -> None:
    """Make an empty directory the tree of a commit, without git's own files.

    A submodule with a relative URL is found beside `remote`. Credentials and proxies come from
    this machine's own configuration of git, and whether a submodule may be a local path.

    Raises:
        AiterError: no full id, a remote of another protocol, no git, git failed (with its words)
            or took too long, or another commit came.
    """
    check_commit(commit, place)
    check_remote(remote, place)
    end = time.monotonic() + _timeout()

    def refused(found: str) -> AiterError:
        fix = f"git ls-remote {shlex.quote(remote)}"
        if "transport 'file' not allowed" in found:
            fix = "git config --global protocol.file.allow always"
        # Another user's repository: git names the one to trust, or not.
        if trusted := re.search("git config --global --add safe.directory .*", found):
            fix = trusted[0]
        finding = Finding(place, found, f"commit {commit} of {remote}", fix)
        return AiterError(finding, "git could not fetch a commit")

    def git(*args: str, protocols: Sequence[str] = _PROTOCOLS) -> str:
        return run_git(args, directory, refused, end=end, protocols=protocols)

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
        # Whoever wrote .gitmodules chose these: a path of this machine is the user's to allow.
        local = git("config", "--default=user", "--get", "protocol.file.allow") == "always"
        named = [name for name in _PROTOCOLS if local or name != "file"]
        update = ("submodule", "update", "--quiet", "--init", "--recursive", "--depth=1")
        git("-c", "submodule.fetchJobs=2", *update, protocols=named)
    for entry in sorted(directory.rglob(".git")):
        # Of submodules it is a file that points into the directory at the root.
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def run_git(
    args: Sequence[str],
    directory: Path,
    refused: Callable[[str], AiterError],
    *,
    end: float | None = None,
    protocols: Sequence[str] = _PROTOCOLS,
) -> str:
    """Run git in a directory, independent of the caller's repository; return what it prints.

    Args:
        end: when it must have ended, by `time.monotonic`; None for the whole time of a fetch.
        protocols: what it may fetch by, unless the user's GIT_ALLOW_PROTOCOL allows less.

    Raises:
        AiterError: git failed or took too long; it is what `refused` makes of the command and
            git's words.
    """
    # A GIT_DIR inherited from a hook would send all of this into the user's own repository.
    environ = {name: os.environ[name] for name in os.environ if name not in _INHERITED}
    own = environ.get("GIT_ALLOW_PROTOCOL", ":".join(protocols)).split(":")
    environ["GIT_ALLOW_PROTOCOL"] = ":".join(name for name in protocols if name in own)
    # No prompt of git, nor, without a terminal, of ssh: a fetch that waits for a password looks
    # like a hang.
    environ["GIT_TERMINAL_PROMPT"] = "0"
    command = ["git", "-c", "core.autocrlf=false", "-c", "core.hooksPath=/dev/null", *_SILENT]
    said, limit = f"git {' '.join(args)}: ", _timeout()
    left = limit if end is None else end - time.monotonic()
    try:
        run = run_group(
            [*command, *args], cwd=directory, env=environ, timeout=left, limit=_MAX_OUTPUT
        )
    except TooLongError:
        why = f"no end after {limit} s; {TIMEOUT_VARIABLE} sets another limit"
        raise refused(said + why) from None
    except TooMuchError:
        raise refused(f"{said}more than {_MAX_OUTPUT >> 20} MiB of names and messages") from None
    if run.code:
        words = run.err.decode("utf-8", "replace").strip()
        raise refused(said + (words or f"exit code {run.code}"))
    return run.out.decode("utf-8", "replace").strip()


def _timeout() -> int:
    """Return the seconds that a fetch may take.

    Raises:
        AiterError: the user's limit is not a number of seconds.
    """
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
    parser.add_argument("--place", required=True, help="where the pin stands, for messages")
    parser.add_argument("--output", required=True, type=Path, help="empty directory")
    args = parser.parse_args(argv)
    return run_main(lambda: fetch_commit(args.remote, args.commit, args.output, args.place))


if __name__ == "__main__":
    sys.exit(main())
