"""The generated repository of a manifest: plans it, and writes the files that Bazel reads.

in: a manifest, an AITER tree; out: BUILD files, and the files in docs/internals/architecture.md.
"""
