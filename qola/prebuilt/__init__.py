"""Prebuilt bundles, found by a key that covers everything that determines their bytes.

In: a ResolvedBuild and sources. Out: an installed or a published bundle.
"""
