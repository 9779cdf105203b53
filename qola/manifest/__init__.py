"""A TOML manifest, read and validated.

in: a file; out: Manifest, or every finding with its place.
"""
