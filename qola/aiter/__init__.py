"""Reads an AITER tree: modules, headers, entry points, known faults."""
