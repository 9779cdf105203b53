"""Builds a manifest's libraries with Bazel in a generated workspace."""
