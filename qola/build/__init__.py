"""A manifest's libraries, built by Bazel in a workspace of our own.

in: a BuildRequest; out: a BuildResult.
"""
