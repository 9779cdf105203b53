"""aiter_git: an AITER commit with its submodules."""

load(":tree_build_file.bzl", "write_tree_build_file")

def _git(rctx, args):
    # A GIT_DIR inherited from a hook would send all of this into the user's own
    # repository. No prompt: a fetch that waits for a password looks like a hang.
    command = ["env", "-u", "GIT_DIR", "-u", "GIT_WORK_TREE", "-u", "GIT_INDEX_FILE", "GIT_TERMINAL_PROMPT=0", "git"]
    options = ["-c", "core.autocrlf=false", "-c", "core.hooksPath=/dev/null"]
    result = rctx.execute(command + options + args, timeout = 3600)
    if result.return_code != 0:
        fail("""
qola: AiterError: git could not fetch AITER
  place:    {place}
  found:    git {args}: {stderr}
  expected: commit {commit} of {remote}
  fix:      check remote and commit; git uses this machine's own configuration""".format(
            args = " ".join(args),
            commit = rctx.attr.commit,
            place = rctx.attr.place,
            remote = rctx.attr.remote,
            stderr = result.stderr.strip(),
        ))
    return result.stdout.strip()

def _aiter_git_impl(rctx):
    if len(rctx.attr.commit) != 40 or rctx.attr.commit.strip("0123456789abcdef"):
        fail("""
qola: AiterError: a commit has to be pinned in full
  place:    {place}
  found:    commit = "{commit}"
  expected: 40 hexadecimal digits; a branch or a short id can come to mean another tree
  fix:      git rev-parse {commit}^{{commit}}""".format(commit = rctx.attr.commit, place = rctx.attr.place))
    _git(rctx, ["init", "--quiet", "."])
    _git(rctx, ["fetch", "--quiet", "--depth=1", rctx.attr.remote, rctx.attr.commit])
    _git(rctx, ["checkout", "--quiet", "--detach", "FETCH_HEAD"])

    # The commit id covers the tree and, through it, every submodule's commit.
    found = _git(rctx, ["rev-parse", "HEAD"])
    if found != rctx.attr.commit:
        fail("""
qola: AiterError: another commit than the pinned one
  place:    {place}
  found:    {found} from {remote}
  expected: {commit}
  fix:      pin the commit itself, not an annotated tag""".format(
            commit = rctx.attr.commit,
            found = found,
            place = rctx.attr.place,
            remote = rctx.attr.remote,
        ))
    _git(rctx, ["-c", "submodule.fetchJobs=2", "submodule", "update", "--quiet", "--init", "--recursive", "--depth=1"])
    rctx.delete(".git")
    write_tree_build_file(rctx, {"commit": rctx.attr.commit, "kind": "git", "remote": rctx.attr.remote})

aiter_git = repository_rule(
    implementation = _aiter_git_impl,
    attrs = {
        "commit": attr.string(doc = "Full commit id.", mandatory = True),
        "place": attr.string(doc = "Where the pin stands, for error messages.", mandatory = True),
        "remote": attr.string(doc = "URL or path that git can fetch from.", mandatory = True),
    },
    doc = "AITER's sources at one commit, Composable Kernel and the other submodules included.",
)
