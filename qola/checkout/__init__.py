"""Chooses the AITER source of a build and prepares its tree."""
