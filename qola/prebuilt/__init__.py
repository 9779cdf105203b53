"""Prebuilt bundles, found by a key that covers everything that determines their bytes."""
