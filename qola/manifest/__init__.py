"""Reads and validates a TOML manifest."""
