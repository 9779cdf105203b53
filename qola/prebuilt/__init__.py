"""Prebuilt bundles: found by a key of all that determines their bytes, fetched and published."""
