"""Makes bundles: libraries with all that their users need, as one directory or archive.

Runs in build actions (rules/private/package/qola_bundle.bzl). Its imports are those of
third_party/python/bundle.in, which nothing else of qola needs.
"""
