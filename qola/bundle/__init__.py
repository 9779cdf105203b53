"""Bundles: libraries with all that their users need, as one directory, archive or wheel.

in: built libraries and a plan; out: files. It runs in build actions, and imports what is in
third_party/python/bundle.in, which nothing else of qola needs.
"""
