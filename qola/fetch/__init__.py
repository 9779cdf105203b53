"""AITER's sources on disk: wheel, git, patches, each pinned by digest.

in: a pin; out: files, or an AiterError.
"""
