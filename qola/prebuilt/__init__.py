"""Bundles built once, for everybody: found by a key of all that determines their bytes.

in: a ResolvedBuild, and where to look; out: an installed bundle, or a published one.
"""
