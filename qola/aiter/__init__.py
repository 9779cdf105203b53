"""An AITER tree, read: what it can build.

in: a directory; out: AiterTree, module configurations, headers, entry points.
"""
