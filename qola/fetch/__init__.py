"""Fetches AITER's sources by pins: wheels, git commits and patches."""
