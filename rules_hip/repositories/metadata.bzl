"""Metadata of reproducible repositories."""

def reproducible(rctx):
    """Returns the metadata of a repository that depends on nothing but its attributes: digests and commits.

    Bazel 8.3 and later then keep it in the cache of repositories' contents; older versions have no such metadata.
    """
    return rctx.repo_metadata(reproducible = True) if hasattr(rctx, "repo_metadata") else None
