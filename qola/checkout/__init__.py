"""A prepared AITER tree: chosen, fetched and patched.

in: a request for a source; out: a directory.
"""
